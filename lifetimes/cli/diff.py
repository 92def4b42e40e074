"""Compare two reports that `lifetimes leaks --json` or an exit report wrote.

Reports of one process are compared thing by thing, reports of two runs by what things have in common.  The exit status is 1
if the second one has something that the first one does not have, else 0.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Final

from lifetimes.cli.console import Output
from lifetimes.cli.failing import FAILED, bad_input, readable
from lifetimes.leaks import Snapshot, diff
from lifetimes.leaks.document import load
from lifetimes.leaks.filters import BY, key_for
from lifetimes.leaks.text import difference_renderable

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES: Final = """\
examples:
  lifetimes diff before.json after.json                by kind and line
  lifetimes diff before.json after.json --by device    by something else
  lifetimes diff before.json after.json --json         for a program"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The two reports, and how to show it."""
    parser.add_argument("before", help="a report")
    parser.add_argument("after", help="a later one")
    parser.add_argument("--by", metavar="WHAT", default="kind,line",
                        help=f"what to compare by, separated by commas: {', '.join(BY)} (default: %(default)s)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Read, compare, print."""
    by = tuple(name.strip() for name in arguments.by.split(","))
    with bad_input("--by"):
        key_for(by)
    difference = diff(read(arguments.before), read(arguments.after))
    if arguments.json:
        growth = [{**asdict(each), "count": each.count, "nbytes": each.nbytes} for each in difference.by(by)]
        print(
            json.dumps(
                {"same_process": difference.same_process, "grown": difference.grown, "by": by, "groups": growth},
                indent=2,
            )
        )
    else:
        Output().print(difference_renderable(difference, by))
    return FAILED if difference.grown else 0


def read(path: str) -> Snapshot:
    """The snapshot of a report.  Errors: `InputError` for a file that is none, or not there."""
    with readable(path), bad_input():
        return load(path).snapshot
