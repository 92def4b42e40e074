"""One stream of events for ledgers and trace logs; nothing is built when nobody listens.

A hot path asks ``if instrument.watchers:`` (or ``listeners``) first, which is the whole cost of an unused stream.
*Listeners* hear every event, with its details; *recorders* only see each new cell, and may write on it: the cheap
way to remember where things were made.  Events are emitted with no library lock held, so a listener may do what it
likes, calls back into the library included.  One that raises is reported through ``sys.unraisablehook``, and the
others still hear the event.

==============  ==========================  ==================================================================
event           key                         details
==============  ==========================  ==================================================================
``create``      of the lifetime             ``cell``
``release``     of the lifetime
``detach``      of the lifetime
``allocate``    of the block                ``address``, ``nbytes`` (its capacity), ``stream`` (the stream's key)
``free``        of the block                likewise
==============  ==========================  ==================================================================

``allocate`` and ``free`` are what the driver was asked for: blocks that the pool hands out again are not told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from lifetimes.unraisable import tell

__all__ = [
    "Listener",
    "Recorder",
    "created",
    "emit",
    "listeners",
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
listeners: list[Listener] = []
"""Those who hear events: empty means that `emit` has nothing to do."""
_recorders: list[tuple[Recorder, bool]] = []


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
        watchers.append(listener)
        _choose()
    return listener


def unsubscribe(listener: Listener) -> None:
    """Stop ``listener`` from hearing events.  Unknown listeners are ignored."""
    if listener in listeners:
        listeners.remove(listener)
        watchers.remove(listener)
        _choose()


def record(recorder: Recorder, *, safe: bool = False) -> None:
    """Let ``recorder`` see every cell that is made from now on.  Twice is once.

    ``safe`` promises that it never raises: then it is called straight from the constructor, which is worth 150 ns.
    """
    if all(each is not recorder for each, _ in _recorders):
        _recorders.append((recorder, safe))
        watchers.append(recorder)
        _choose()


def stop_recording(recorder: Recorder) -> None:
    """The end of `record`.  Unknown recorders are ignored."""
    for each in _recorders:
        if each[0] is recorder:
            _recorders.remove(each)
            watchers.remove(recorder)
            _choose()
            return


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
            _complain(listener, name, error)


def _created(cell: Any) -> None:
    """Show the new cell to everybody."""
    for recorder, _ in tuple(_recorders):
        try:
            recorder(cell)
        except Exception as error:
            _complain(recorder, "create", error)
    if listeners:
        emit("create", cell.key, cell=cell)


created: Recorder = _created
"""A cell is live.  The constructor calls it by this name once somebody watches."""


def _choose() -> None:
    """One safe recorder and no listener is the usual case: the constructor then calls that recorder itself."""
    global created
    alone = len(_recorders) == 1 and not listeners and _recorders[0][1]
    created = _recorders[0][0] if alone else _created


def _complain(watcher: object, name: str, error: Exception) -> None:
    tell(error, f"listener {watcher!r} of lifetimes.instrument failed on {name!r}; the event reached the others")
