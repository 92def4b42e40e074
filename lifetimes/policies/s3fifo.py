"""S3-FIFO: a small queue that new keys pass through, a main one for those that were used there, and a memory of the rest.

From J. Yang, Y. Zhang, Z. Qiu, Y. Yue and K. V. Rashmi, "FIFO Queues are All You Need for Cache Eviction" (SOSP 2023).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lifetimes.policies._shared import held_already, must

if TYPE_CHECKING:
    from lifetimes.policies.protocol import Policy

__all__ = ["S3FIFOPolicy"]

SMALL_SHARE: Final = 0.1
"""The share of the capacity that the small queue has at least, before keys of the main one go."""
GHOST_SHARE: Final = 0.9
"""How many bytes of evicted keys are remembered, as a share of the capacity."""
PROMOTE: Final = 2
"""Uses in the small queue after which a key goes to the main one."""
MOST: Final = 3
"""Uses are counted up to this number."""


class _Held:
    __slots__ = ("in_main", "nbytes", "uses")

    def __init__(self, nbytes: int, in_main: bool) -> None:
        self.nbytes = nbytes
        self.in_main = in_main
        self.uses = 0


class S3FIFOPolicy:
    """Keys that are used once leave by a short way and cannot push out those that are used again.

    A key comes into the small queue.  At its end it is evicted, and remembered for a while, unless it was used twice
    there: then it goes to the main queue, as does a key that comes back while it is remembered.  At the end of the main
    queue a key goes round once more for each use, up to three.  Before anything was evicted, keys that come when the small
    queue is full go to the main one.  An entry found pinned counts as evicted when it is taken out, so it comes back into
    the main queue.

    ``capacity`` is the number of bytes that the shares are of.  None takes the bytes that are held when a pass begins,
    which is when memory is short, so it follows a limit that changes.

    Complexity: `touch`, `add`, `remove` O(1) amortised; `candidates` O(1) for each key it gives, and O(1) for each use it
    forgets.  Memory: the remembered keys, too.  Locks: none, the owner's lock covers it.

    >>> s3fifo = S3FIFOPolicy()
    >>> for key in (1, 2, 3): s3fifo.add(key, nbytes=64)
    >>> s3fifo.touch(1); s3fifo.touch(1)
    >>> list(s3fifo.candidates())
    [2, 3, 1]
    """

    __slots__ = (
        "_capacity", "_filling", "_ghost", "_ghost_bytes", "_held", "_main", "_main_bytes", "_offered", "_small",
        "_small_bytes", "capacity",
    )  # fmt: skip

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        self._capacity = capacity or 0
        # Invariant: _small and _main are disjoint and have the keys of _held between them, oldest first.
        self._held: dict[int, _Held] = {}
        self._small: OrderedDict[int, None] = OrderedDict()
        self._main: OrderedDict[int, None] = OrderedDict()
        self._small_bytes = 0
        self._main_bytes = 0
        self._ghost: OrderedDict[int, int] = OrderedDict()  # key -> bytes, oldest first; none of them is held
        self._ghost_bytes = 0
        self._filling = True  # nothing was evicted yet
        self._offered: int | None = None  # what a pass gave last: if it is removed, it is evicted

    # A count and what it counts change in neighbouring lines with no call between, so Ctrl-C finds both or none.

    def touch(self, key: int) -> None:
        """``key`` was just used."""
        held = self._held[key]
        if held.uses < MOST:
            held.uses += 1

    def add(self, key: int, nbytes: int, cost: float = 1.0) -> None:
        if key in self._held:
            raise held_already(key)
        remembered = key in self._ghost
        if remembered:
            size = self._ghost[key]
            del self._ghost[key]
            self._ghost_bytes -= size
        self._forget()
        held = _Held(nbytes, remembered)
        if remembered:
            self._held[key] = held
            self._main[key] = None
            self._main_bytes += nbytes
        else:
            self._held[key] = held
            self._small[key] = None
            self._small_bytes += nbytes

    def remove(self, key: int) -> None:
        held = self._held.get(key)
        if held is None:
            return
        if held.in_main:
            del self._held[key]
            del self._main[key]
            self._main_bytes -= held.nbytes
        else:
            del self._held[key]
            del self._small[key]
            self._small_bytes -= held.nbytes
            if key == self._offered:
                self._ghost[key] = held.nbytes
                self._ghost_bytes += held.nbytes
        if key == self._offered:
            self._offered = None

    def candidates(self) -> Iterator[int]:
        """The held keys: from the small queue, or from the main one when that has more than its share.

        As the protocol has it: what others do between two steps is seen at the next.  What is kept goes to the main queue.
        """
        self._size_up()
        left = len(self._held)
        given: set[int] = set()
        again = 0  # keys of the main queue in a row that were given before
        from_main: bool | None = None  # chosen anew for each key that is given
        while left and self._held:
            if from_main is None or not (from_main or self._small):
                most = self._capacity - int(self._capacity * SMALL_SHARE)
                from_main = not self._small or self._main_bytes > most
            if from_main and again >= len(self._main):  # nothing new there
                if not self._small:
                    return
                from_main = False
            key = next(iter(self._main if from_main else self._small))
            held = self._held[key]
            if from_main and held.uses:
                held.uses -= 1
                again = 0
            elif not from_main and held.uses >= PROMOTE:
                held.uses = 0
                again = 0
            elif key in given:
                again = again + 1 if from_main else 0
            else:
                again = 0
                left -= 1
                given.add(key)
                from_main = None
                self._offered = key
                yield key
                if self._held.get(key) is not held:
                    if key not in self._held:
                        given.discard(key)
                    continue
            self._to_main(key, held)

    def _size_up(self) -> None:
        """Learn the capacity, and at the first pass move what came when the small queue was full already."""
        if self.capacity is None:
            self._capacity = self._small_bytes + self._main_bytes
        if self._filling and self._held:
            small = int(self._capacity * SMALL_SHARE)
            came = 0
            for key in list(self._small):
                held = self._held[key]
                if came >= small:
                    self._to_main(key, held)
                else:
                    came += held.nbytes
            self._filling = False

    def _to_main(self, key: int, held: _Held) -> None:
        """To the end of the main queue, from wherever it is."""
        if held.in_main:
            self._main.move_to_end(key)
        else:
            held.in_main = True
            del self._small[key]
            self._small_bytes -= held.nbytes
            self._main[key] = None
            self._main_bytes += held.nbytes

    def _forget(self) -> None:
        """Remember no more than the share.  Only here, so that a key is found though others were evicted for it just now."""
        most = int(self._capacity * GHOST_SHARE)
        while self._ghost_bytes > most:
            oldest = next(iter(self._ghost))
            size = self._ghost[oldest]
            del self._ghost[oldest]
            self._ghost_bytes -= size

    def __contains__(self, key: int, /) -> bool:
        return key in self._held

    def __len__(self) -> int:
        return len(self._held)

    def clear(self) -> None:
        self._held.clear()
        self._small.clear()
        self._main.clear()
        self._ghost.clear()
        self._small_bytes = self._main_bytes = self._ghost_bytes = 0
        self._filling = True
        self._offered = None

    def check_invariants(self) -> None:
        """Complexity: O(n).  Errors: `InternalError` that says what is broken."""
        small, main, ghost = self._small.keys(), self._main.keys(), self._ghost.keys()
        must(not small & main and small | main == self._held.keys(), "a held key stands in one queue", (small, main))
        must(not ghost & self._held.keys(), "a key that is remembered is not held", ghost & self._held.keys())
        must({key for key, held in self._held.items() if held.in_main} == set(main), "a key knows its queue", main)
        must(all(0 <= held.uses <= MOST for held in self._held.values()), "uses are counted up to three", self._held)
        counted = [sum(self._held[key].nbytes for key in queue) for queue in (small, main)] + [
            sum(self._ghost.values())
        ]
        kept = [self._small_bytes, self._main_bytes, self._ghost_bytes]
        must(counted == kept, "the sums of bytes are right", (counted, kept))

    def __repr__(self) -> str:
        return f"<S3FIFOPolicy of {len(self._small)} + {len(self._main)}, remembering {len(self._ghost)}>"


if TYPE_CHECKING:
    _conforms: Policy = S3FIFOPolicy()
