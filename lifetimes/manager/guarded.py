"""What every public call of a manager does at its edges.

Note [Interrupts].  Ctrl-C may strike between almost any two instructions, inside locked regions too.  What an entry says of
itself changes in single steps (Note [Truth] in entry.py); everything else follows from it.  So when an interrupt passes
through a public call, the call gives up what its thread had in hand and counts the rest anew: `Manager.repair`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from lifetimes.locks import held_here, refuse_reentry
from lifetimes.reaper import safepoint

__all__ = ["guarded"]

P = ParamSpec("P")
R = TypeVar("R")


def guarded(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """A public call: refused to whoever interrupted the library, a safe point, and put right after an interrupt."""

    @wraps(method)
    def call(manager: Any, /, *args: P.args, **options: P.kwargs) -> R:
        if held_here():
            raise refuse_reentry(f"Manager.{method.__name__}")
        try:
            safepoint()
            if manager.late:
                manager.run_late()
            result = method(manager, *args, **options)
            if manager.late:
                manager.run_late()
            return result
        except BaseException as error:
            if not isinstance(error, Exception):
                manager.repair()
            raise

    return call
