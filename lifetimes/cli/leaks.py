"""Run a Python program, unchanged, and say what it leaves alive: what, made at which line, held by what.

The program runs as it would by itself, with its own arguments.  What is alive when it has ended, when its threads have
returned and its exit handlers have run, counts as leaked, unless a top-level variable of the program names it (or an
object that holds it).  Lists and dicts, caches, closures, suspended generators, thread-locals, tracebacks and class
attributes do not count as such names, since that is how things pile up: --keep lets one of them pass.  With --track,
the handles of other libraries are followed too.

The report goes to stderr, after Ctrl-C in the program, too.  The exit status is that of the program if it failed, else 1
if something leaked, else 0.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import CodeType
from typing import Any, Final

from rich.console import Console, Group
from rich.text import Text

from lifetimes.cli.failing import FAILED, InputError, readable
from lifetimes.cli.leaks_files import check_path, save
from lifetimes.leaks import History, Report, live
from lifetimes.leaks.program import judge, module_code, script_code
from lifetimes.leaks.program import run as run_program
from lifetimes.leaks.rmm import AllocationLog
from lifetimes.leaks.text import as_text, renderable
from lifetimes.leaks.tracking import TRACKERS, tracking
from lifetimes.origins import DEPTH, record_at_least
from lifetimes.sizes import format_bytes

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES: Final = """\
examples:
  lifetimes leaks train.py --epochs 3          a program that uses lifetimes
  lifetimes leaks --track pyopencl run.py      one that uses PyOpenCL only
  lifetimes leaks --html leaks.html train.py   and a page of memory over time
  lifetimes leaks --stacks full -m package     the calls to each line, too
  lifetimes leaks --keep pool train.py         `pool` may hold what it does"""


FILES: Final = ("html", "json", "trace", "csv")
"""The options that name a file to write."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, and the program with its own."""
    known = ", ".join(TRACKERS)
    parser.add_argument("--track", metavar="LIBRARIES", type=libraries, default=(),
                        help=f"follow the handles of these libraries, too, separated by commas: {known}")  # fmt: skip
    parser.add_argument("--stacks", choices=("line", "full"), default="line",
                        help="what to record of where things are made (default: %(default)s)")  # fmt: skip
    parser.add_argument("--depth", metavar="CALLS", type=calls, default=DEPTH,
                        help="the most calls that --stacks full records (default: %(default)s)")  # fmt: skip
    parser.add_argument("--html", metavar="FILE", help="write a page that can be opened in any browser")
    parser.add_argument("--json", metavar="FILE", help="write the report for a program, and for `lifetimes diff`")
    parser.add_argument("--trace", metavar="FILE", help="write a trace for ui.perfetto.dev or chrome://tracing")
    parser.add_argument("--csv", metavar="FILE", help="write what the drivers were asked for, as a log of RMM has it")
    parser.add_argument("--keep", metavar="NAME", action="append", default=[],
                        help="a top-level variable of the program that may hold what it does; may be given again")  # fmt: skip
    parser.add_argument("--strict", action="store_true", help="count everything that is alive at the end")
    parser.add_argument("-m", dest="module", metavar="MODULE ...", nargs=argparse.REMAINDER,
                        help="run a module as `python -m` does; everything after it is the program's")  # fmt: skip
    parser.add_argument("program", metavar="SCRIPT ...", nargs=argparse.REMAINDER, help="the program and its arguments")


def run(arguments: argparse.Namespace) -> int:
    """Run the program, judge, report."""
    words = arguments.module if arguments.module is not None else arguments.program
    if not words:
        raise InputError("there is no program to run; give a script, or -m and a module")
    paths = {name: path for name in FILES if (path := getattr(arguments, name)) is not None}
    for name, path in paths.items():
        check_path(path)
        setattr(arguments, name, os.path.abspath(path))  # the program may change the folder
    code, about, folder = load(words[0], arguments.module is not None)
    history = History() if paths else None
    try:
        with tracking(*arguments.track) as trackers, recording(arguments, history):
            before = frozenset(row.key for row in live())
            process = os.getpid()
            ended = run_program(code, about, folder, [about["__file__"] or words[0], *words[1:]])
            if os.getpid() != process:  # a child that the program forked; nothing in it is its own
                return ended.status
            for name in arguments.keep:
                if name not in ended.namespace:
                    print(f"lifetimes leaks: --keep: the program has no top-level variable {name!r}", file=sys.stderr)
            report = judge(
                ended, before, trackers=trackers, keep=arguments.keep, strict=arguments.strict, history=history
            )
    except ImportError as error:
        raise InputError(f"--track: {error}") from error
    show(report)
    save(report, html=arguments.html, json=arguments.json, trace=arguments.trace)
    return ended.status or (FAILED if report.leaked else 0)


def load(name: str, as_module: bool) -> tuple[CodeType, dict[str, Any], str]:
    """The program.  Errors: `InputError` for one that is not there or does not compile."""
    with readable(name):
        try:
            return module_code(name) if as_module else script_code(name)
        except SyntaxError as error:
            raise InputError(f"{name}: line {error.lineno}: {error.msg}") from error
        except (ImportError, ValueError) as error:
            raise InputError(str(error)) from error


def libraries(text: str) -> tuple[str, ...]:
    """Names from ``a,b``.

    >>> libraries("pyopencl,cupy")
    ('pyopencl', 'cupy')
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in TRACKERS:
            raise argparse.ArgumentTypeError(f"{name!r} cannot be tracked; there are {', '.join(TRACKERS)}")
    return names


def calls(text: str) -> int:
    """A number of calls."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of calls from 1 on")
    return int(text)


@contextmanager
def recording(arguments: argparse.Namespace, history: History | None) -> Iterator[None]:
    """What has to be on while the program runs."""
    with ExitStack() as stack:
        if arguments.csv is not None:
            stack.enter_context(AllocationLog(arguments.csv))
        if history is not None:
            stack.enter_context(history)
        before = record_at_least(arguments.stacks, arguments.depth)
        stack.callback(record_at_least, *before)
        yield


def show(report: Report) -> None:
    """The report on stderr, and in the end one line that says it all."""
    leaks = report.leaks
    size = format_bytes(sum(row.nbytes for row in leaks))
    last = Text(f"lifetimes leaks: {len(leaks):,} leaked, {size}", "bold red") if leaks else (
        Text("lifetimes leaks: nothing leaked", "bold green"))  # fmt: skip
    content = Group("", renderable(report), last)
    if sys.stderr.isatty():
        Console(stderr=True, highlight=False).print(content)
    else:
        sys.stderr.write(as_text(content))
