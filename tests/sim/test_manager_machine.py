"""Random programs against the manager, under several policies, tables and limits."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any, ClassVar

import hypothesis
import pytest
from hypothesis.stateful import run_state_machine_as_test

from lifetimes.testing.manager_machine import ManagerMachine
from tests.unit.memory.scene import LONG


class Plain(ManagerMachine):
    """As people use it."""


class Waitless(ManagerMachine):
    """Nobody may wait: whatever is in flight stays in flight."""

    manual = True


class Settled(ManagerMachine):
    """Nothing stays in flight: after each step the device has what was last written."""

    settled = True
    options: ClassVar = {"table": "judy", "policy": "sieve"}


class Sorted(ManagerMachine):
    """Another table, and a pool with caps."""

    options: ClassVar = {"table": "sorted", "pool_bytes": 4096, "soft_limit": "50%"}


class Spilling(ManagerMachine):
    """Host memory is short too: copies go to files."""

    def manager_options(self) -> dict[str, Any]:
        self.folder = tempfile.mkdtemp(prefix="lifetimes-machine-")
        return {"host_limit": 4 << 10, "spill_dir": self.folder}

    def teardown(self) -> None:
        try:
            super().teardown()
            assert os.listdir(self.folder) == [], "spill files are left"
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


MACHINES = [Plain, Waitless, Settled, Sorted, Spilling]


def run(machine: type[ManagerMachine], examples: int, steps: int) -> None:
    settings = hypothesis.settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[each for each in hypothesis.Phase if each is not hypothesis.Phase.explain],  # it traces, and so do we
    )
    run_state_machine_as_test(machine, settings=settings)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_random_program_agrees_with_the_model(machine: type[ManagerMachine]) -> None:
    run(machine, 60, 30)


@pytest.mark.parametrize("machine", [pytest.param(machine, marks=LONG) for machine in MACHINES])
def test_more_than_a_hundred_thousand_steps_agree_with_the_model(machine: type[ManagerMachine]) -> None:
    run(machine, 2000, 60)
