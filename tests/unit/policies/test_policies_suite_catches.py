"""The conformance suite finds what it is there for: each fault is planted once, and one test of the suite goes red."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from lifetimes.errors import InternalError
from lifetimes.policies.lru import LRUPolicy
from lifetimes.testing.conformance.policies import PolicyConformance

MODEL = "test_holds_what_a_list_holds"


class AddsTwice(LRUPolicy):
    def add(self, key: int, nbytes: int, cost: float = 1.0) -> None:
        self._order[key] = None
        self._order.move_to_end(key)


class MissesWhatItRemoves(LRUPolicy):
    def remove(self, key: int) -> None:
        del self._order[key]


class Iterates(LRUPolicy):
    def candidates(self) -> Iterator[int]:
        yield from self._order


class Copies(LRUPolicy):
    def candidates(self) -> Iterator[int]:
        yield from list(self._order)


class StartsOver(LRUPolicy):
    def candidates(self) -> Iterator[int]:
        given = None
        while self._order:
            given = next((key for key in self._order if key != given), None)
            if given is None:
                return
            yield given


class GivesOne(LRUPolicy):
    def candidates(self) -> Iterator[int]:
        yield from list(self._order)[:1]


class FailsItsOwnCheck(LRUPolicy):
    def check_invariants(self) -> None:
        raise InternalError("planted")


class NewOrder(LRUPolicy):
    def clear(self) -> None:
        self._order = type(self._order)()
        # and `touch` is still that of the old one


@pytest.mark.parametrize(
    ("policy", "test", "args"),
    [
        (AddsTwice, MODEL, ()),
        (AddsTwice, "test_a_key_is_added_once", ()),
        (MissesWhatItRemoves, "test_what_is_not_held_may_be_removed", ()),
        (Iterates, "test_every_key_can_be_evicted_in_one_pass", ()),
        (Iterates, "test_a_pass_ends_while_others_work", ("touch",)),
        (Iterates, MODEL, ()),
        (Copies, "test_a_key_that_is_gone_is_no_candidate", ()),
        (Copies, MODEL, ()),
        (StartsOver, "test_a_pass_ends_while_others_work", ("take out and put back",)),
        (StartsOver, "test_a_pass_goes_on_past_keys_that_are_kept", ()),
        (FailsItsOwnCheck, MODEL, ()),
        (GivesOne, "test_every_key_is_a_candidate_once", ()),
        (NewOrder, "test_a_touch_that_was_kept_stays_right", ()),
    ],
)
def test_a_faulty_policy_is_found(policy: type[LRUPolicy], test: str, args: tuple[Any, ...]) -> None:
    once = settings(
        database=None,
        derandomize=True,
        phases=[Phase.generate],  # a failure is enough, it need not be a small one
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        max_examples=200,
    )
    planted: Any = type("Planted", (PolicyConformance,), {"make": lambda self: policy(), "model_settings": once})()
    with pytest.raises((AssertionError, pytest.fail.Exception, InternalError, LookupError, RuntimeError)):
        getattr(planted, test)(*args)
