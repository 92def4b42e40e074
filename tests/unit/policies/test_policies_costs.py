"""What every registered policy costs, up to a million keys with ten thousand of them pinned; counted, not timed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lifetimes import policies
from lifetimes.policies import Policy
from lifetimes.policies.lru import LRUPolicy
from lifetimes.testing.conformance.policy_costs import PolicyCosts
from lifetimes.testing.operations import CountedKey, count_operations


@pytest.mark.thread_unsafe(reason="sets a trace function")
class TestCosts(PolicyCosts):
    many = 1_000_000

    @pytest.fixture(autouse=True, params=policies.names())
    def choose(self, request: pytest.FixtureRequest) -> None:
        self.name: str = request.param

    def make(self) -> Policy:
        return policies.make(self.name)


class Copies(LRUPolicy):
    def candidates(self) -> Iterator[int]:
        yield from list(self._order)


class Sorts(LRUPolicy):
    def candidates(self) -> Iterator[int]:
        yield from sorted(self._order)


class Searches(LRUPolicy):
    """Its uses go through a list."""

    def __init__(self) -> None:
        super().__init__()
        self._list: list[int] = []
        self.touch = self._list.count

    def add(self, key: int, nbytes: int, cost: float = 1.0) -> None:
        super().add(key, nbytes, cost)
        self._list.append(key)


@pytest.mark.parametrize(("planted", "caught_by"), [(Copies, "victim"), (Sorts, "victim"), (Searches, "use")])
@pytest.mark.thread_unsafe(reason="sets a trace function")
def test_what_costs_more_is_caught(planted: type[LRUPolicy], caught_by: str) -> None:
    class Suite(PolicyCosts):
        few, many, pinned, victims = 1_000, 5_000, 100, 20

        def make(self) -> Policy:
            return planted()

    suite = Suite()
    tests = {
        "use": suite.test_a_use_costs_the_same_among_many,
        "victim": suite.test_a_victim_costs_the_same_among_many_and_behind_pinned_ones,
    }
    for name, test in tests.items():
        if name == caught_by:
            with pytest.raises(AssertionError, match=r"steps among|bytes were allocated"):
                test()
        else:
            test()


@pytest.mark.thread_unsafe(reason="sets a trace function")
def test_what_is_done_in_c_is_counted() -> None:
    keys = list(map(CountedKey, range(1000)))
    held = dict.fromkeys(keys)
    assert 1000 <= count_operations(dict.fromkeys, keys).steps < 1100
    assert 999 <= count_operations(min, keys).steps < 1100
    assert count_operations(list, held).steps < 100
    assert count_operations(list, held).nbytes >= 8000
    with pytest.raises(ValueError, match="empty"):
        count_operations(min, [])
