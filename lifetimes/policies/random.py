"""Any key: what every other policy has to be better than."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING

from lifetimes.policies._shared import held_already, must

if TYPE_CHECKING:
    from lifetimes.policies.protocol import Policy

__all__ = ["RandomPolicy"]


class RandomPolicy:
    """Each held key is as likely as any other.  The same ``seed`` and the same calls give the same keys.

    Complexity: `touch`, `add`, `remove` O(1); `candidates` O(1) for each key it gives, and O(n) once when more than half were
    given and kept.  Locks: none, the owner's lock covers it.

    >>> policy = RandomPolicy(seed=1)
    >>> for key in range(5): policy.add(key, nbytes=64)
    >>> sorted(policy.candidates())
    [0, 1, 2, 3, 4]
    """

    __slots__ = ("_keys", "_place", "_random", "_seed", "touch")

    touch: Callable[[int], object]
    """``key`` was just used, which changes nothing.  A C method that only looks; it stays valid, so that it may be kept."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._random = Random(seed)
        # Invariant: _keys[_place[key]] == key, for exactly the held keys.
        self._keys: list[int] = []
        self._place: dict[int, int] = {}
        self.touch = self._place.get

    def add(self, key: int, nbytes: int, cost: float = 1.0) -> None:
        if key in self._place:
            raise held_already(key)
        self._place[key] = len(self._keys)
        self._keys.append(key)

    def remove(self, key: int) -> None:
        place = self._place.pop(key, None)
        if place is None:
            return
        last = self._keys.pop()
        if last != key:  # it fills the gap
            self._keys[place] = last
            self._place[last] = place

    def candidates(self) -> Iterator[int]:
        """The held keys in random order.  As the protocol has it: what others do between two steps is seen at the next."""
        left = len(self._keys)
        given: set[int] = set()
        while left and 2 * len(given) <= len(self._keys):
            if not self._keys:
                return
            key = self._random.choice(self._keys)
            if key in given:
                continue
            left -= 1
            given.add(key)
            yield key
            if key not in self._place:
                given.discard(key)
        rest = [key for key in self._keys if key not in given]
        self._random.shuffle(rest)
        for key in rest:
            if left and key in self._place:
                left -= 1
                yield key

    def __contains__(self, key: int, /) -> bool:
        return key in self._place

    def __len__(self) -> int:
        return len(self._keys)

    def clear(self) -> None:
        self._keys.clear()
        self._place.clear()
        self._random.seed(self._seed)

    def check_invariants(self) -> None:
        """Complexity: O(n).  Errors: `InternalError` that says what is broken."""
        must(
            {key: place for place, key in enumerate(self._keys)} == self._place, "each key knows its place", self._place
        )

    def __repr__(self) -> str:
        return f"<RandomPolicy of {len(self)}>"


if TYPE_CHECKING:
    _conforms: Policy = RandomPolicy()
