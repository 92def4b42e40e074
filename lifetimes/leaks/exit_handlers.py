"""The exit handlers of a program that does not end its process: they run when it has ended, as they would by themselves."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lifetimes.unraisable import tell

__all__ = ["exit_handlers"]


@contextmanager
def exit_handlers() -> Iterator[None]:
    """What is registered with `atexit` inside the block runs at its end, last registered first.

    One that raises is told through `sys.unraisablehook`, and the others still run.  Those of `weakref.finalize` run at the
    end of the process all the same: they are one handler for everybody.

    >>> with exit_handlers():
    ...     _ = atexit.register(print, "closed")
    ...     print("at work")
    at work
    closed
    """
    register, unregister = atexit.register, atexit.unregister
    handlers: list[tuple[Callable[..., object], tuple[Any, ...], dict[str, Any]]] = []

    def register_here(function: Callable[..., object], /, *args: Any, **options: Any) -> Callable[..., object]:
        if function == weakref.finalize._exitfunc:  # type: ignore[attr-defined]  # private to weakref
            return register(function, *args, **options)
        handlers.append((function, args, options))
        return function

    def unregister_here(function: Callable[..., object]) -> None:
        handlers[:] = [each for each in handlers if each[0] != function]
        unregister(function)

    atexit.register, atexit.unregister = register_here, unregister_here  # type: ignore[assignment]
    try:
        yield
        while handlers:
            function, args, options = handlers.pop()
            try:
                function(*args, **options)
            except Exception as error:
                tell(error, f"the exit handler {function!r} failed")
            del function, args, options
    finally:
        atexit.register, atexit.unregister = register, unregister
        for function, args, options in handlers:
            register(function, *args, **options)
