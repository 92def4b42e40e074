"""A use of an array that is on the device already, against a look-up in zict's cache of least recent use."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import lifetimes
from bench.harness import Compare
from bench.peers import require
from bench.resident import resident_manager

ENTRIES = 10_000


def zict_lru(keys: list[int]) -> Any:
    """As many items, none of them ever evicted."""
    lru = require("zict").LRU(len(keys), {})
    for key in keys:
        lru[key] = object()
    return lru


def bench_resident_use(compare: Compare) -> None:
    """with manager.use(key): pass, one of 10,000 resident arrays after the other."""
    with lifetimes.open("host", memory_limit="64MiB") as device:
        manager, keys = resident_manager(device, ENTRIES)
        lru = zict_lru(keys)
        ours, theirs = cycle(keys), cycle(keys)

        def use(rounds: Iterator[None]) -> None:
            for _, key in zip(rounds, ours, strict=False):
                with manager.use(key):
                    pass

        def zict_LRU(rounds: Iterator[None]) -> None:  # noqa: N802 (its label in the table)
            for _, key in zip(rounds, theirs, strict=False):
                lru[key]

        compare(use, zict_LRU, bar=5, limit=2.5e-6)


def bench_resident_update(compare: Compare) -> None:
    """The same in mode "rw"."""
    with lifetimes.open("host", memory_limit="64MiB") as device:
        manager, keys = resident_manager(device, ENTRIES)
        lru = zict_lru(keys)
        ours, theirs = cycle(keys), cycle(keys)

        def use(rounds: Iterator[None]) -> None:
            for _, key in zip(rounds, ours, strict=False):
                with manager.use(key, "rw"):
                    pass

        def zict_LRU(rounds: Iterator[None]) -> None:  # noqa: N802 (its label in the table)
            for _, key in zip(rounds, theirs, strict=False):
                lru[key]

        compare(use, zict_LRU)
