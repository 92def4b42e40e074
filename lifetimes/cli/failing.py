"""How a command fails: one line on stderr and a status that a script can read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from lifetimes.errors import LifetimesError

__all__ = ["BAD_INPUT", "FAILED", "INTERRUPTED", "PIPE_CLOSED", "InputError", "bad_input", "one_line", "readable"]

FAILED: Final = 1
"""The command did not succeed."""
BAD_INPUT: Final = 2
"""What was asked for cannot be done as it was said."""
INTERRUPTED: Final = 130
"""Ctrl-C; 128 and the number of the signal, as shells have it."""
PIPE_CLOSED: Final = 141
"""Whoever read the output has gone; the same rule."""


class InputError(LifetimesError, ValueError):
    """What the user gave cannot be used.  The message says what, and the way out."""


@contextmanager
def bad_input(what: str = "") -> Iterator[None]:
    """Make the library's `ValueError` and `TypeError` inside the block the user's: the block only looks at input.

    >>> with bad_input("--limit"):
    ...     raise ValueError("'x' is no size")
    Traceback (most recent call last):
    lifetimes.cli.failing.InputError: --limit: 'x' is no size
    """
    try:
        yield
    except InputError:
        raise
    except (ValueError, TypeError) as error:
        said = "; ".join([str(error), *getattr(error, "__notes__", ())])
        raise InputError(f"{what}: {said}" if what else said) from error


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Make an `OSError` inside the block the user's: the block only reads this file.

    >>> with readable("no.json"):
    ...     raise FileNotFoundError(2, "No such file or directory", "no.json")
    Traceback (most recent call last):
    lifetimes.cli.failing.InputError: 'no.json' cannot be read: No such file or directory
    """
    try:
        yield
    except OSError as error:
        raise InputError(f"{path!r} cannot be read: {error.strerror or error}") from error


def one_line(error: BaseException) -> str:
    r"""The error as one line: its message, and those inside a group of several.

    >>> one_line(ExceptionGroup("closing failed", [OSError("no\n  bus"), KeyError("x")]))
    "closing failed: no bus; KeyError: 'x'"
    """
    if isinstance(error, BaseExceptionGroup):
        return f"{error.message}: {'; '.join(one_line(each) for each in error.exceptions)}"
    text = " ".join(str(error).split())
    if isinstance(error, (LifetimesError, OSError, MemoryError)):
        return text or type(error).__name__
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
