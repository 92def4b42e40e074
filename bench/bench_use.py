"""A use of an array that is on the device already, against a look-up in zict's cache of least recent use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle

import lifetimes
from bench.harness import Compare
from bench.measure import Loop
from bench.peers import require
from bench.resident import resident_manager
from lifetimes import Manager

ENTRIES = 10_000


def compare_with_zict(
    compare: Compare,
    make: Callable[[Manager, Iterator[int]], Loop],
    *,
    bar: float | None = None,
    limit: float | None = None,
) -> None:
    """One key after the other, on both sides in order of insertion; every look-up is a hit."""
    zict = require("zict")
    with lifetimes.open("host", memory_limit="64MiB") as device:
        manager, keys = resident_manager(device, ENTRIES)
        lru = zict.LRU(ENTRIES, {key: object() for key in keys})
        theirs = cycle(keys)

        def zict_LRU(rounds: Iterator[None]) -> None:  # noqa: N802 (its label in the table)
            for _, key in zip(rounds, theirs, strict=False):
                lru[key]

        compare(make(manager, cycle(keys)), zict_LRU, bar=bar, limit=limit)


def bench_resident_use(compare: Compare) -> None:
    """manager.use(key), 10,000 resident"""

    def make(manager: Manager, keys: Iterator[int]) -> Loop:
        def use(rounds: Iterator[None]) -> None:
            for _, key in zip(rounds, keys, strict=False):
                with manager.use(key):
                    pass

        return use

    compare_with_zict(compare, make, bar=5, limit=2.5e-6)


def bench_resident_update(compare: Compare) -> None:
    """manager.use(key, "rw"), 10,000 resident"""

    def make(manager: Manager, keys: Iterator[int]) -> Loop:
        def use(rounds: Iterator[None]) -> None:
            for _, key in zip(rounds, keys, strict=False):
                with manager.use(key, "rw"):
                    pass

        return use

    compare_with_zict(compare, make)
