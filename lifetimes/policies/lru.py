"""Least recently used: an ordered dictionary, whose C method is the whole cost of a use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import filterfalse, islice
from typing import TYPE_CHECKING

from lifetimes.policies._shared import held_already

if TYPE_CHECKING:
    from lifetimes.policies.protocol import Policy

__all__ = ["LRUPolicy"]


class LRUPolicy:
    """The key that was used longest ago goes first.  Sizes and costs are not looked at.

    Complexity: `touch`, `add`, `remove` O(1); `candidates` O(1) for each key it gives, amortised, whether the caller
    removes the keys or passes them over.  Locks: none, the owner's lock covers it.

    >>> lru = LRUPolicy()
    >>> for key in (1, 2, 3): lru.add(key, nbytes=64)
    >>> lru.touch(1)
    >>> list(lru.candidates())
    [2, 3, 1]
    """

    __slots__ = ("_order", "touch")

    touch: Callable[[int], object]
    """``key`` was just used.  The bound `move_to_end`; it stays valid, so that it may be kept."""

    def __init__(self) -> None:
        self._order: OrderedDict[int, None] = OrderedDict()  # Invariant: oldest use first
        self.touch = self._order.move_to_end

    def add(self, key: int, nbytes: int, cost: float = 1.0) -> None:
        if key in self._order:
            raise held_already(key)
        self._order[key] = None

    def remove(self, key: int) -> None:
        self._order.pop(key, None)

    def candidates(self) -> Iterator[int]:
        """The held keys, least recently used first.

        The order may change in any way between two steps.  A key that is not held at its turn is not given, one that
        was passed over and kept is not given again, and no more keys are given than were held at the start.  A caller
        that removes each key it is given sees the order of the moment at every step; to one that keeps some, up to as
        many keys as it kept may be given in the order they had a little earlier.
        """
        # An ordered dictionary cannot be iterated while it changes, and a copy of a large one costs more than the few
        # victims that are wanted.  So each look starts at the front again; for a caller that removes what it is given,
        # that is all there is to it.
        order = self._order
        left = len(order)
        while left and order:
            first = next(iter(order))
            left -= 1
            yield first
            if first in order:
                break
        else:
            return
        # Here something is kept, and a look passes over what was given and is still there.  That would be quadratic for
        # a caller who keeps many; hence a look takes as many fresh keys as it passes over, which pays for it.  Rejected:
        # one key a look (quadratic), a list of our own (a touch in Python).  The look is one C call, with no Python code
        # inside that could change the order under it.
        given = {first}
        while left:
            fresh = list(islice(filterfalse(given.__contains__, order), min(left, len(given) or 1)))
            if not fresh:
                return
            for key in fresh:
                if key in order:
                    left -= 1
                    given.add(key)
                    yield key
                    if key not in order:
                        given.discard(key)

    def __contains__(self, key: int, /) -> bool:
        return key in self._order

    def __len__(self) -> int:
        return len(self._order)

    def clear(self) -> None:
        self._order.clear()

    def __repr__(self) -> str:
        return f"<LRUPolicy of {len(self)}>"


if TYPE_CHECKING:
    _conforms: Policy = LRUPolicy()
