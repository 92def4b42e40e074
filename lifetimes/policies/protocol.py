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

    @property
    def touch(self) -> Callable[[int], object]:
        """must: ``key``, which the policy holds, has just been used.  A method, or an attribute that can be called.

        Whoever keeps ``policy.touch`` may call it as long as the policy lives, past `clear`.
        """
        ...

    def add(self, key: int, nbytes: int, cost: float = 1.0) -> None:
        """must: hold ``key`` as just used.  Errors: `KeyError` when it is held already (nothing changes)."""
        ...

    def remove(self, key: int) -> None:
        """must: forget ``key``; a key that is not held is ignored.

        The removal of the key that `candidates` gave last is an eviction, which a policy may remember; any other is not.
        """
        ...

    def candidates(self) -> Iterator[int]:
        """must: the held keys, first to evict first.

        The policy may change in any way between two steps of the iterator.  It gives each key that stays held once, no key
        that is not held, and no more keys than were held at the start.  A key that is still held when the next one is
        asked for has been passed over; so ask for no more than is wanted.
        """
        ...

    def __contains__(self, key: int, /) -> bool:
        """must."""
        ...

    def __len__(self) -> int:
        """must."""
        ...

    def clear(self) -> None:
        """must: forget everything.  A ``touch`` that was kept stays right."""
        ...
