"""Measure this machine: tables, eviction policies, the pool, and launches.

What is compared is what can be chosen.  For each figure the median of many short rounds is printed, so a machine that is
busy now and then does no harm; one that is busy all the time does.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from dataclasses import asdict
from typing import Final

from rich.table import Table

import lifetimes
from lifetimes import registry
from lifetimes.cli.bench_measure import Figure
from lifetimes.cli.bench_parts import PARTS
from lifetimes.cli.console import Output
from lifetimes.cli.failing import InputError
from lifetimes.cli.parser import nearest
from lifetimes.cli.replay_report import ReplayProgress
from lifetimes.errors import BackendError
from lifetimes.sizes import format_bytes

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES: Final = """\
examples:
  lifetimes bench                           all of it, in about a minute
  lifetimes bench tables --keys 1000000     the tables when they are large
  lifetimes bench eviction pool --json      some of it, for a program"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    add = parser.add_argument
    add("part", metavar="PART", nargs="*", help=f"which of {', '.join(PARTS)} (default: all)")
    add("--backend", metavar="NAME", default="host", help='the back end; "null" moves no data (default: %(default)s)')
    add("--keys", metavar="COUNT", type=positive, default=100_000, help="keys in a table (default: %(default)s)")
    add("--seconds", metavar="SECONDS", type=seconds, default=0.4, help="for each figure (default: %(default)s)")
    add("--quiet", action="store_true", help="no progress bar; there is none anyway unless stderr is a terminal")
    add("--json", action="store_true", help="print the figures as JSON, in seconds")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print."""
    parts = arguments.part or list(PARTS)
    for part in parts:
        if part not in PARTS:
            raise InputError(f"there is no part {part!r}{nearest(part, PARTS)}; there are {', '.join(PARTS)}")
    check_backend(arguments.backend)
    figures: list[Figure] = []
    done: set[str] = set()
    with ReplayProgress(quiet=arguments.quiet) as progress:
        step = progress.of("measure")
        for number, part in enumerate(dict.fromkeys(parts)):
            for figure in PARTS[part](arguments):
                done.add(part)
                figures.append(figure)
                step(number, len(parts))
    if arguments.json:
        print(
            json.dumps({"machine": machine(), "keys": arguments.keys, "figures": list(map(asdict, figures))}, indent=2)
        )
    else:
        console = Output()
        for part in dict.fromkeys(figure.part for figure in figures):
            console.print(as_table(part, [figure for figure in figures if figure.part == part], arguments.keys))
            console.print()
        for part in parts:
            if part not in done:
                console.print(
                    f"{part}: nothing to measure on {arguments.backend!r}, whose memory Python functions cannot see"
                )
    return 0


def check_backend(name: str) -> None:
    """Errors: `InputError` for an unknown back end, `BackendError` for one that cannot be used here."""
    if name == "null":
        return
    names = (*registry.names(), "null")
    if name not in names:
        raise InputError(
            f"--backend: no back end is called {name!r}{nearest(name, names)}; there are {', '.join(names)}"
        )
    usable = registry.find(name).usability()
    if not usable.usable:
        raise BackendError(f"--backend: {name!r} cannot be used here: {usable.reason}. {usable.remedy}".strip(". "))


def as_table(part: str, figures: list[Figure], keys: int) -> Table:
    """A row for each subject, a column for each operation."""
    title = f"tables of {keys:,} random keys" if part == "tables" else part
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    operations = list(dict.fromkeys(figure.operation for figure in figures))
    subjects = list(dict.fromkeys(figure.subject for figure in figures))
    if len(subjects) * len(operations) > 2 * len(figures):  # mostly gaps: a line for each figure
        for name in ("", "", ""):
            table.add_column(name)
        for figure in figures:
            table.add_row(figure.subject, figure.operation, shown(figure))
        return table
    table.add_column("")
    for operation in operations:
        table.add_column(operation, justify="right")
    for subject in subjects:
        cells = {figure.operation: shown(figure) for figure in figures if figure.subject == subject}
        table.add_row(subject, *(cells.get(operation, "") for operation in operations))
    return table


def shown(figure: Figure) -> str:
    """For people.

    >>> shown(Figure("pool", "host", "take", 2.5e-6)), shown(Figure("eviction", "host", "evict", 1.0, 2**30))
    ('2.5 us', '1 GiB/s')
    """
    if figure.nbytes:
        return f"{format_bytes(figure.rate)}/s"
    for unit, scale in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)):
        if figure.seconds < 999.5 * scale:
            return f"{figure.seconds / scale:.3g} {unit}"
    return f"{figure.seconds:.3g} s"


def machine() -> dict[str, object]:
    """What figures depend on."""
    return {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "lifetimes": lifetimes.__version__,
    }


def positive(text: str) -> int:
    """An option's number.  Errors: argparse's for anything below 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"give 1 or more, not {number}")
    return number


def seconds(text: str) -> float:
    """An option's seconds.  Errors: argparse's for what is no positive number."""
    number = float(text)
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"give a number of seconds above 0, not {text}")
    return number
