"""Replay a recorded trace through the memory manager, and compare tables, policies and limits.

TRACE holds uses, in the columns time,key,nbytes and optionally op (r, w or rw), or allocations, as RMM logs them in the
columns Thread,Time,Action,Pointer,Size,Stream.  It may be gzipped.  Every combination of --table, --policy and --limit is
replayed on a device of its own: memory is allocated, content is uploaded, evicted and copied back, and afterwards
compared, outside of the time.  On the back end "null" nothing is moved, and what is measured is the manager.

A key that comes with another size is a new array in the place of the old one, which is counted.  A malformed line stops
the replay and is named by its number.  The exit status is 1 if an array did not hold what it should.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any, Final

from lifetimes import policies, registry, tables
from lifetimes.cli.failing import FAILED, InputError, bad_input, readable
from lifetimes.cli.own_parts import working_folder_importable
from lifetimes.cli.parser import nearest
from lifetimes.cli.replay_report import ReplayProgress, print_report
from lifetimes.errors import BackendError
from lifetimes.replay.play import Played, play
from lifetimes.replay.plot import check_plot_file, plot_curves
from lifetimes.replay.trace import OPS, Trace, read_trace
from lifetimes.sizes import parse_limit, parse_size

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES: Final = """\
examples:
  lifetimes replay uses.csv.gz                 under a tenth of what it takes
  lifetimes replay uses.csv --policy lru,sieve --limit 64MiB,1GiB
  lifetimes replay uses.csv --table dict,judy --backend null
                                               the cost of the manager alone
  lifetimes replay uses.csv --policy my.module:MyPolicy
                                               a policy of your own
  lifetimes replay uses.csv --policy lru,s3fifo --plot misses.svg
  lifetimes replay rmm_log.csv --limit 8GiB --json
                                               what a program allocated"""

DEFAULT_LIMIT: Final = "10%"
PLOTTED: Final = 8
"""Limits of a plot, where none are given: from a half of the footprint down by halves."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    add = parser.add_argument
    add("trace", metavar="TRACE", help="the file, plain or gzipped")
    add("--backend", metavar="NAME", default="host", help='the back end; "null" moves no data (default: %(default)s)')
    add("--table", metavar="NAMES", default="dict", help="tables of arrays, with commas between (default: %(default)s)")
    add(
        "--policy", metavar="NAMES", default="lru", help="eviction policies, with commas between (default: %(default)s)"
    )
    add("--limit", metavar="SIZES", help='limits of device memory, with commas between: "64MiB", bytes, or "10%%" of what '
        "the trace would take (default: 10%%; for a plot eight sizes)")  # fmt: skip
    add("--op", metavar="OP", choices=tuple(OPS), default="r",
        help="what a use does where the trace has no such column: r, w or rw (default: %(default)s)")  # fmt: skip
    add("--strict-sizes", action="store_true", help="take a key that changes its size for a malformed line")
    add("--skip-bad-lines", action="store_true", help="count malformed lines and pass over them")
    add("--plot", metavar="FILE", help="draw miss-ratio curves with Belady's line: .svg, .png or .pdf")
    add("--no-check", action="store_true", help="do not compare the content afterwards")
    add("--quiet", action="store_true", help="no progress bar; there is none anyway unless stderr is a terminal")
    add("--json", action="store_true", help="print the figures as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Do it and print it."""
    with working_folder_importable():
        chosen_tables, chosen_policies = check(arguments)
        with ReplayProgress(quiet=arguments.quiet) as progress:
            trace = read(arguments, progress)
            limits = parse_limits(arguments.limit, trace, plotted=arguments.plot is not None)
            runs = [
                one(arguments, trace, table, policy, limit, progress)
                for limit in limits
                for table in chosen_tables
                for policy in chosen_policies
            ]
            if arguments.plot is not None:
                plot(arguments, trace, runs, limits, progress)
    if arguments.json:
        print(json.dumps(as_json(trace, runs), indent=2))
    else:
        print_report(trace, runs, plot=arguments.plot)
    return FAILED if any(each.wrong for each in runs) else 0


def check(arguments: argparse.Namespace) -> tuple[list[str], list[str]]:
    """The tables and the policies.  Errors: `InputError` for what is not there, before anything is read."""
    chosen_tables, chosen_policies = listed(arguments.table, "--table"), listed(arguments.policy, "--policy")
    for table in chosen_tables:
        with bad_input("--table"):
            tables.make(table)
    for policy in chosen_policies:
        with bad_input("--policy"):
            policies.make(policy)
    name = arguments.backend
    if name != "null":
        if name not in registry.names():
            names = (*registry.names(), "null")
            raise InputError(
                f"--backend: no back end is called {name!r}{nearest(name, names)}; there are {', '.join(names)}"
            )
        usable = registry.find(name).usability()
        if not usable.usable:
            why = f"{usable.reason}. {usable.remedy}".strip(". ")
            raise BackendError(f"--backend: {name!r} cannot be used here: {why}")
    if arguments.plot is not None:
        with bad_input("--plot"):
            check_plot_file(arguments.plot)
    return chosen_tables, chosen_policies


def listed(text: str, option: str) -> list[str]:
    """The names in a list with commas, each once."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise InputError(f"{option}: {text!r} has an empty name; put one comma between two names")
    return list(dict.fromkeys(names))


def read(arguments: argparse.Namespace, progress: ReplayProgress) -> Trace:
    """The trace.  Errors: `InputError`."""
    with readable(arguments.trace), bad_input():
        return read_trace(
            arguments.trace,
            strict_sizes=arguments.strict_sizes,
            skip_bad_lines=arguments.skip_bad_lines,
            progress=progress.of("read the trace"),
        )


def parse_limits(text: str | None, trace: Trace, *, plotted: bool) -> list[int]:
    """The limits in bytes, ascending.  Errors: `InputError`."""
    footprint = max(trace.footprint(), 1)
    if text is None and plotted:
        return sorted({max(footprint >> halvings, 4096) for halvings in range(1, PLOTTED + 1)})
    limits = []
    for each in listed(text or DEFAULT_LIMIT, "--limit"):
        with bad_input():
            limits.append(
                parse_limit(each, footprint, "--limit") if each.endswith("%") else parse_size(each, "--limit")
            )
    return sorted(set(limits))


def one(
    arguments: argparse.Namespace, trace: Trace, table: str, policy: str, limit: int, progress: ReplayProgress
) -> Played:
    """One replay.  Errors: `InputError` for a limit that the device refuses."""
    total = len(trace)
    step = progress.of(f"{policy}, {table}, {limit:,} bytes")
    try:
        return play(
            trace,
            backend=arguments.backend,
            table=table,
            policy=policy,
            limit=limit,
            default_op=OPS[arguments.op],
            check=not arguments.no_check,
            progress=lambda done: step(done, total),
        )
    except ValueError as error:
        if "memory_limit" in str(error):
            raise InputError(str(error).replace("memory_limit", "--limit", 1)) from error
        raise


def plot(
    arguments: argparse.Namespace, trace: Trace, runs: list[Played], limits: list[int], progress: ReplayProgress
) -> None:
    """The curves of the first table, and Belady's, which moves nothing."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for each in runs:
        if each.table == runs[0].table:
            curves.setdefault(each.policy, []).append((each.limit, each.miss_ratio))
    if "belady" not in curves:
        step = progress.of("Belady's line")
        for done, limit in enumerate(limits, 1):
            best = play(trace, backend="null", policy="belady", limit=limit, default_op=OPS[arguments.op])
            curves.setdefault("belady", []).append((limit, best.miss_ratio))
            step(done, len(limits))
    plot_curves(curves, arguments.plot, title=trace.name)


def as_json(trace: Trace, runs: list[Played]) -> dict[str, Any]:
    """For programs.  Bytes and seconds."""
    return {
        "trace": {
            "name": trace.name,
            "kind": "allocations" if trace.allocations else "uses",
            "events": len(trace),
            "keys": len(set(trace.keys)),
            "footprint_bytes": trace.footprint(),
            "size_changes": trace.changes,
            "bad_lines": trace.bad_lines,
            "failures": trace.failures,
        },
        "runs": [
            {
                **asdict(each),
                "miss_ratio": each.miss_ratio,
                "seconds_per_use": each.seconds_per_use,
                "lookup_share": each.lookup_share,
            }
            for each in runs
        ],
    }
