"""A policy alone, against what can be counted by hand."""

from __future__ import annotations

from math import inf

import pytest

from lifetimes import policies
from lifetimes.policies import Policy
from lifetimes.replay.simulate import next_uses, simulate


def lru() -> Policy:
    return policies.make("lru")


def test_counts_by_hand() -> None:
    keys, sizes = [1, 2, 3, 1, 3, 2], [64, 64, 64, 64, 64, 64]
    counted = simulate(lru(), keys, sizes, 128)
    assert (counted.uses, counted.misses, counted.evictions, counted.missed_bytes) == (6, 5, 3, 320)
    assert counted.ratio == 5 / 6
    assert simulate(policies.make("belady"), keys, sizes, 128).misses == 4


def test_a_changed_size_is_a_miss_and_what_is_too_large_evicts_nothing() -> None:
    counted = simulate(lru(), [1, 1, 1, 2, 1], [64, 32, 32, 500, 32], 128)
    assert (counted.misses, counted.replaced, counted.too_large, counted.evictions) == (3, 1, 1, 0)


def test_a_changed_size_makes_room_of_its_own_first() -> None:
    counted = simulate(lru(), [1, 2, 1], [64, 64, 32], 128)
    assert (counted.misses, counted.evictions) == (3, 0)
    counted = simulate(lru(), [1, 2, 1, 2], [64, 64, 100, 64], 128)
    assert (counted.misses, counted.evictions) == (4, 2)


def test_nothing_is_used() -> None:
    assert simulate(lru(), [], [], 128).ratio == 0.0


def test_the_future() -> None:
    assert next_uses([1, 2, 1, 1], [64, 64, 64, 32]) == [2, inf, inf, inf]


@pytest.mark.parametrize("name", policies.names())
def test_all_fits_where_all_fits(name: str) -> None:
    keys = [key * 7919 % 101 for key in range(1000)]
    counted = simulate(policies.make(name), keys, [64] * 1000, 101 * 64)
    assert (counted.misses, counted.evictions) == (101, 0)
