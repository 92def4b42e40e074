"""Random programs against the manager, under several policies, tables and limits.

CI runs a few hundred short programs; ``LIFETIMES_NIGHTLY=1`` runs more than 100,000 steps.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any, ClassVar

import hypothesis
import pytest

from lifetimes.testing.manager_machine import ManagerMachine

NIGHTLY = bool(os.environ.get("LIFETIMES_NIGHTLY"))
SMALL = hypothesis.settings(
    max_examples=2000 if NIGHTLY else 60,
    stateful_step_count=60 if NIGHTLY else 30,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
    phases=[phase for phase in hypothesis.Phase if phase is not hypothesis.Phase.explain],  # it traces, and so do we
)


class Plain(ManagerMachine):
    """As people use it."""


class Waitless(ManagerMachine):
    """Nobody may wait: whatever is in flight stays in flight."""

    manual = True


class Sorted(ManagerMachine):
    """Another table, and a pool with caps."""

    options: ClassVar = {"table": "sorted", "pool_bytes": 4096, "soft_limit": "50%"}


class Spilling(ManagerMachine):
    """Host memory is short too: copies go to files."""

    def manager_options(self) -> dict[str, Any]:
        self.folder = tempfile.mkdtemp(prefix="lifetimes-machine-")
        return {"host_limit": 12 << 10, "spill_dir": self.folder}

    def teardown(self) -> None:
        try:
            super().teardown()
            assert os.listdir(self.folder) == [], "spill files are left"
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


def case(machine: type[ManagerMachine]) -> Any:
    machine.TestCase.settings = SMALL
    return machine.TestCase


TestPlain = case(Plain)
TestWaitless = case(Waitless)
TestSorted = case(Sorted)
TestSpilling = case(Spilling)

if NIGHTLY:
    for each in (TestPlain, TestWaitless, TestSorted, TestSpilling):
        pytest.mark.slow(each)
