"""The eviction policy protocol: an order over keys, and nothing else.

A policy moves no bytes, does no I/O and holds no locks: the manager's lock covers it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

__all__ = ["Policy"]


@runtime_checkable
class Policy(Protocol):
    """Which entry goes next when memory is short.

    ``touch`` may be an attribute that holds a C method (`OrderedDict.move_to_end`, `set.add`): it is called once per use.
    An entry that is found pinned is taken out with `remove` and put back with `add` at its last unpin.
    """

    touch: Callable[[int], object]
    """must: ``key``, which the policy holds, has just been used."""

    def add(self, key: int, nbytes: int, cost: float = 1.0) -> None:
        """must: hold ``key`` as just used.  Errors: `KeyError` when it is held already (nothing changes)."""
        ...

    def remove(self, key: int) -> None:
        """must: forget ``key``; a key that is not held is ignored."""
        ...

    def candidates(self) -> Iterator[int]:
        """must: the held keys, first to evict first.  The iterator stays valid while the key it gave last is removed."""
        ...

    def __contains__(self, key: int, /) -> bool:
        """must."""
        ...

    def __len__(self) -> int:
        """must."""
        ...

    def clear(self) -> None:
        """must."""
        ...
