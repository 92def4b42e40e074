"""`cupy.cuda.MemoryHook`, as far as it is used: hooks belong to one thread, each name once."""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["MemoryHook", "hooks"]

_local = threading.local()


def hooks() -> dict[str, Any]:
    """Those of this thread."""
    if not hasattr(_local, "hooks"):
        _local.hooks = {}
    found: dict[str, Any] = _local.hooks
    return found


class MemoryHook:
    """Hears what the pool hands out and takes back, between enter and exit."""

    name = "MemoryHook"

    def __enter__(self) -> MemoryHook:
        if self.name in hooks():
            raise KeyError(f"memory hook {self.name} already exists")
        hooks()[self.name] = self
        return self

    def __exit__(self, *exc_info: object) -> None:
        del hooks()[self.name]
