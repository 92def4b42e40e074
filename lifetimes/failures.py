"""Where the failure of a finalizer goes: one channel for each place, nothing dropped.

========================================  =====================================================================
where                                     channel
========================================  =====================================================================
``close()``                               everything runs, then one `ExceptionGroup` is raised
``__exit__`` with an exception in flight  notes on that exception, which wins
drop, safe point, `drain`, exit           `CleanupWarning`; if that raises, `sys.unraisablehook`
an interrupt inside a finalizer           counts as the finalizer's failure and is raised again when all have run
========================================  =====================================================================
"""

from __future__ import annotations

import gc
import sys
import warnings
from types import SimpleNamespace
from typing import NamedTuple

from lifetimes.cell import Cell, Recipe, describe
from lifetimes.errors import CleanupWarning

__all__ = ["Failure", "add_notes", "raise_all", "report", "warn"]


class Failure(NamedTuple):
    """One finalizer that raised."""

    cell: Cell
    recipe: Recipe
    error: BaseException

    def __str__(self) -> str:
        function = gc.get_referents(self.recipe)[0]  # an iterator tells its function to the collector only
        name = getattr(function, "__qualname__", None) or repr(function)
        return f"finalizer {name} of {describe(self.cell)} failed: {_in_words(self.error)}"


def report(failures: list[Failure]) -> BaseException | None:
    """Warn of each failure.  Returns the interrupt among them, which the caller raises again."""
    interrupt: BaseException | None = None
    for failure in failures:
        if isinstance(failure.error, KeyboardInterrupt):
            interrupt = failure.error
        else:
            warn(f"{failure}; the others ran", failure.error)
    return interrupt


def raise_all(failures: list[Failure], what: str) -> None:
    """Raise what the finalizers raised as one group; an interrupt among them is raised itself, the rest as its notes."""
    if not failures:
        return
    for failure in failures:
        failure.error.add_note(str(failure))
    interrupts = [failure.error for failure in failures if isinstance(failure.error, KeyboardInterrupt)]
    if interrupts:
        add_notes(interrupts[0], [failure for failure in failures if failure.error is not interrupts[0]])
        raise interrupts[0]
    # An ExceptionGroup, unless one of them (SystemExit, say) is no Exception.
    raise BaseExceptionGroup(f"{len(failures)} finalizer(s) failed while closing {what}", [f.error for f in failures])


def add_notes(error: BaseException, failures: list[Failure]) -> None:
    """Hang the failures on an exception that is already in flight."""
    for failure in failures:
        error.add_note(f"while cleaning up: {failure}")


def warn(message: str, cause: BaseException | None = None) -> None:
    """A `CleanupWarning` where no caller can be raised to; if a filter or hook makes it raise, `sys.unraisablehook`."""
    try:
        warnings.warn(CleanupWarning(message), stacklevel=3)
    except BaseException as error:
        if isinstance(error, CleanupWarning) and cause is not None:
            error.__cause__ = cause
        sys.unraisablehook(
            SimpleNamespace(  # type: ignore[arg-type]  # the documented shape of the hook's argument
                exc_type=type(error),
                exc_value=error,
                exc_traceback=error.__traceback__,
                err_msg="lifetimes could not warn of a failed clean-up",
                object=None,
            )
        )


def _in_words(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    traceback = error.__traceback__
    if traceback is None:
        return text
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    code = traceback.tb_frame.f_code
    return f"{text} (at {code.co_filename}:{traceback.tb_lineno}, in {code.co_name})"
