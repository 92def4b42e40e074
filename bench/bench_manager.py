"""The memory manager: what a use costs, how it grows with the number of arrays, and what moving arrays adds to copying."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

import lifetimes
from bench.harness import Compare
from bench.peers import require
from bench.resident import NBYTES, resident_manager
from lifetimes.host_store.files import SpillFile, read_file, write_file
from lifetimes.manager import Manager
from lifetimes.replay.null import NullDriver
from lifetimes_host import HostDriver

FEW, MANY = 1_000, 1_000_000
SPILLED = 16 << 20


def bench_one_resident_array(compare: Compare) -> None:
    """manager.use(key), statistics on"""
    zict = require("zict")
    with lifetimes.open("host", memory_limit="1MiB") as device:
        manager, keys = resident_manager(device, 100)
        key, lru = keys[50], zict.LRU(100, {key: object() for key in keys})

        def use(rounds: Iterator[None]) -> None:
            for _ in rounds:
                with manager.use(key):
                    pass

        def zict_LRU(rounds: Iterator[None]) -> None:  # noqa: N802 (its label in the table)
            for _ in rounds:
                lru[key]

        compare(use, zict_LRU, limit=2.0e-6)


def bench_three_resident_arrays(compare: Compare) -> None:
    """manager.use_many of three, against three uses"""
    with lifetimes.open("host", memory_limit="1MiB") as device:
        manager, keys = resident_manager(device, 100)
        a, b, c = keys[10], keys[50], keys[90]
        pairs: Any = [(a, "r"), (b, "r"), (c, "w")]

        def use_many(rounds: Iterator[None]) -> None:
            for _ in rounds:
                with manager.use_many(pairs):
                    pass

        def three_uses(rounds: Iterator[None]) -> None:
            for _ in rounds:
                with manager.use(a), manager.use(b), manager.use(c, "w"):
                    pass

        compare(use_many, three_uses, bar=1.0, limit=3.0e-6)


class Crowd:
    """So many resident arrays, one in a hundred pinned and the least recently used; one more is always wanted."""

    def __init__(self, entries: int) -> None:
        self.manager = Manager(NullDriver(), memory_limit=entries * NBYTES, collect_garbage=False, table="dict")
        keys = [self.manager.add(NBYTES) for _ in range(entries)]
        for key in keys:
            with self.manager.use(key, "w"):
                pass
        self.pinned = self.manager.use_many([(key, "r") for key in keys[: entries // 100]])
        self.pinned.__enter__()
        self.manager.evictor.evict_some(NBYTES)  # the first search passes the pinned ones, once
        self.keys = cycle([key for key in keys[entries // 100 :] if key in self.manager.policy])

    def choose(self, rounds: Iterator[None]) -> None:
        """Choose a victim, take it out and put it back as just used, and use another one."""
        manager, policy = self.manager, self.manager.policy
        for _ in rounds:
            victim = next(policy.candidates())
            policy.remove(victim)
            policy.add(victim, NBYTES)
            manager.touch(next(self.keys))

    def close(self) -> None:
        """There is no memory to give back; forgetting a million arrays one by one would take longer than the row."""
        self.pinned.__exit__(None, None, None)


def bench_choosing_among_many(compare: Compare) -> None:
    """choose a victim and touch, 1,000,000 arrays, 10,000 pinned, against 1,000 arrays"""
    many, few = Crowd(MANY), Crowd(FEW)

    def a_million(rounds: Iterator[None]) -> None:
        many.choose(rounds)

    def a_thousand(rounds: Iterator[None]) -> None:
        few.choose(rounds)

    try:
        compare(a_million, a_thousand, bar=2)
    finally:
        many.close()
        few.close()


def bench_spill_and_load(compare: Compare) -> None:
    """an array of 16 MiB to its file and back, against a file of bytes"""
    content = (np.arange(SPILLED) % 251).astype(np.uint8)
    out = np.empty_like(content)
    with tempfile.TemporaryDirectory() as folder:
        numbers = iter(range(1 << 30))
        plain = Path(folder) / "plain"

        def spill_files(rounds: Iterator[None]) -> None:
            for _ in rounds:
                file: SpillFile = write_file(Path(folder) / f"{next(numbers)}.spill", content)
                read_file(file, out)
                file.path.unlink()

        def plain_files(rounds: Iterator[None]) -> None:
            for _ in rounds:
                content.tofile(plain)
                out[:] = np.fromfile(plain, np.uint8)
                os.unlink(plain)

        compare(spill_files, plain_files, nbytes=2 * SPILLED)


def bench_out_of_core(compare: Compare) -> None:
    """exp() four times over four times the memory, prefetched, against the same where all of it fits"""
    count, size = 16, 1 << 19
    nbytes = 8 * size
    loops = []
    managers = []
    for limit in (count // 4 * nbytes, count * nbytes):
        driver = HostDriver(limit + (1 << 20))
        manager = Manager(driver, memory_limit=limit)
        managers.append((manager, driver))
        keys = [manager.add(np.full(size, -1.0)) for _ in range(count)]

        def run(
            rounds: Iterator[None], manager: Manager = manager, driver: Any = driver, keys: Any = tuple(keys)
        ) -> None:
            for _ in rounds:
                for at, key in enumerate(keys):
                    with manager.use(key, "rw") as address:
                        driver.call(_kernel, (driver.view(address, nbytes).view(np.float64),), manager.stream.handle)
                    manager.prefetch(keys[(at + 1) % count])
                manager.stream.wait(manager.stream.issued)

        loops.append(run)

    def a_quarter_fits(rounds: Iterator[None]) -> None:
        loops[0](rounds)

    def all_fits(rounds: Iterator[None]) -> None:
        loops[1](rounds)

    try:
        compare(a_quarter_fits, all_fits, bar=1.3 if (os.cpu_count() or 1) > 2 else None)
    finally:
        for manager, driver in managers:
            manager.close()
            driver.close()


def _kernel(values: np.ndarray[Any, np.dtype[np.float64]]) -> None:
    for _ in range(4):
        np.exp(values, out=values)
        np.negative(values, out=values)
