"""The policies: what a use costs, and a recorded trace through the manager, against a cache that only counts.

Asked for alone, it also fills ``docs/explanation/choosing-a-policy.md``, which takes some minutes.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

import lifetimes
from bench import study_policies
from bench.harness import Compare
from bench.peers import require
from lifetimes import policies
from lifetimes.replay.null import NullDriver
from lifetimes.replay.trace import read_trace

TRACE = Path(__file__).parent / "data" / "cloudphysics-io.csv.gz"
ENTRIES = 10_000
USES = 20_000
LIMIT = 64 << 20


@pytest.mark.parametrize("name", policies.names())
def bench_touch(compare: Compare, name: str) -> None:
    """policy.touch, 10,000 keys"""
    policy, order = policies.make(name), OrderedDict[int, None]()
    keys = list(range(ENTRIES))
    for key in keys:
        policy.add(key, 256)
        order[key] = None
    shuffled = random.Random(7).sample(keys, len(keys))
    one, other = cycle(shuffled), cycle(shuffled)
    ours, theirs = policy.touch, order.move_to_end

    def touch(rounds: Iterator[None]) -> None:
        for _, key in zip(rounds, one, strict=False):
            ours(key)

    def move_to_end(rounds: Iterator[None]) -> None:
        for _, key in zip(rounds, other, strict=False):
            theirs(key)

    for_replays, in_c = name in study_policies.FOR_REPLAYS, study_policies.in_c(ours)
    compare(touch, move_to_end, bar=None if for_replays else 1.5 if in_c else 3)


def bench_recorded_trace(compare: Compare) -> None:
    """20,000 uses of a recorded trace, 64 MiB, nothing moved"""
    cachetools = require("cachetools")
    trace = read_trace(TRACE)
    first: dict[int, int] = {}
    uses = [(key, first.setdefault(key, nbytes)) for key, nbytes in zip(trace.keys, trace.sizes, strict=True)][:USES]
    cache = cachetools.LRUCache(LIMIT, getsizeof=lambda nbytes: nbytes)
    with lifetimes.open(NullDriver(), memory_limit=LIMIT) as device:
        manager = device.manager
        content = np.zeros(max(first.values()), np.uint8)
        arrays = {key: manager.add(content[:nbytes], copy=False) for key, nbytes in first.items()}
        keys = [arrays[key] for key, _ in uses]

        def manager_use(rounds: Iterator[None]) -> None:
            for _ in rounds:
                for key in keys:
                    with manager.use(key):
                        pass

        def cachetools_LRUCache(rounds: Iterator[None]) -> None:  # noqa: N802 (its label in the table)
            for _ in rounds:
                for key, nbytes in uses:
                    try:
                        cache[key]
                    except KeyError:
                        cache[key] = nbytes

        compare(manager_use, cachetools_LRUCache, bar=3)
        for key in arrays.values():
            manager.release(key)
