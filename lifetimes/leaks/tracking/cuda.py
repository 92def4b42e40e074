"""CuPy: the device memory of an unmodified program, through CuPy's own memory hooks.

A hook hears each block that CuPy's pool hands out and takes back, by its address.  Hooks belong to one thread, so new
threads get theirs at their first event, through `threading.setprofile`.  What refers to an array cannot be found: CuPy's
objects are not known to the garbage collector, and the hook hears only numbers.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from lifetimes.leaks import search
from lifetimes.lifetime import Lifetime
from lifetimes.origins import hide, unhide

if TYPE_CHECKING:
    from lifetimes.leaks.tracking import Tracker

__all__ = ["LibraryTracker"]


class LibraryTracker:
    """Tracks CuPy from ``start`` to ``stop``."""

    name = "cupy"

    def __init__(self) -> None:
        self._live: dict[tuple[int, int], Lifetime[int]] = {}
        self._hook: Any = None
        self._entered: list[int] = []
        self._folder = ""

    def start(self) -> None:
        """From now on, on this thread and on those that begin later.  Errors: `ImportError` without CuPy."""
        import cupy

        self._folder = os.path.dirname(cupy.__file__ or "")
        hide(self._folder)
        search.ignored.append(self._live)
        self._hook = _hook_class(cupy.cuda.MemoryHook)(self._live)
        self._enter()
        if threading.getprofile() is None:
            threading.setprofile(self._first_event)

    def stop(self) -> None:
        """New memory is not tracked any more."""
        if threading.getprofile() == self._first_event:
            threading.setprofile(None)
        if threading.get_ident() in self._entered:
            self._hook.__exit__(None, None, None)
        self._hook.on = False
        unhide(self._folder)

    def settle(self) -> None:
        """Nothing to do: what the pool holds is not tracked."""

    def sweep(self) -> None:
        """Nothing to do: frees are heard."""

    def _enter(self) -> None:
        self._entered.append(threading.get_ident())
        self._hook.__enter__()

    def _first_event(self, frame: object, event: str, arg: object) -> None:
        """A thread has begun."""
        sys.setprofile(None)
        if self._hook.on:
            self._enter()


def _hook_class(base: type) -> type:
    """A subclass of `cupy.cuda.MemoryHook`, which is known at run time only."""

    def __init__(self: Any, live: dict[tuple[int, int], Lifetime[int]]) -> None:
        self.live = live
        self.on = True

    def malloc_postprocess(self: Any, **about: Any) -> None:
        if self.on and about["mem_ptr"]:
            key = about["device_id"], about["mem_ptr"]
            self.live[key] = Lifetime(
                about["mem_ptr"], kind="cupy.memory", nbytes=about["mem_size"], label=f"cuda:{about['device_id']}"
            )

    def free_postprocess(self: Any, **about: Any) -> None:
        self.live.pop((about["device_id"], about["mem_ptr"]), None)

    members = {
        "name": "lifetimes",
        "__init__": __init__,
        "malloc_postprocess": malloc_postprocess,
        "free_postprocess": free_postprocess,
    }
    return type("LifetimesHook", (base,), members)


_tracker: type[Tracker] = LibraryTracker
