"""Freeing what the tracebacks of an exception hold."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

__all__ = ["chain", "clear_tracebacks"]


def chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, those that it came from, and the members of groups; each once.

    >>> inner, outer = ValueError(), TypeError()
    >>> outer.__cause__ = inner
    >>> [type(each).__name__ for each in chain(ExceptionGroup("both", [outer]))]
    ['ExceptionGroup', 'TypeError', 'ValueError']
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [each.__context__, each.__cause__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions


def clear_tracebacks(error: BaseException) -> None:
    """Drop the variables of every call that the tracebacks of ``error`` and its `chain` hold.

    The exceptions, and where they were raised, can still be printed.  Calls that are still running are left alone.
    """
    for each in chain(error):
        traceback: TracebackType | None = each.__traceback__
        while traceback is not None:
            frame = traceback.tb_frame
            try:
                frame.clear()
            except RuntimeError:  # it is running
                pass
            else:
                frame.f_locals  # noqa: B018  (before Python 3.13 a look drops what an earlier look has kept)
            traceback = traceback.tb_next
