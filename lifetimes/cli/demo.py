"""Work on a data set four times the memory limit, check the result against NumPy, then find a planted leak.

The data are a matrix, kept in managed arrays of a few rows each.  Column statistics, a Gram matrix and its leading
eigenvectors (power iteration over the data) are computed while the arrays are evicted to the host and reloaded as the
memory limit demands.  NumPy computes the same from the same data, and the errors are printed.  Then a function leaves
an array behind, and the array is found, with the line that made it.  The exit status is 0 if all of that came right.
"""

from __future__ import annotations

import argparse
import json
from typing import Final

from lifetimes.cli.demo_json import as_json
from lifetimes.cli.demo_report import print_report
from lifetimes.cli.demo_steps import carry_out
from lifetimes.cli.failing import FAILED
from lifetimes.cli.own_parts import working_folder_importable

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES: Final = """\
examples:
  lifetimes demo                            256 MiB under a limit of 64 MiB
  lifetimes demo --limit 16MiB              64 MiB under a limit of 16 MiB
  lifetimes demo --data measured.npy        a matrix of your own
  lifetimes demo --table judy               its arrays in a Judy array
  lifetimes demo --table package.mod:Name   a table (or policy) of your own
  lifetimes demo --json > result.json       for a program"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    add = parser.add_argument
    add("--limit", metavar="SIZE", help='device memory to use: "64MiB", "10%%" of the device, or bytes (default: 64MiB, or '
        "a quarter of --data where that is less)")  # fmt: skip
    add(
        "--data", metavar="FILE.npy", help="a matrix of your own, real numbers of any width (default: one is generated)"
    )
    add("--backend", metavar="NAME", default="host", help="the back end (default: %(default)s)")
    add(
        "--device",
        metavar="INDEX",
        default="0",
        help='which of its devices, by number or name: "*nvidia*" (default: 0)',
    )
    add("--table", metavar="NAME", default="dict", help="the table of arrays (default: %(default)s)")
    add("--policy", metavar="NAME", default="lru", help="what is evicted first (default: %(default)s)")
    add("--quiet", action="store_true", help="no progress bar; there is none anyway unless stderr is a terminal")
    add("--json", action="store_true", help="print the summary as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Do it and print it."""
    with working_folder_importable():
        outcome = carry_out(arguments)
    if arguments.json:
        print(json.dumps(as_json(outcome), indent=2))
    else:
        print_report(outcome)
    return 0 if outcome.good else FAILED
