"""Random programs against the model that `lifetimes.testing.lifetimes_machine` ships, with and without threads."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from lifetimes.testing.lifetimes_machine import LifetimesMachine
from lifetimes.testing.lifetimes_threads import ThreadedLifetimesMachine

pytestmark = pytest.mark.filterwarnings("ignore::lifetimes.CleanupWarning")


def run(machine: type[LifetimesMachine], examples: int, steps: int = 40) -> None:
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None)
    )


def test_a_random_program_agrees_with_the_model() -> None:
    run(LifetimesMachine, 60)


def test_a_random_program_on_several_threads_agrees_with_the_model() -> None:
    run(ThreadedLifetimesMachine, 15)


@pytest.mark.slow
@pytest.mark.stress
@pytest.mark.parametrize("machine", [LifetimesMachine, ThreadedLifetimesMachine])
def test_many_random_programs(machine: type[LifetimesMachine]) -> None:
    run(machine, 1000 if machine is LifetimesMachine else 200, 80)
