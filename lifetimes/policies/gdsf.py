"""Greedy-dual size with frequency: what is large, cheap to bring back and seldom used goes first.

From L. Cherkasova, "Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency Caching Policy" (HP Labs, 1998).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Final

from lifetimes.policies._shared import held_already, must

if TYPE_CHECKING:
    from lifetimes.policies.protocol import Policy

__all__ = ["GDSFPolicy"]

NOTED: Final = 1 << 14
"""Uses that are noted until somebody counts them."""


class _Held:
    __slots__ = ("key", "rank", "used", "uses", "weight")

    def __init__(self, key: int, weight: float, rank: float, used: int) -> None:
        self.key = key
        self.weight = weight
        self.uses = 1
        self.rank = rank
        self.used = used  # when it was used last


class GDSFPolicy:
    """A key ranks at ``age + uses * cost / nbytes`` since its last use, and the lowest goes first; of equals the one that was
    not used for longest.

    The age is the rank of what was evicted last, so a key that was used often long ago does not stay for ever.  What is
    taken out and put back starts with one use again.

    Complexity: `touch` O(1); `add` O(log n), `remove` O(1), and O(1) for each use since the last of them; `candidates` O(log n)
    for each key that is evicted and for each that was used since, and O(n log n) once if a key is kept.  Locks: none, the
    owner's lock covers it.

    >>> gdsf = GDSFPolicy()
    >>> for key, nbytes in ((1, 64), (2, 4096), (3, 64)): gdsf.add(key, nbytes)
    >>> gdsf.touch(1)
    >>> list(gdsf.candidates())
    [2, 3, 1]
    """

    # Note: uses are counted later.
    # Ranking takes several times as long as noting, so `touch` is the append of a list of bounded length, and whoever asks
    # for the order, or changes it, counts what is there first: a millisecond or two at most.  If more uses come in a row
    # with no miss between, the oldest of them are not counted.

    # Note: ranks only rise.
    # A use raises the rank of its key and does not tell the heap.  So what the heap says of a key is at most its rank: a
    # key that comes to the top with an old rank goes back in with the new one, and one with its own rank is the lowest.

    __slots__ = ("_age", "_heap", "_held", "_noted", "_now", "_offered", "touch")

    touch: Callable[[int], object]
    """``key`` was just used.  The bound append of the list of noted uses; it stays valid, so that it may be kept."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}
        # Invariant: one item for each held key, at most at its rank; items of what was removed are dropped on the way.
        self._heap: list[tuple[float, int, _Held]] = []
        self._age = 0.0
        self._now = 0  # uses so far
        self._noted: deque[int] = deque(maxlen=NOTED)
        self.touch = self._noted.append
        self._offered: int | None = None  # what a pass gave last: if it is removed, it is evicted

    def add(self, key: int, nbytes: int, cost: float = 1.0) -> None:
        if key in self._held:
            raise held_already(key)
        self._count_uses()
        weight = cost / nbytes if nbytes else cost
        self._now = now = self._now + 1
        held = _Held(key, weight, self._age + weight, now)
        heappush(self._heap, (held.rank, now, held))  # first: an item of what is not held does no harm
        self._held[key] = held

    def remove(self, key: int) -> None:
        self._count_uses()
        held = self._held.pop(key, None)
        if held is not None and key == self._offered:
            self._age = held.rank
            self._offered = None
        if len(self._heap) > 2 * len(self._held) + 64:
            self._heap = [(each.rank, each.used, each) for each in self._held.values()]
            heapify(self._heap)

    def candidates(self) -> Iterator[int]:
        """The held keys, lowest rank first.  A caller that removes each key it is given sees the ranks of the moment; to
        one that keeps some, the others are given in the order of that moment.
        """
        left = len(self._held)
        while left:
            held = self._lowest()
            if held is None:
                return
            left -= 1
            self._offered = held.key
            yield held.key
            if self._held.get(held.key) is held:
                break
        else:
            return
        self._count_uses()
        for other in sorted(self._held.values(), key=_by_rank):
            if other is not held and self._held.get(other.key) is other and left:
                left -= 1
                self._offered = other.key
                yield other.key

    def _count_uses(self) -> None:
        noted = self._noted
        while noted:
            held = self._held.get(noted.popleft())
            if held is not None:
                held.uses = uses = held.uses + 1
                held.rank = self._age + uses * held.weight
                held.used = self._now = self._now + 1

    def _lowest(self) -> _Held | None:
        self._count_uses()
        heap = self._heap
        while heap:
            _, used, held = heap[0]
            if self._held.get(held.key) is not held:
                heappop(heap)
            elif used != held.used:
                heapreplace(heap, (held.rank, held.used, held))
            else:
                return held
        return None

    def __contains__(self, key: int, /) -> bool:
        return key in self._held

    def __len__(self) -> int:
        return len(self._held)

    def clear(self) -> None:
        self._held.clear()
        self._heap.clear()
        self._noted.clear()
        self._age = 0.0
        self._offered = None

    def check_invariants(self) -> None:
        """Complexity: O(n).  Errors: `InternalError` that says what is broken."""
        live = [(rank, used, held) for rank, used, held in self._heap if self._held.get(held.key) is held]
        must(sorted(held.key for _, _, held in live) == sorted(self._held), "the heap has each held key once", live)
        must(all(rank <= held.rank for rank, _, held in live), "no key ranks below what the heap says", live)
        must(len(self._heap) <= 2 * len(self._held) + 64, "few items of the heap are of keys that went", self._heap)

    def __repr__(self) -> str:
        return f"<GDSFPolicy of {len(self)}>"


def _by_rank(held: _Held) -> tuple[float, int]:
    return held.rank, held.used


if TYPE_CHECKING:
    _conforms: Policy = GDSFPolicy()
