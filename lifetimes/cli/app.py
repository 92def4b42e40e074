"""`main`: run a command line, and turn whatever happens into a line and an exit status."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

from lifetimes.cli.commands import names
from lifetimes.cli.failing import BAD_INPUT, FAILED, INTERRUPTED, PIPE_CLOSED, InputError, one_line
from lifetimes.cli.parser import parse

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``lifetimes`` with these words (None: those of the process) and return the exit status.

    0 success, 1 failure, 2 bad input, 130 interrupted.  An error is one line on stderr; with ``--traceback`` the traceback
    stands before it.

    >>> main(["--version"])  # doctest: +ELLIPSIS
    lifetimes ...
    0
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        never_fail_to_print()
    try:
        try:
            parsed = parse(words)
            status = 0 if parsed is None else parsed[0].load().run(parsed[1])
        except SystemExit as stop:  # argparse: after help, and after its own line about an error
            status = stop.code if isinstance(stop.code, int) else 0
        sys.stdout.flush()  # here, where it can still be told that nobody reads
        return status
    except BrokenPipeError:
        with suppress(OSError, ValueError):
            # Python flushes stdout once more at exit, and that has to succeed.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except KeyboardInterrupt as error:
        tell(words, error, "interrupted")
        return INTERRUPTED
    except Exception as error:
        tell(words, error, one_line(error))
        return BAD_INPUT if isinstance(error, InputError) else FAILED


def tell(words: Sequence[str], error: BaseException, line: str) -> None:
    """The line on stderr."""
    if "--traceback" in words:
        traceback.print_exception(error)
    command = next((word for word in words if not word.startswith("-")), None)
    prefix = f"lifetimes {command}" if command in names() else "lifetimes"
    print(f"{prefix}: {line}", file=sys.stderr)


def never_fail_to_print() -> None:
    """A path or a label may hold what the terminal's encoding does not; a question mark is better than a traceback.

    Where stdout or stderr was closed by the caller, Python has None.
    """
    sys.stdout = sys.stdout or nowhere()
    sys.stderr = sys.stderr or nowhere()
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and getattr(stream, "errors", "") == "strict":
            reconfigure(errors="replace")


def nowhere() -> TextIO:
    """What is written there is lost.  It is open until the process ends."""
    return open(os.open(os.devnull, os.O_WRONLY), "w", closefd=False)
