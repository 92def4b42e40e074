"""SIEVE: as the clock, but nothing is moved: a key that was used keeps its place, and the hand goes on to newer ones.

From Y. Zhang, J. Yang, Y. Yue, Y. Vigfusson and K. V. Rashmi, "SIEVE is Simpler than LRU" (NSDI 2024).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from lifetimes.policies._shared import held_already, must

if TYPE_CHECKING:
    from lifetimes.policies.protocol import Policy

__all__ = ["SievePolicy"]


class SievePolicy:
    """From the hand towards newer keys, the first that was not used since the hand last passed goes first.

    New keys come in front of the hand, so what nobody uses again is found soon.  Sizes are not looked at.

    Complexity: `touch`, `add`, `remove` O(1); `candidates` O(1) for each key it gives, and O(1) for each use it forgets.
    Locks: none, the owner's lock covers it.

    >>> sieve = SievePolicy()
    >>> for key in (1, 2, 3): sieve.add(key, nbytes=64)
    >>> sieve.touch(1)
    >>> list(sieve.candidates())
    [2, 3, 1]
    """

    # Note: the hand.
    # All keys, oldest first, are ``_behind`` followed by ``_ahead``, and the hand is between the two.  A key that is
    # spared goes from the front of one to the end of the other, so its place among the others is the same.  When nothing
    # is ahead, the hand starts over: what was behind is ahead.  Rejected: a list of links, several times as slow.

    __slots__ = ("_ahead", "_behind", "_used", "touch")

    touch: Callable[[int], object]
    """``key`` was just used.  The bound `set.add`; it stays valid, so that it may be kept."""

    def __init__(self) -> None:
        # Invariant: disjoint; _ahead is empty only if _behind is.
        self._behind: OrderedDict[int, None] = OrderedDict()
        self._ahead: OrderedDict[int, None] = OrderedDict()
        self._used: set[int] = set()  # Invariant: a subset of the held keys, unless something else was touched
        self.touch = self._used.add

    def add(self, key: int, nbytes: int, cost: float = 1.0) -> None:
        if key in self._ahead or key in self._behind:
            raise held_already(key)
        self._used.discard(key)
        self._ahead[key] = None

    def remove(self, key: int) -> None:
        self._behind.pop(key, None)
        self._ahead.pop(key, None)
        self._used.discard(key)
        if not self._ahead:
            self._start_over()

    def candidates(self) -> Iterator[int]:
        """The held keys in the order in which the hand finds them.  It goes past what was used, or is kept.

        As the protocol has it: what others do between two steps is seen at the next.
        """
        used = self._used
        left = len(self)
        given: set[int] = set()
        while left and self._ahead:  # the way of a caller that removes what it is given
            key = next(iter(self._ahead))
            if key in used:
                used.discard(key)
                self._spare(key)
                continue
            left -= 1
            yield key
            if key in self:
                given.add(key)
                self._spare(key)
                break
        again = 0  # keys in a row that were given before
        while left and again < len(self):
            if not self._ahead:
                self._start_over()
            key = next(iter(self._ahead))
            if key in used:
                used.discard(key)
                again = 0
            elif key in given:
                again += 1
            else:
                again = 0
                left -= 1
                given.add(key)
                yield key
                if key not in self:
                    given.discard(key)
                    continue
            self._spare(key)

    def _spare(self, key: int) -> None:
        ahead, behind = self._ahead, self._behind
        if key in ahead:
            behind[key] = None  # two neighbours with no call between them, so Ctrl-C finds the key in one of the two
            del ahead[key]
        if not ahead:
            self._start_over()

    def _start_over(self) -> None:
        self._ahead, self._behind = self._behind, self._ahead

    def __contains__(self, key: int, /) -> bool:
        return key in self._ahead or key in self._behind

    def __len__(self) -> int:
        return len(self._ahead) + len(self._behind)

    def clear(self) -> None:
        self._ahead.clear()
        self._behind.clear()
        self._used.clear()

    def check_invariants(self) -> None:
        """Complexity: O(n).  Errors: `InternalError` that says what is broken."""
        ahead, behind = self._ahead.keys(), self._behind.keys()
        must(not ahead & behind, "a key stands on one side of the hand", ahead & behind)
        must(bool(ahead) or not behind, "the hand has something before it", behind)
        must(self._used <= ahead | behind, "only a held key was used", self._used - ahead - behind)

    def __repr__(self) -> str:
        return f"<SievePolicy of {len(self)}>"


if TYPE_CHECKING:
    _conforms: Policy = SievePolicy()
