"""The policies against each other on a recorded trace, and what the write of a use costs; fills ``choosing-a-policy.md``."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from time import process_time
from typing import Any, Final

import lifetimes
from bench.study import DOCS, best_pass, markdown, nanoseconds, stamp, write_parts
from lifetimes import policies
from lifetimes.replay.play import play
from lifetimes.replay.plot import plot_curves
from lifetimes.replay.simulate import simulate
from lifetimes.replay.trace import Trace, read_trace
from lifetimes.sizes import format_bytes

__all__ = ["FOR_REPLAYS", "in_c", "publish"]

TRACE: Final = Path(__file__).parent / "data" / "cloudphysics-io.csv.gz"
PAGE: Final = DOCS / "choosing-a-policy.md"
HALVINGS: Final = range(8, 0, -1)
ENTRIES: Final = 10_000
THREADS: Final = 4
FOR_REPLAYS: Final = ("belady",)
"""Policies that nobody runs a program with."""


def publish() -> None:
    """Measure everything and write the page and its plot."""
    trace = read_trace(TRACE)
    parts = {"where": stamp(), "writes": writes(), "threads": threads()}
    parts["misses"], curves = misses(trace)
    parts["replay"] = replays(trace)
    write_parts(PAGE, parts)
    plot_curves(curves, str(DOCS / "choosing-a-policy.svg"), title="block I/O of CloudPhysics, 113,872 uses")


def misses(trace: Trace) -> tuple[str, dict[str, list[tuple[int, float]]]]:
    """Each policy at eight sizes, alone: no pool, no rounding."""
    limits = [trace.footprint() >> halvings for halvings in HALVINGS]
    curves: dict[str, list[tuple[int, float]]] = {}
    columns: dict[int, dict[str, int]] = {limit: {} for limit in limits}
    for name in policies.names():
        for limit in limits:
            counted = simulate(policies.make(name), trace.keys, trace.sizes, limit)
            columns[limit][name] = counted.misses
            curves.setdefault(name, []).append((limit, counted.ratio))
        say(f"misses of {name}")
    rows = []
    for name in policies.names():
        cells = []
        for limit in limits:
            best = min(count for other, count in columns[limit].items() if other != "belady")
            count = columns[limit][name]
            cells.append(f"**{count:,}**" if count == best else f"{count:,}")
        rows.append([f"`{name}`", *cells])
    return markdown(["misses at", *map(format_bytes, limits)], rows), curves


def writes() -> str:
    """What a use costs in the policy, and in all."""
    rows = []
    for name in for_programs():
        touch, use = one_touch(name), one_use(name)
        what = "one method in C" if in_c(policies.make(name).touch) else "Python"
        rows.append([f"`{name}`", what, nanoseconds(touch), nanoseconds(use), f"{touch / use:.1%}"])
        say(f"the write of {name}")
    return markdown(["policy", "the write is", "touch", "`manager.use`, resident", "share"], rows)


def threads() -> str:
    """The same uses by one thread and by four, over all threads together."""
    rows = []
    for name in for_programs():
        one, four = (by_threads(name, count) for count in (1, THREADS))
        rows.append([f"`{name}`", nanoseconds(one), nanoseconds(four), f"{four / one:.2f}x"])
        say(f"threads with {name}")
    return markdown(["policy", "a use, one thread", "a use, four threads", "ratio"], rows)


def for_programs() -> list[str]:
    """The policies that programs are run with."""
    return [name for name in policies.names() if name not in FOR_REPLAYS]


def in_c(touch: Callable[[int], object]) -> bool:
    """Whether a use calls no Python code of the policy."""
    return type(touch).__name__ == "builtin_function_or_method"


def one_touch(name: str) -> float:
    """Seconds, without the loop around it."""
    policy = policies.make(name)
    for key in range(ENTRIES):
        policy.add(key, 256)
    keys = Random(7).sample(range(ENTRIES), ENTRIES)
    return max(1e-9, best_pass(partial(each, policy.touch, keys)) - best_pass(partial(nothing, keys))) / ENTRIES


def one_use(name: str) -> float:
    """Seconds of one use of a resident array."""
    with lifetimes.open("host", memory_limit="64MiB", policy=name) as device:
        keys = resident(device.manager)
        return best_pass(partial(use_each, device.manager, keys)) / len(keys)


def by_threads(name: str, count: int) -> float:
    """Seconds of one use, of the processor and over all threads; the best of five."""
    with lifetimes.open("host", memory_limit="64MiB", policy=name) as device:
        manager = device.manager
        keys = resident(manager)
        parts = [Random(number).sample(keys, len(keys)) for number in range(count)]
        least = float("inf")
        for _ in range(5):
            start = threading.Barrier(count + 1)
            workers = [threading.Thread(target=work, args=(start, manager, part)) for part in parts]
            for worker in workers:
                worker.start()
            start.wait()
            began = process_time()
            for worker in workers:
                worker.join()
            least = min(least, (process_time() - began) / (count * len(keys)))
        return least


def work(start: threading.Barrier, manager: Any, keys: list[int]) -> None:
    start.wait()
    use_each(manager, keys)


def resident(manager: Any) -> list[int]:
    keys = [manager.add(256) for _ in range(ENTRIES)]
    for key in keys:
        with manager.use(key, "w"):
            pass
    return Random(7).sample(keys, len(keys))


def replays(trace: Trace) -> str:
    """The whole trace through the manager, nothing moved, beside caches that only count."""
    limit = 256 << 20
    cachetools, lru = __import__("cachetools"), __import__("lru")
    peer = best_pass(partial(through_cachetools, cachetools, trace, limit), fewest=3)
    rows = [["cachetools.LRUCache", nanoseconds(peer / len(trace)), "1.00x"]]
    entries = limit // (sum(trace.sizes) // len(trace))
    quick = best_pass(partial(through_lru_dict, lru, trace, entries), fewest=3)
    rows.append(["lru-dict (in C; counts entries, not bytes)", nanoseconds(quick / len(trace)), f"{quick / peer:.2f}x"])
    for name in for_programs():
        seconds = min(
            play(trace, backend="null", policy=name, limit=limit, clock=process_time).seconds for _ in range(3)
        )
        rows.append([f"the manager, `{name}`", nanoseconds(seconds / len(trace)), f"{seconds / peer:.2f}x"])
        say(f"replay with {name}")
    return markdown(["113,872 uses under 256 MiB", "time for each", "to cachetools"], rows)


def through_cachetools(cachetools: Any, trace: Trace, limit: int) -> None:
    cache = cachetools.LRUCache(limit, getsizeof=lambda nbytes: nbytes)
    for key, nbytes in zip(trace.keys, trace.sizes, strict=True):
        try:
            there = cache[key]
        except KeyError:
            there = -1
        if there != nbytes:
            cache[key] = nbytes


def through_lru_dict(lru: Any, trace: Trace, entries: int) -> None:
    cache = lru.LRU(entries)
    for key, nbytes in zip(trace.keys, trace.sizes, strict=True):
        if cache.get(key) != nbytes:
            cache[key] = nbytes


def each(call: Callable[[int], object], keys: list[int]) -> None:
    for key in keys:
        call(key)


def use_each(manager: Any, keys: list[int]) -> None:
    for key in keys:
        with manager.use(key):
            pass


def nothing(keys: list[int]) -> None:
    for _ in keys:
        pass


def say(what: str) -> None:
    """Progress."""
    print(f"  {what}", file=sys.stderr, flush=True)
