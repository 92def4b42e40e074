"""What the manager does for one use and one eviction does not grow with the number of arrays; counted, not timed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lifetimes import policies
from lifetimes.manager import Manager
from lifetimes.replay.null import NullDriver
from lifetimes.testing.operations import count_operations

FEW, MANY = 500, 20_000
NBYTES = 256


class Crowd:
    """So many arrays on the device, one in a hundred in use, and those the ones that would go first."""

    def __init__(self, entries: int, policy: str, table: str) -> None:
        self.manager = manager = Manager(
            NullDriver(), memory_limit=entries * NBYTES, policy=policy, table=table, collect_garbage=False
        )
        self.keys = [manager.add(NBYTES) for _ in range(entries)]
        for key in self.keys:
            with manager.use(key, "w"):
                pass
        self.pinned = manager.use_many([(key, "r") for key in self.keys[: entries // 100]])
        self.pinned.__enter__()
        self.one_more()  # the first search takes those that are in use out of the policy, once
        for _ in range(entries // 50):
            self.one_more()

    def use(self) -> None:
        with self.manager.use(self.keys[-1]):
            pass

    def update_three(self) -> None:
        with self.manager.use_many([(key, "rw") for key in self.keys[-3:]]):
            pass

    def one_more(self) -> None:
        """Another array, for which one has to go."""
        key = self.manager.add(NBYTES)
        with self.manager.use(key, "w"):
            pass

    def come_and_go(self) -> None:
        """Off the device and back."""
        self.manager.evict(self.keys[-5])
        with self.manager.use(self.keys[-5], "rw"):
            pass

    def steps(self, call: Callable[[Crowd], None]) -> float:
        """Of ten calls, the typical one."""
        return sorted(count_operations(call, self).steps for _ in range(11))[5]

    def close(self) -> None:
        self.pinned.__exit__(None, None, None)
        self.manager.close()


@pytest.mark.parametrize(("policy", "table"), [(name, "dict") for name in policies.names()] + [("lru", "sorted")])
@pytest.mark.thread_unsafe(reason="sets a trace function")
def test_uses_and_evictions_cost_the_same_among_many(policy: str, table: str) -> None:
    few, many = Crowd(FEW, policy, table), Crowd(MANY, policy, table)
    for call in (Crowd.use, Crowd.update_three, Crowd.one_more, Crowd.come_and_go):
        at_few, at_many = few.steps(call), many.steps(call)
        assert at_many <= 1.25 * at_few, f"{call.__name__}: {at_many} steps among {MANY} arrays, {at_few} among {FEW}"
    few.close()
    many.close()
