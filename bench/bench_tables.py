"""The tables: each against the container beneath it, one against another, and a use among 100,000 arrays against one of 100.

Asked for alone, it fills ``docs/explanation/choosing-a-table.md``, which takes a quarter of an hour.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest

import lifetimes
from bench import study_tables
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


# A table against the container beneath it.

ENTRIES = 10_000
BATCH = 1_000
MILLION = 1_000_000
VALUE = object()


@pytest.fixture(params=tables.names())
def beneath(request: pytest.FixtureRequest) -> tuple[str, Any]:
    """A table's name, and the class it is made of."""
    try:
        container = study_tables.beneath(request.param)
    except ValueError as error:  # it needs an extra
        pytest.skip(str(error))
    if container is None:
        pytest.skip(f"{request.param} is made of nothing to compare it with")
    return request.param, container


def random_keys(count: int) -> list[int]:
    """Any 64-bit numbers."""
    draw = random.Random(count)
    return [draw.getrandbits(64) for _ in range(count)]


def bench_get(compare: Compare, beneath: tuple[str, Any]) -> None:
    """table.get, 10,000 keys"""
    name, container = beneath
    keys = random_keys(ENTRIES)
    table, bare = tables.make(name), container()
    for key in keys:
        table.insert(key, VALUE)
        bare[key] = VALUE
    ours, theirs = table.get, bare.get
    one, other = cycle(keys), cycle(keys)

    def table_get(rounds: Iterator[None]) -> None:
        for _, key in zip(rounds, one, strict=False):
            ours(key)

    def bare_get(rounds: Iterator[None]) -> None:
        for _, key in zip(rounds, other, strict=False):
            theirs(key)

    compare(table_get, bare_get, bar=1.5)


def bench_insert_and_delete(compare: Compare, beneath: tuple[str, Any]) -> None:
    """table.insert, 1,000 keys, then table.pop, beside 100,000"""
    name, container = beneath
    keys = random_keys(MANY + BATCH)
    table, bare = tables.make(name), container()
    for key in keys[BATCH:]:
        table.insert(key, VALUE)
        bare[key] = VALUE
    come, go = keys[:BATCH], random.Random(7).sample(keys[:BATCH], BATCH)

    def table_insert_pop(rounds: Iterator[None]) -> None:
        insert, pop = table.insert, table.pop
        for _ in rounds:
            for key in come:
                insert(key, VALUE)
            for key in go:
                pop(key)

    def bare_insert_delete(rounds: Iterator[None]) -> None:
        for _ in rounds:
            for key in come:
                bare[key] = VALUE
            for key in go:
                del bare[key]

    compare(table_insert_pop, bare_insert_delete, bar=4 if name == "judy" else 3)


# One table against another.


@pytest.fixture(scope="module")
def large() -> tuple[Any, Any, list[int]]:
    """`judy` and `dict` with a million keys, and the keys."""
    keys = random_keys(MILLION)
    judy, plain = tables.make("judy"), tables.make("dict")
    for key in keys:
        judy.insert(key, VALUE)
        plain.insert(key, VALUE)
    return judy, plain, keys


def compare_get(compare: Compare, large: tuple[Any, Any, list[int]], keys: list[int], bar: float | None) -> None:
    judy, plain, _ = large
    ours, theirs = judy.get, plain.get
    one, other = cycle(keys), cycle(keys)

    def judy_get(rounds: Iterator[None]) -> None:
        for _, key in zip(rounds, one, strict=False):
            ours(key)

    def dict_get(rounds: Iterator[None]) -> None:
        for _, key in zip(rounds, other, strict=False):
            theirs(key)

    compare(judy_get, dict_get, bar=bar)


def bench_judy_and_dict_fresh(compare: Compare, large: tuple[Any, Any, list[int]]) -> None:
    """get at 1,000,000, shuffled, keys built anew"""
    shuffled = random.Random(7).sample(large[2], MILLION)
    compare_get(compare, large, [key ^ 1 ^ 1 for key in shuffled], bar=1)


def bench_judy_and_dict_same(compare: Compare, large: tuple[Any, Any, list[int]]) -> None:
    """get at 1,000,000, shuffled, the keys that were put in"""
    compare_get(compare, large, random.Random(7).sample(large[2], MILLION), bar=None)
