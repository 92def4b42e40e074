"""Compiled functions against NumPy, numexpr, numba, JAX and Dr.Jit, at three sizes and two dtypes; fills ``jit-figures.md``.

All contenders of one cell run in one process, in turn, and what each computes is compared with NumPy's (or JAX's) result.
``python -m bench.study_jit DTYPE COUNT THREADS`` prints one table's cells as JSON, ``launch`` those of a launch; `publish` does
them all.  With one thread
the whole process is held to one processor, which is the only way to hold JAX to one.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any, Final

import numpy as np
import pytest

import lifetimes
from bench.jit_work import PEERS, PROGRAMS, content, ours, prepare
from bench.study import DOCS, apart, best_pass, markdown, nanoseconds, stamp, write_parts

__all__ = ["launches", "measure", "publish"]

COUNTS: Final = (1_000, 100_000, 10_000_000)
DTYPES: Final = ("float64", "float32")
THREADS: Final = (1, 2)
PAGE: Final = DOCS / "jit-figures.md"


def measure(dtype: str, count: int, threads: int) -> dict[str, dict[str, float]]:
    """For each program the median seconds of each contender."""
    os.environ.setdefault("NUMEXPR_NUM_THREADS", str(threads))
    if threads == 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    from lifetimes.compiler import settings

    found: dict[str, dict[str, float]] = {}
    with lifetimes.open("host", memory_limit="8GiB") as device, settings.using(threads=threads):
        for program in PROGRAMS:
            host = content(program, dtype, count)
            compute, result = ours(program, device, host)
            contenders: dict[str, Callable[[], Any]] = {"lifetimes": compute}
            for peer in PEERS:
                try:
                    theirs = prepare(program, peer, host)
                except pytest.skip.Exception:
                    continue
                if theirs is not None:
                    contenders[peer] = theirs
            compute()
            tolerance = 1e-9 if dtype == "float64" else 2e-2  # numexpr adds up float32 in one accumulator, 1.4 % off
            for peer, theirs in contenders.items():
                if peer != "lifetimes":
                    np.testing.assert_allclose(np.asarray(theirs()), result(), rtol=tolerance, atol=tolerance)
            found[program] = _in_turn(contenders, 0.1 if count < 10_000_000 else 1.0)
            print(f"  {dtype} {count:>10,} {threads} {program}", file=sys.stderr, flush=True)
    return found


def launches() -> dict[str, float]:
    """Seconds of a call with one element, by who makes it; and of parts of ours."""
    program = "a*x + y*sin(x)"
    host = content(program, "float64", 1)
    with lifetimes.open("host", memory_limit="64MiB") as device:
        compiled = lifetimes.jit(lambda x, y: 2.5 * x + y * np.sin(x))
        x, y = (device.asarray(each) for each in host)
        out, manager = device.empty(1), device.manager

        def storage() -> None:
            manager.release(manager.add(8))

        contenders: dict[str, Callable[[], Any]] = {
            "into a new array": lambda: compiled(x, y),
            "into an array that is there": lambda: compiled.into(out, x, y),
            "a lifetime that is made and dropped": lambda: lifetimes.Lifetime(1, _nothing, 2, parents=(device,)),
            "storage that is added and released, by the manager's public calls": storage,
        }
        for peer in PEERS:
            try:
                theirs = prepare(program, peer, host)
            except pytest.skip.Exception:
                continue
            if theirs is not None:
                contenders[peer] = theirs
        return {name: best_pass(_thousand(run), seconds=0.5) / 1000 for name, run in contenders.items()}


def _nothing(value: object) -> None:
    """A finalizer."""


def _thousand(run: Callable[[], object]) -> Callable[[], None]:
    def loop() -> None:
        for _ in range(1000):
            run()

    return loop


def _in_turn(contenders: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Rounds in which each runs for about a tenth of the time, or once; the medians.

    Before each is measured it runs once: what it finds in the caches is its own, not what another left there.
    """
    repeats: dict[str, int] = {}
    for name, run in contenders.items():
        run()
        began = perf_counter()
        run()
        repeats[name] = max(1, int(seconds / 10 / max(perf_counter() - began, 1e-7)))
    rounds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(9 if seconds < 1 else 5):
        for name, run in contenders.items():
            run()
            began = perf_counter()
            for _ in range(repeats[name]):
                run()
            rounds[name].append((perf_counter() - began) / repeats[name])
    return {name: median(each) for name, each in rounds.items()}


def publish() -> None:
    """Measure everything and write the page.  Takes a few minutes."""
    parts = {"where": stamp(), "launch": _launch_table(apart("bench.study_jit", "launch"))}
    for dtype in DTYPES:
        for count in COUNTS:
            for threads in THREADS:
                cells = apart("bench.study_jit", dtype, count, threads)
                parts[f"{dtype} {count} {threads}"] = _table(cells, count, dtype, threads)
    write_parts(PAGE, parts)


def _launch_table(times: dict[str, float]) -> str:
    return markdown(["one element", "processor time"], [[name, nanoseconds(each)] for name, each in times.items()])


def _table(cells: dict[str, dict[str, float]], count: int, dtype: str, threads: int) -> str:
    head = [f"{count:,} {dtype}, {threads} thread{'s' * (threads > 1)}", "lifetimes", *PEERS]
    rows = []
    for program, times in cells.items():
        mine = times["lifetimes"]
        rows.append(
            [
                f"`{program}`",
                nanoseconds(mine),
                *[f"{times[peer] / mine:.2g}x" if peer in times else "" for peer in PEERS],
            ]
        )
    return markdown(head, rows)


if __name__ == "__main__":
    launch = sys.argv[1:] == ["launch"]
    print(json.dumps(launches() if launch else measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
