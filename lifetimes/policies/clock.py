"""Second chance: a queue in order of arrival, where a key that was used meanwhile goes round once more.

From F. J. Corbató, "A Paging Experiment with the Multics System" (1968).  A use sets a bit and moves nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from lifetimes.policies._shared import held_already, must

if TYPE_CHECKING:
    from lifetimes.policies.protocol import Policy

__all__ = ["ClockPolicy"]


class ClockPolicy:
    """The oldest key that was not used since it came, or since it was last spared, goes first.  Sizes are not looked at.

    Complexity: `touch`, `add`, `remove` O(1); `candidates` O(1) for each key it gives, and O(1) for each use it forgets.
    Locks: none, the owner's lock covers it.

    >>> clock = ClockPolicy()
    >>> for key in (1, 2, 3): clock.add(key, nbytes=64)
    >>> clock.touch(1)
    >>> list(clock.candidates())
    [2, 3, 1]
    """

    __slots__ = ("_order", "_used", "touch")

    touch: Callable[[int], object]
    """``key`` was just used.  The bound `set.add`; it stays valid, so that it may be kept."""

    def __init__(self) -> None:
        self._order: OrderedDict[int, None] = OrderedDict()  # Invariant: the hand is at the front
        self._used: set[int] = set()  # Invariant: a subset of the held keys, unless something else was touched
        self.touch = self._used.add

    def add(self, key: int, nbytes: int, cost: float = 1.0) -> None:
        if key in self._order:
            raise held_already(key)
        self._used.discard(key)
        self._order[key] = None

    def remove(self, key: int) -> None:
        self._order.pop(key, None)
        self._used.discard(key)

    def candidates(self) -> Iterator[int]:
        """The held keys in the order in which the hand finds them.  What it passes, used or kept, goes to the back.

        As the protocol has it: what others do between two steps is seen at the next.
        """
        order, used = self._order, self._used
        left = len(order)
        given: set[int] = set()
        while left and order:  # the way of a caller that removes what it is given
            key = next(iter(order))
            if key in used:
                used.discard(key)
                order.move_to_end(key)
                continue
            left -= 1
            yield key
            if key in order:
                given.add(key)
                order.move_to_end(key)
                break
        again = 0  # keys in a row that were given before
        while left and again < len(order):
            key = next(iter(order))
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
                if key not in order:
                    given.discard(key)
                    continue
            order.move_to_end(key)

    def __contains__(self, key: int, /) -> bool:
        return key in self._order

    def __len__(self) -> int:
        return len(self._order)

    def clear(self) -> None:
        self._order.clear()
        self._used.clear()

    def check_invariants(self) -> None:
        """Complexity: O(n).  Errors: `InternalError` that says what is broken."""
        must(self._used <= self._order.keys(), "only a held key was used", self._used - self._order.keys())

    def __repr__(self) -> str:
        return f"<ClockPolicy of {len(self)}>"


if TYPE_CHECKING:
    _conforms: Policy = ClockPolicy()
