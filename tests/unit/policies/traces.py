"""The traces that miss counts are recorded for: two that are made here, and the recorded one of the benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Final

from lifetimes.replay.trace import read_trace

RECORDED: Final = Path(__file__).parents[3] / "bench" / "data" / "cloudphysics-io.csv.gz"


@dataclass(frozen=True)
class Uses:
    keys: list[int]
    sizes: list[int]
    limits: tuple[int, ...]


@cache
def zipf() -> Uses:
    """A few keys are used often, most seldom; all of one size."""
    random = Random(1)
    weights = list(accumulate(1 / rank for rank in range(1, 501)))
    keys = random.choices(range(500), cum_weights=weights, k=5000)
    return Uses(keys, [4096] * len(keys), (20 * 4096, 100 * 4096, 250 * 4096))


@cache
def scans() -> Uses:
    """Uses of a working set, broken by scans over keys that never come again; sizes from 256 bytes to 64 KiB."""
    random = Random(2)
    size = {key: 256 << random.randrange(9) for key in range(5000)}
    keys: list[int] = []
    once = iter(range(300, 5000))
    for _ in range(40):
        keys += [int(random.triangular(0, 300, 0)) for _ in range(80)]
        keys += [next(once) for _ in range(40)]
    return Uses(keys, [size[key] for key in keys], (1 << 20, 2 << 20))


@cache
def recorded() -> Uses:
    """Block I/O.  Each key keeps the size that it had first, because libCacheSim knows no other."""
    trace = read_trace(RECORDED)
    first: dict[int, int] = {}
    sizes = [first.setdefault(key, nbytes) for key, nbytes in zip(trace.keys, trace.sizes, strict=True)]
    return Uses(trace.keys, sizes, (32 << 20, 512 << 20))


TRACES: Final[dict[str, Callable[[], Uses]]] = {"zipf": zipf, "scans": scans, "recorded": recorded}
