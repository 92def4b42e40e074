"""One stream of events for ledgers and trace logs; nothing is built when nobody listens.

A hot path asks ``if instrument.listeners:`` first, which is the whole cost of an unused stream.  Events are
emitted with no library lock held, so a listener may do what it likes, calls back into the library included.  A
listener that raises is a failed cleanup step of nobody: it is reported through ``sys.unraisablehook`` and the
others still hear the event.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeAlias

__all__ = ["Listener", "emit", "listeners", "listening", "subscribe", "unsubscribe"]

Listener: TypeAlias = Callable[[str, int, dict[str, Any]], object]
"""Called with the event's name, the key of its subject (0 for none) and its details."""

listeners: list[Listener] = []


def subscribe(listener: Listener) -> Listener:
    """Let ``listener`` hear every event from now on.  Subscribing twice is once.

    >>> heard = []
    >>> def listen(name, key, details): heard.append((name, key))
    >>> _ = subscribe(listen)
    >>> emit("create", 7, nbytes=64)
    >>> unsubscribe(listen)
    >>> heard
    [('create', 7)]
    """
    if listener not in listeners:
        listeners.append(listener)
    return listener


def unsubscribe(listener: Listener) -> None:
    """Stop ``listener`` from hearing events.  Unknown listeners are ignored."""
    try:
        listeners.remove(listener)
    except ValueError:
        pass


@contextmanager
def listening(listener: Listener) -> Iterator[Listener]:
    """Subscribe for the length of a ``with`` block."""
    subscribe(listener)
    try:
        yield listener
    finally:
        unsubscribe(listener)


def emit(name: str, key: int, **details: Any) -> None:
    """Tell every listener.  Call it with no library lock held; ask ``if listeners:`` first on a hot path."""
    for listener in tuple(listeners):
        try:
            listener(name, key, details)
        except Exception as error:
            message = f"a listener of lifetimes.instrument failed on {name!r}; the event reached the others"
            sys.unraisablehook(
                SimpleNamespace(  # type: ignore[arg-type]  # the documented shape of the hook's argument
                    exc_type=type(error),
                    exc_value=error,
                    exc_traceback=error.__traceback__,
                    err_msg=message,
                    object=listener,
                )
            )
