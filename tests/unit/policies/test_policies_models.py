"""Every registered policy names the same victims as its naive model, whatever happens to its keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from lifetimes import policies
from lifetimes.policies import Policy
from lifetimes.policies.belady import BeladyPolicy
from lifetimes.policies.s3fifo import S3FIFOPolicy
from tests.unit.policies.naive import MODELS, S3FIFO, Model

KEYS = st.integers(1, 12)
SIZES = st.sampled_from([1, 64, 256, 1000])


class VictimMachine(RuleBasedStateMachine):
    def __init__(self, make: Callable[[], Policy], model: Callable[[], Model]) -> None:
        super().__init__()
        self.policy = make()
        self.model = model()
        self.held: list[int] = []
        self.time = 0

    def foresee(self, ahead: int | None) -> None:
        self.time += 1
        self.model.next_use = inf if ahead is None else self.time + ahead
        if isinstance(self.policy, BeladyPolicy):
            self.policy.next_use = self.model.next_use

    @rule(key=KEYS, nbytes=SIZES, cost=st.sampled_from([1.0, 8.0]), ahead=st.none() | st.integers(1, 9))
    def use(self, key: int, nbytes: int, cost: float, ahead: int | None) -> None:
        self.foresee(ahead)
        if key in self.held:
            self.policy.touch(key)
            self.model.touch(key)
        else:
            self.policy.add(key, nbytes, cost)
            self.model.add(key, nbytes, cost)
            self.held.append(key)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def use_again(self, data: st.DataObject) -> None:
        self.use(data.draw(st.sampled_from(self.held)), 0, 1.0, data.draw(st.integers(1, 9)))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(self.held))
        self.policy.remove(key)
        self.model.remove(key)
        self.held.remove(key)

    @precondition(lambda self: self.held)
    @rule(count=st.integers(1, 5))
    def evict(self, count: int) -> None:
        count = min(count, len(self.held))
        self.model.short()
        for _, key in zip(range(count), self.policy.candidates(), strict=False):
            self.policy.remove(key)
            assert key == self.model.evict()
            self.held.remove(key)

    @invariant()
    def stands(self) -> None:
        check = getattr(self.policy, "check_invariants", None)
        if check is not None:
            check()
        assert len(self.policy) == len(self.held)

    def teardown(self) -> None:
        while self.held:
            self.evict(5)


FACTORIES: dict[str, tuple[Callable[[], Policy], Callable[[], Model]]] = {
    name: (partial(policies.make, name), MODELS[name]) for name in policies.names() if name in MODELS
}
FACTORIES["s3fifo of 2000 bytes"] = partial(S3FIFOPolicy, 2000), partial(S3FIFO, 2000)


def test_every_policy_has_a_model() -> None:
    assert set(policies.names()) <= set(MODELS), "write its naive model, and add it to MODELS"


@pytest.mark.parametrize("name", FACTORIES)
def test_the_victims_are_those_of_the_model(name: str) -> None:
    machine: Any = partial(VictimMachine, *FACTORIES[name])  # a class is asked for, what makes one is enough
    run_state_machine_as_test(machine, settings=settings(max_examples=30, stateful_step_count=40, deadline=None))
