"""What each policy is chosen for, in small; and what a use and a pass cost."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from lifetimes import policies
from lifetimes.errors import InternalError
from lifetimes.policies import Policy
from lifetimes.policies.belady import BeladyPolicy
from lifetimes.policies.clock import ClockPolicy
from lifetimes.policies.gdsf import NOTED, GDSFPolicy
from lifetimes.policies.lru import LRUPolicy
from lifetimes.policies.random import RandomPolicy
from lifetimes.policies.s3fifo import S3FIFOPolicy
from lifetimes.policies.sieve import SievePolicy


def filled(policy: Any, count: int) -> Any:
    for key in range(count):
        policy.add(key, 1)
    return policy


def evict(policy: Policy, count: int) -> list[int]:
    gone = []
    for key in islice(policy.candidates(), count):
        policy.remove(key)
        gone.append(key)
    return gone


@pytest.mark.parametrize("name", ["lru", "clock", "sieve", "gdsf", "random"])
def test_a_use_costs_one_c_method(name: str) -> None:
    assert type(policies.make(name).touch).__name__ == "builtin_function_or_method"


@pytest.mark.parametrize("name", [name for name in policies.names() if name != "random"])
def test_a_key_that_was_only_looked_at_is_still_first(name: str) -> None:
    """So a caller may ask for one key more than it needs."""
    policy = filled(policies.make(name), 10)
    for key in (0, 1, 4):
        policy.touch(key)
    first = next(policy.candidates())
    assert next(policy.candidates()) == first
    assert evict(policy, 1) == [first]


@pytest.mark.parametrize("kind", [ClockPolicy, SievePolicy])
def test_a_use_before_the_key_came_does_not_count(kind: type[ClockPolicy | SievePolicy]) -> None:
    policy = kind()
    policy.touch(1)
    filled(policy, 3)
    policy.remove(0)
    policy.touch(0)
    policy.add(0, 1)
    assert evict(policy, 3) == [1, 2, 0]


def test_the_clock_sends_a_used_key_to_the_back() -> None:
    policy = filled(ClockPolicy(), 4)
    policy.touch(0)
    assert evict(policy, 1) == [1]
    policy.add(9, 1)
    assert evict(policy, 4) == [2, 3, 0, 9]


def test_the_sieve_leaves_a_used_key_where_it_is() -> None:
    policy = filled(SievePolicy(), 4)
    policy.touch(0)
    assert evict(policy, 1) == [1]
    policy.add(9, 1)
    assert evict(policy, 4) == [2, 3, 9, 0]  # the hand goes on to the new key, and finds 0 only on its next way round


def test_a_scan_does_not_push_out_what_is_used() -> None:
    kinds: tuple[tuple[type[Any], bool], ...] = ((S3FIFOPolicy, True), (SievePolicy, True), (LRUPolicy, False))
    for kind, stays in kinds:
        policy = filled(kind(), 100)
        for _ in range(2):
            for key in range(40, 60):
                policy.touch(key)
        for key in range(1000, 1400):
            evict(policy, 1)
            policy.add(key, 1)
        assert all(key in policy for key in range(40, 60)) is stays


def test_s3fifo_remembers_what_it_evicted_and_nothing_else() -> None:
    policy = S3FIFOPolicy(100)
    filled(policy, 100)
    gone = evict(policy, 2)
    policy.remove(50)
    for key in (*gone, 50):
        policy.add(key, 1)
    assert [key in policy._main for key in (*gone, 50)] == [True, True, False]
    policy.check_invariants()


def test_s3fifo_forgets_after_a_while() -> None:
    policy = filled(S3FIFOPolicy(100), 100)
    first = evict(policy, 1)[0]
    for key in range(1000, 1200):
        policy.add(key, 1)
        evict(policy, 1)
    assert len(policy._ghost) <= 91
    policy.add(first, 1)
    assert first in policy._small


def test_gdsf_weighs_uses_cost_and_size() -> None:
    policy = GDSFPolicy()
    policy.add(1, nbytes=1000)
    policy.add(2, nbytes=10)
    policy.add(3, nbytes=1000, cost=50)
    policy.add(4, nbytes=0)
    for _ in range(30):
        policy.touch(1)
    assert evict(policy, 4) == [1, 3, 2, 4]


def test_gdsf_ages_what_was_used_often_long_ago() -> None:
    policy = GDSFPolicy()
    policy.add(0, nbytes=1)
    for _ in range(9):
        policy.touch(0)
    turns = 0
    while 0 in policy:
        turns += 1
        policy.add(turns, nbytes=1)
        evict(policy, 1)
    assert turns == 10


def test_gdsf_notes_no_more_uses_than_it_says() -> None:
    policy = filled(GDSFPolicy(), 2)
    for _ in range(3 * NOTED):
        policy.touch(0)
    for _ in range(10):
        policy.touch(1)
    policy.touch(77)  # is not held
    assert len(policy._noted) == NOTED
    policy.remove(77)
    assert not policy._noted
    assert (policy._held[0].uses, policy._held[1].uses) == (NOTED - 10, 11)


def test_belady_knows_what_it_is_told() -> None:
    policy = BeladyPolicy()
    for key, next_use in ((1, 30), (2, 10), (3, 20)):
        policy.next_use = next_use
        policy.add(key, 1)
    policy.add(4, 1)  # nobody said when: never
    policy.next_use = 40
    policy.touch(2)
    assert evict(policy, 4) == [4, 2, 1, 3]
    with pytest.raises(KeyError):
        policy.touch(1)


def test_random_draws_depend_on_the_seed_alone() -> None:
    def draws(seed: int) -> list[int]:
        return evict(filled(RandomPolicy(seed), 50), 50)

    assert draws(1) == draws(1) != draws(2)
    policy = filled(RandomPolicy(1), 50)
    policy.clear()
    assert evict(filled(policy, 50), 50) == draws(1)


def test_the_checks_see_parts_out_of_step() -> None:
    clock, sieve, s3fifo = ClockPolicy(), SievePolicy(), S3FIFOPolicy()
    gdsf, belady, chance = GDSFPolicy(), BeladyPolicy(), RandomPolicy()
    six: list[Any] = [clock, sieve, s3fifo, gdsf, belady, chance]
    for policy in six:
        filled(policy, 5)
        policy.check_invariants()
    clock.touch(9)
    sieve._behind[1] = None
    s3fifo._main_bytes += 1
    gdsf._held.pop(1)
    gdsf._held[9] = gdsf._held[2]
    belady._held[1] = (0.0, 99)
    chance._keys.reverse()
    for policy in six:
        with pytest.raises(InternalError, match="this must hold"):
            policy.check_invariants()
