"""The order of `lru`, against a list in order of use, and what a pass over its candidates costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis.stateful import invariant

from lifetimes.policies import lru
from lifetimes.policies.lru import LRUPolicy
from lifetimes.policies.protocol import Policy
from lifetimes.testing.conformance.policies import PolicyConformance, PolicyMachine


class LRUMachine(PolicyMachine):
    """The naive model: a list, to whose end each use moves the key."""

    @invariant()
    def oldest_use_first(self) -> None:
        assert list(self.policy.candidates()) == self.held


class TestLRU(PolicyConformance):
    machine = LRUMachine

    def make(self) -> Policy:
        return LRUPolicy()


def filled(count: int) -> LRUPolicy:
    policy = LRUPolicy()
    for key in range(count):
        policy.add(key, 1)
    return policy


def test_evicting_sees_uses_between_two_steps() -> None:
    policy = filled(6)
    order = []
    for key in policy.candidates():
        policy.remove(key)
        order.append(key)
        if key == 1:
            policy.touch(2)
            policy.add(6, 1)
    assert order == [0, 1, 3, 4, 5, 2]  # six were held at the start: 6 is left to the next pass
    assert list(policy.candidates()) == [6]


def test_every_key_left_alone_is_given_whatever_happens_to_the_others() -> None:
    policy = filled(300)
    left_alone = {key for key in range(300) if key % 4 == 0}
    given = []
    for step, key in enumerate(policy.candidates()):
        given.append(key)
        policy.touch(299)
        if key % 4 == 1:
            policy.remove(key)
        if key % 4 == 2:
            policy.remove(key)
            policy.add(key, 1)
        policy.add(1000 + step, 1)
    assert left_alone <= set(given)
    assert len(given) <= 300


def test_touch_is_the_c_method_itself() -> None:
    policy = filled(1)
    assert type(policy.touch).__name__ == "builtin_function_or_method"


def test_a_touch_of_what_is_not_held_says_so() -> None:
    policy = filled(2)
    with pytest.raises(KeyError):
        policy.touch(5)
    assert list(policy.candidates()) == [0, 1]


class Looks:
    """Counts the keys that a pass looks at, in the place of `filterfalse`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setattr(lru, "filterfalse", self.filterfalse)

    def filterfalse(self, passed_over: Any, keys: Iterable[int]) -> Iterator[int]:
        for key in keys:
            self.count += 1
            if not passed_over(key):
                yield key


def test_a_victim_is_found_without_going_through_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, looks = filled(100_000), Looks(monkeypatch)
    for key in islice(policy.candidates(), 10):
        policy.remove(key)
    assert looks.count <= 11


@pytest.mark.parametrize("evict", ["none", "every second", "after the first thousand"])
def test_keys_that_are_kept_cost_no_square(monkeypatch: pytest.MonkeyPatch, evict: str) -> None:
    policy, looks = filled(10_000), Looks(monkeypatch)
    for position, key in enumerate(policy.candidates()):
        if (evict == "every second" and position % 2) or (evict == "after the first thousand" and position > 1000):
            policy.remove(key)
    assert position == 9999
    assert looks.count <= 4 * 10_000
