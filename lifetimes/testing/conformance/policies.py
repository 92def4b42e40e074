"""What every eviction policy must do, whatever its order is.

Derive from `PolicyConformance` and say how an empty one is made; compare the order itself with a naive model, by a
`machine` of your own::

    class TestMine(PolicyConformance):
        def make(self):
            return MyPolicy()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from lifetimes.policies.protocol import Policy

__all__ = ["PolicyConformance", "PolicyMachine"]

KEYS = st.integers(1, 20)


class PolicyMachine(RuleBasedStateMachine):
    """Checks any sequence of calls, with passes over the candidates left open between them, against a list of keys.

    A subclass for one policy checks its order too: `held` is in the order of last use.
    """

    def __init__(self, make: Callable[[], Policy]) -> None:
        super().__init__()
        self.policy = make()
        self.kept_touch = self.policy.touch
        self.held: list[int] = []
        self.passes: list[tuple[Iterator[int], int, int]] = []  # each with its length at most, and how many it gave

    @rule(key=KEYS, nbytes=st.sampled_from([0, 1, 256, 2**40]), cost=st.sampled_from([0.0, 1.0, 1e9]))
    def add(self, key: int, nbytes: int, cost: float) -> None:
        if key in self.held:
            with pytest.raises(KeyError):
                self.policy.add(key, nbytes, cost)
        else:
            self.policy.add(key, nbytes, cost)
            self.held.append(key)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def touch(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.held)))
        self.kept_touch(key)
        self.held.remove(key)
        self.held.append(key)

    @rule(key=KEYS)
    def remove(self, key: int) -> None:
        self.policy.remove(key)
        if key in self.held:
            self.held.remove(key)

    @rule()
    def clear(self) -> None:
        self.policy.clear()
        self.held.clear()

    @rule()
    def begin_pass(self) -> None:
        self.passes = [*self.passes[-2:], (self.policy.candidates(), len(self.held), 0)]

    @precondition(lambda self: self.passes)
    @rule(data=st.data(), evict=st.booleans())
    def step(self, data: st.DataObject, evict: bool) -> None:
        at = data.draw(st.integers(0, len(self.passes) - 1))
        candidates, most, gave = self.passes[at]
        if not gave:  # a generator starts here
            most = max(most, len(self.held))
        key = next(candidates, None)
        if key is None:
            del self.passes[at]
            return
        assert key in self.held
        self.passes[at] = candidates, most, gave + 1
        assert gave < most
        if evict:
            self.remove(key)

    @invariant()
    def holds_what_it_was_given(self) -> None:
        check = getattr(self.policy, "check_invariants", None)
        if check is not None:
            check()
        assert len(self.policy) == len(self.held)
        for key in range(22):
            assert (key in self.policy) == (key in self.held)

    def teardown(self) -> None:
        """A last pass, undisturbed, gives each key once; then all of them go."""
        assert sorted(self.policy.candidates()) == sorted(self.held)
        for key in self.policy.candidates():
            self.policy.remove(key)
            self.held.remove(key)
        assert not self.held
        assert len(self.policy) == 0


class PolicyConformance:
    """The contract of `Policy`.  A subclass says how an empty policy is made."""

    machine: type[PolicyMachine] = PolicyMachine
    model_settings = settings(max_examples=60, stateful_step_count=30, deadline=None)

    def make(self) -> Policy:
        """An empty policy."""
        raise NotImplementedError

    def filled(self, count: int) -> Policy:
        """A policy that holds the keys 1 to ``count``."""
        policy = self.make()
        for key in range(1, count + 1):
            policy.add(key, 256)
        return policy

    def test_is_a_policy_and_starts_empty(self) -> None:
        policy = self.make()
        assert isinstance(policy, Policy)
        assert len(policy) == 0
        assert list(policy.candidates()) == []
        assert 1 not in policy

    def test_holds_what_a_list_holds(self) -> None:
        machine: Any = partial(self.machine, self.make)  # a class is asked for, what makes one is enough
        run_state_machine_as_test(machine, settings=self.model_settings)

    def test_a_key_is_added_once(self) -> None:
        policy = self.filled(3)
        before = list(self.filled(3).candidates())
        with pytest.raises(KeyError):
            policy.add(2, 256)
        assert len(policy) == 3
        assert list(policy.candidates()) == before

    def test_what_is_not_held_may_be_removed(self) -> None:
        policy = self.filled(3)
        policy.remove(99)
        policy.remove(2)
        policy.remove(2)
        assert sorted(policy.candidates()) == [1, 3]

    def test_a_touch_that_was_kept_stays_right(self) -> None:
        policy = self.filled(3)
        touch = policy.touch
        policy.clear()
        policy.add(7, 256)
        touch(7)
        assert list(policy.candidates()) == [7]

    def test_every_key_is_a_candidate_once(self) -> None:
        policy = self.filled(500)
        for key in range(1, 500, 3):
            policy.touch(key)
        assert sorted(policy.candidates()) == list(range(1, 501))

    def test_every_key_can_be_evicted_in_one_pass(self) -> None:
        policy = self.filled(500)
        gone = []
        for key in policy.candidates():
            policy.remove(key)
            gone.append(key)
        assert sorted(gone) == list(range(1, 501))
        assert len(policy) == 0

    def test_a_pass_goes_on_past_keys_that_are_kept(self) -> None:
        policy = self.filled(500)
        gone = []
        for position, key in enumerate(policy.candidates()):
            if position % 3 == 0:
                policy.remove(key)
                gone.append(key)
        assert position == 499
        assert sorted([*gone, *policy.candidates()]) == list(range(1, 501))

    def test_a_key_that_is_gone_is_no_candidate(self) -> None:
        policy = self.filled(100)
        given = []
        for key in policy.candidates():
            given.append(key)
            for gone in (key, key + 1, 101 - key):  # as if other threads released them meanwhile
                policy.remove(gone)
            assert all(left not in given for left in policy.candidates())
        assert len(given) == len(set(given)) < 100
        assert len(policy) == 0

    def test_a_key_that_goes_while_others_are_kept_is_no_candidate(self) -> None:
        policy = self.filled(100)
        given = []
        for key in policy.candidates():
            assert key in policy
            given.append(key)
            policy.remove(min(set(policy.candidates()) - set(given), default=0))
        assert len(given) == len(set(given)) == 50
        assert sorted(policy.candidates()) == sorted(given)

    @pytest.mark.parametrize("again", ["touch", "take out and put back", "add more"])
    def test_a_pass_ends_while_others_work(self, again: str) -> None:
        policy = self.filled(100)
        given = []
        for key in policy.candidates():
            given.append(key)
            assert len(given) <= 100
            if again == "touch":
                policy.touch(key)
            elif again == "take out and put back":  # pinned when found, unpinned right after
                policy.remove(key)
                policy.add(key, 256)
            else:
                policy.add(1000 + len(given), 256)
        assert given
        assert set(range(1, 101)) <= set(policy.candidates())

    def test_a_pass_may_be_left_at_any_point(self) -> None:
        policy = self.filled(10)
        first = next(policy.candidates())
        policy.remove(first)
        assert sorted(policy.candidates()) == sorted(set(range(1, 11)) - {first})
        one, other = policy.candidates(), policy.candidates()
        assert {next(one), next(other)} <= set(range(1, 11))
        policy.clear()
        assert list(one) == list(other) == []
