"""Say which back ends, tables and policies work here, why the others do not, and what would make them work.

Every back end is tried with a program of three elements, in a process of its own: if a vendor's library crashes, that
is a line in the table.  The exit status is 0 if at least the back end "host" works.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Final

from lifetimes.cli.doctor_diagnosis import diagnose
from lifetimes.cli.doctor_report import print_report
from lifetimes.cli.failing import FAILED

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES: Final = """\
examples:
  lifetimes doctor                  the table
  lifetimes doctor --json           the same for a program, or for a bug report
  lifetimes doctor --backend host   only one of them"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("--backend", metavar="NAME", help="examine only this back end, which then decides the status")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--no-isolate", action="store_true", help="try the back ends in this process, crash or not")
    parser.add_argument("--timeout", metavar="SECONDS", type=seconds, default=60.0,
                        help="how long one back end may take (default: %(default)g)")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Examine and print."""
    diagnosis = diagnose(arguments.backend, isolate=not arguments.no_isolate, seconds=arguments.timeout)
    if arguments.json:
        print(json.dumps({"healthy": diagnosis.healthy, **asdict(diagnosis)}, indent=2))
    else:
        print_report(diagnosis)
    return 0 if diagnosis.healthy else FAILED


def seconds(text: str) -> float:
    """A positive number."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number of seconds")
    return number
