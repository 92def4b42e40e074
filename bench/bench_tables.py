"""The tables: a use among 100,000 arrays, against one among 100."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import cycle

import pytest

import lifetimes
from bench.harness import Compare
from bench.resident import NBYTES, resident_manager
from lifetimes import Manager, tables

FEW = 100
MANY = 100_000

Pair = tuple[tuple[Manager, list[int]], tuple[Manager, list[int]]]


@pytest.fixture(scope="module", params=tables.names())
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A manager of many arrays and one of few, over the same sort of table."""
    try:
        tables.make(request.param)
    except ValueError as error:  # it needs an extra
        pytest.skip(str(error))
    with lifetimes.open("host", memory_limit=MANY * NBYTES, table=request.param) as large:
        with lifetimes.open("host", memory_limit=FEW * NBYTES, table=request.param) as small:
            yield resident_manager(large, MANY), resident_manager(small, FEW)


def compare_uses(compare: Compare, pair: Pair, shuffled: bool, bar: float | None) -> None:
    (many, many_keys), (few, few_keys) = pair
    if shuffled:
        many_keys, few_keys = random.Random(7).sample(many_keys, MANY), random.Random(7).sample(few_keys, FEW)
    ours, theirs = cycle(many_keys), cycle(few_keys)

    def at_100_000(rounds: Iterator[None]) -> None:
        for _, key in zip(rounds, ours, strict=False):
            with many.use(key):
                pass

    def at_100(rounds: Iterator[None]) -> None:
        for _, key in zip(rounds, theirs, strict=False):
            with few.use(key):
                pass

    compare(at_100_000, at_100, bar=bar)


def bench_insertion_order(compare: Compare, pair: Pair) -> None:
    """use at 100,000, insertion order"""
    compare_uses(compare, pair, shuffled=False, bar=1.5)


def bench_random_order(compare: Compare, pair: Pair) -> None:
    """use at 100,000, random order"""
    compare_uses(compare, pair, shuffled=True, bar=None)
