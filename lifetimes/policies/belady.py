"""Belady's choice: the key whose next use is furthest away.  It has to be told the future, so it is for replays of traces.

From L. A. Belady, "A study of replacement algorithms for a virtual-storage computer" (1966).
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from lifetimes.policies._shared import held_already, must

if TYPE_CHECKING:
    from lifetimes.policies.protocol import Policy

__all__ = ["BeladyPolicy"]


class BeladyPolicy:
    """The key that will not be used for longest goes first; of those that will never be, the one used longest ago.

    Before each `touch` and `add`, set ``next_use`` to the position in the trace at which the key that comes will be used
    the time after; infinity is never.  Where nobody does, all keys are never used again, and it is `lru`.

    For keys of one size no order misses less.  For sizes that differ it is a good line to compare with, and not a bound:
    two small keys may be worth more than one large key that is used a little sooner.

    Complexity: `touch`, `add` O(log n); `remove` O(1); `candidates` O(log n) for each key that is evicted, and O(n log n) once
    if a key is kept.  Locks: none, the owner's lock covers it.

    >>> belady = BeladyPolicy()
    >>> for key, next_use in ((1, 30), (2, 10), (3, 20)):
    ...     belady.next_use = next_use
    ...     belady.add(key, nbytes=64)
    >>> list(belady.candidates())
    [1, 3, 2]
    """

    __slots__ = ("_heap", "_held", "_now", "next_use")

    def __init__(self) -> None:
        self.next_use: float = inf
        self._now = 0  # uses so far
        self._held: dict[int, tuple[float, int]] = {}  # key -> (minus its next use, when it was used last)
        # Invariant: an item for each held key; all others are out of date, and dropped on the way.
        self._heap: list[tuple[float, int, int]] = []

    def touch(self, key: int) -> None:
        """``key`` was just used, and will be again at ``next_use``."""
        if key not in self._held:
            raise KeyError(key)
        self._put(key)

    def add(self, key: int, nbytes: int, cost: float = 1.0) -> None:
        if key in self._held:
            raise held_already(key)
        self._put(key)

    def _put(self, key: int) -> None:
        self._now = now = self._now + 1
        heappush(self._heap, (-self.next_use, now, key))  # first: an item that is out of date does no harm
        self._held[key] = (-self.next_use, now)
        self.next_use = inf
        self._tidy()

    def remove(self, key: int) -> None:
        self._held.pop(key, None)
        self._tidy()

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self._held) + 64:
            self._heap = [(minus, used, key) for key, (minus, used) in self._held.items()]
            heapify(self._heap)

    def candidates(self) -> Iterator[int]:
        """The held keys, furthest next use first.  A caller that removes each key it is given sees the order of the moment;
        to one that keeps some, the others are given in the order of that moment.
        """
        left = len(self._held)
        while left:
            key = self._furthest()
            if key is None:
                return
            left -= 1
            yield key
            if key in self._held:
                break
        else:
            return
        for other in sorted(self._held, key=self._held.__getitem__):
            if other != key and other in self._held and left:
                left -= 1
                yield other

    def _furthest(self) -> int | None:
        heap = self._heap
        while heap:
            minus, used, key = heap[0]
            if self._held.get(key) == (minus, used):
                return key
            heappop(heap)
        return None

    def __contains__(self, key: int, /) -> bool:
        return key in self._held

    def __len__(self) -> int:
        return len(self._held)

    def clear(self) -> None:
        self._held.clear()
        self._heap.clear()
        self.next_use = inf

    def check_invariants(self) -> None:
        """Complexity: O(n).  Errors: `InternalError` that says what is broken."""
        live = {key for minus, used, key in self._heap if self._held.get(key) == (minus, used)}
        must(live == self._held.keys(), "the heap has each held key", live ^ self._held.keys())
        must(len(self._heap) <= 2 * len(self._held) + 65, "few items of the heap are out of date", len(self._heap))

    def __repr__(self) -> str:
        return f"<BeladyPolicy of {len(self)}>"


if TYPE_CHECKING:
    _conforms: Policy = BeladyPolicy()
