"""One stream of events for ledgers and trace logs; nothing is built when nobody listens.

A hot path asks ``if instrument.watchers:`` first, which is the whole cost of an unused stream.  *Listeners* hear every
event, with its details; *recorders* only see each new cell, and may write on it: the cheap way to remember where
things were made.  Events are emitted with no library lock held, so a listener may do what it likes, calls back into the
library included.  One that raises is reported through ``sys.unraisablehook``, and the others still hear the event.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeAlias

__all__ = [
    "Listener",
    "Recorder",
    "created",
    "emit",
    "listening",
    "record",
    "stop_recording",
    "subscribe",
    "unsubscribe",
    "watchers",
]

Listener: TypeAlias = Callable[[str, int, dict[str, Any]], object]
"""Called with the event's name, the key of its subject (0 for none) and its details."""

Recorder: TypeAlias = Callable[[Any], object]
"""Called with each new cell."""

watchers: list[object] = []
"""Every listener and recorder: empty means that nobody watches."""
_listeners: list[Listener] = []
_recorders: list[Recorder] = []


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
    if listener not in _listeners:
        _listeners.append(listener)
        watchers.append(listener)
    return listener


def unsubscribe(listener: Listener) -> None:
    """Stop ``listener`` from hearing events.  Unknown listeners are ignored."""
    _take_out(listener, _listeners)


def record(recorder: Recorder) -> None:
    """Let ``recorder`` see every cell that is made from now on.  Twice is once."""
    if recorder not in _recorders:
        _recorders.append(recorder)
        watchers.append(recorder)


def stop_recording(recorder: Recorder) -> None:
    """The end of `record`.  Unknown recorders are ignored."""
    _take_out(recorder, _recorders)


@contextmanager
def listening(listener: Listener) -> Iterator[Listener]:
    """Subscribe for the length of a ``with`` block."""
    subscribe(listener)
    try:
        yield listener
    finally:
        unsubscribe(listener)


def created(cell: Any) -> None:
    """A cell is live.  Called by the constructor, once somebody watches."""
    for recorder in tuple(_recorders):
        try:
            recorder(cell)
        except Exception as error:
            _complain(recorder, "create", error)
    if _listeners:
        emit("create", cell.key, cell=cell)


def emit(name: str, key: int, **details: Any) -> None:
    """Tell every listener.  Call it with no library lock held; ask ``if watchers:`` first on a hot path."""
    for listener in tuple(_listeners):
        try:
            listener(name, key, details)
        except Exception as error:
            _complain(listener, name, error)


def _take_out(watcher: Any, among: list[Any]) -> None:
    if watcher in among:
        among.remove(watcher)
        watchers.remove(watcher)


def _complain(watcher: object, name: str, error: Exception) -> None:
    sys.unraisablehook(
        SimpleNamespace(  # type: ignore[arg-type]  # the documented shape of the hook's argument
            exc_type=type(error),
            exc_value=error,
            exc_traceback=error.__traceback__,
            err_msg=f"a listener of lifetimes.instrument failed on {name!r}; the event reached the others",
            object=watcher,
        )
    )
