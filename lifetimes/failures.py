"""Where the failure of a finalizer goes: one channel for each place, nothing dropped.

========================================  =====================================================================
where                                     channel
========================================  =====================================================================
``close()``                               everything runs, then one `ExceptionGroup` is raised
``__exit__`` with an exception in flight  notes on that exception, which wins
drop, safe point, `drain`, exit           `CleanupWarning`; if that raises, `sys.unraisablehook`
an interrupt inside a finalizer           counts as the finalizer's failure and is delivered again when all have run
========================================  =====================================================================
"""

from __future__ import annotations

import warnings
from _thread import interrupt_main
from collections.abc import Iterator
from functools import partial
from itertools import repeat, starmap
from opcode import opmap
from typing import Any, Final, TypeAlias

from lifetimes._typing import Finalizer
from lifetimes.cell import Armed, Cell, describe, recipes
from lifetimes.errors import CleanupWarning

__all__ = [
    "Failure",
    "add_notes",
    "at_first_instruction",
    "error_in_words",
    "in_words",
    "interrupt_among",
    "interrupts",
    "raise_all",
    "report",
    "run_rest",
    "warn",
]

Failure: TypeAlias = "tuple[Cell, Finalizer | None, BaseException]"
"""What was being released, the finalizer that raised (None: an interrupt struck between them), and what it raised."""

interrupts: Iterator[Any] = starmap(interrupt_main, repeat(()))
"""Each step is a new Ctrl-C.  Advanced by a ``for`` it strikes after the function that does so, a call would raise at
once: ``__del__`` must not raise, and the code around it should."""

_RESUME: Final = opmap["RESUME"]


def run_rest(
    cell: Cell, armed: list[Armed], at: int, error: BaseException, failures: list[Failure] | None
) -> list[Failure]:
    """One finalizer raised: note it, and run those after it."""
    if failures is None:
        failures = []
    _note(cell, armed, at, error, failures)
    for later in range(at + 1, len(armed)):
        try:
            for _ in armed[later]:
                pass
        except BaseException as another:
            _note(cell, armed, later, another, failures)
    return failures


def _note(cell: Cell, armed: list[Armed], at: int, error: BaseException, failures: list[Failure]) -> None:
    """Note what a finalizer raised.  If an interrupt kept it from beginning it runs now (reaper, Note [Interrupts])."""
    function, args = recipes(cell)[at]
    while isinstance(error, KeyboardInterrupt):
        if at_first_instruction(error, function):
            armed[at] = starmap(function, (args,))
        ran = False
        try:
            for _ in armed[at]:  # nothing is left in it if the interrupt struck inside the finalizer, or after it
                ran = True
        except BaseException as another:
            failures.append((cell, None, error))
            error = another
        else:
            outside = ran or error.__traceback__ is None or error.__traceback__.tb_next is None
            failures.append((cell, None if outside else function, error))
            del error  # the traceback of a second one holds this frame
            return
    failures.append((cell, function, error))
    del error


def report(failures: list[Failure]) -> BaseException | None:
    """Warn of each failure, and empty the list.  Returns the interrupt among them, which the caller delivers again."""
    interrupt: BaseException | None = None
    for failure in take(failures):
        if isinstance(failure[2], KeyboardInterrupt):
            interrupt = failure[2]
        else:
            try:
                warn(f"{in_words(failure)}; the others ran", failure[2])
            except KeyboardInterrupt as error:  # the rest is told all the same
                interrupt = error
    try:
        return interrupt
    finally:
        del interrupt


def take(failures: list[Failure]) -> list[Failure]:
    """What is in the list, which is empty afterwards.

    The traceback of a finalizer's error holds the frame of the release, which holds the list: with the error left in it,
    they and all the callers' variables would stay until the next collection.
    """
    taken = failures[:]
    failures.clear()
    return taken


def raise_all(failures: list[Failure], what: str) -> None:
    """Raise what the finalizers raised as one group; an interrupt among them is raised itself, the rest as its notes."""
    if not failures:
        return
    interrupt = interrupt_among(failures)
    failures = take(failures)
    for failure in failures:
        failure[2].add_note(in_words(failure))
    errors = [failure[2] for failure in failures]
    if interrupt is not None:
        add_notes(interrupt, [failure for failure in failures if failure[2] is not interrupt])
        try:
            raise interrupt
        finally:
            del interrupt, errors, failures, failure  # its traceback holds this frame
    # An ExceptionGroup, unless one of them (SystemExit, say) is no Exception.
    raise BaseExceptionGroup(f"{len(errors)} finalizer(s) failed while closing {what}", errors)


def interrupt_among(failures: list[Failure]) -> BaseException | None:
    """The first Ctrl-C among the failures."""
    return next((error for _, _, error in failures if isinstance(error, KeyboardInterrupt)), None)


def add_notes(error: BaseException, failures: list[Failure]) -> None:
    """Hang the failures on an exception that is already in flight, and empty the list."""
    for failure in take(failures):
        error.add_note(f"while cleaning up: {in_words(failure)}")


def warn(message: str, cause: BaseException | None = None) -> None:
    """A `CleanupWarning` where no caller can be raised to; if a filter or hook makes it raise, `sys.unraisablehook`."""
    try:
        warnings.warn(CleanupWarning(message), stacklevel=3)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, CleanupWarning) and cause is not None:
            error.__cause__ = cause
        _Unraisable(error)


class _Unraisable:
    """Dies at once, and raises where nobody can catch it.

    ``sys.unraisablehook`` cannot be called by hand: the interpreter's own takes only what the interpreter made for it.
    """

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __del__(self) -> None:
        error = self.error
        del self.error  # the traceback will hold this frame
        try:
            raise error
        finally:
            del error


def in_words(failure: Failure) -> str:
    """Which finalizer of what failed how, and where."""
    cell, function, error = failure
    text = error_in_words(error)
    if function is None:
        return f"{text} while {describe(cell)} was released"
    name = getattr(function, "__qualname__", None) or type(function).__name__
    return f"finalizer {name} of {describe(cell)} failed: {text}"


def at_first_instruction(error: BaseException, function: object) -> bool:
    """Whether ``error``, caught where ``function`` was called, struck before that had run anything: a signal handler or
    a tracer raised it at the instruction that every Python function begins with."""
    traceback = error.__traceback__ and error.__traceback__.tb_next
    if traceback is None:
        return False
    code = traceback.tb_frame.f_code
    while isinstance(function, partial):
        function = function.func
    function = getattr(function, "__func__", function)
    if not hasattr(function, "__code__"):
        function = getattr(type(function), "__call__", None)  # noqa: B004 (not to know whether it can be called)
    return getattr(function, "__code__", None) is code and code.co_code[traceback.tb_lasti] == _RESUME


def error_in_words(error: BaseException) -> str:
    """Its type, what it says and where it was raised, whatever its own ``__str__`` does."""
    text = type(error).__name__
    try:
        text += f": {error}" if str(error) else ""
    except Exception as another:
        text += f", whose text raises {type(another).__name__}"
    traceback = error.__traceback__
    if traceback is None:
        return text
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    code = traceback.tb_frame.f_code
    return f"{text} (at {code.co_filename}:{traceback.tb_lineno}, in {code.co_name})"
