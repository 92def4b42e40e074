"""The one lock of the library, the rules of holding it, and what else keeps a thread from running finalizers.

There is a single lock for all managers and the registry of lifetimes, so there is no lock order to get wrong.  It is
held for a few table operations at a time.  Under it we call no user code, driver, logging or finalizer, and drop no last
reference.

Note [Re-entry by the holder].  The collector, a signal handler or a tracer may still run user code on a thread that holds
the lock.  The lock is therefore an RLock, so that nobody waits for himself, and every region asks first whether this
thread holds it already: drops, closes and releases are queued, statistics give the last published snapshot, and
calls that need an answer (use, allocate) raise `BusyError`.
"""

from __future__ import annotations

import gc
import threading
from _thread import get_ident
from collections.abc import Callable
from typing import Final, Literal, TypeVar

from lifetimes.errors import BusyError

__all__ = [
    "busily",
    "busy",
    "collecting_here",
    "get_release_mode",
    "held_here",
    "lock",
    "locked",
    "mark",
    "refuse_reentry",
    "restrained",
    "set_release_mode",
    "unmark",
    "unmark_down_to",
]

T = TypeVar("T")

SAFEPOINT_MODE: Final = ~0  # in `busy` as if a thread numbered 0, which there is none, were deferring

lock = threading.RLock()
held_here = lock._is_owned  # type: ignore[attr-defined]  # what threading.Condition asks too; C, about 30 ns


def locked(function: Callable[..., T], *args: object) -> T:
    """``function(*args)`` under the lock, which is free again whatever happens and wherever an interrupt strikes.

    This thread must not hold the lock yet: whether it does is what tells that it must be given back.  A ``with`` block
    does the same for code that an interrupt can only reach at a call; a tracer or a debugger reaches it anywhere.
    """
    try:
        try:
            lock.acquire()
            return function(*args)
        finally:
            if held_here():
                lock.release()
    finally:  # once more, should an interrupt have struck the lines above
        if held_here():
            lock.release()


def refuse_reentry(what: str) -> BusyError:
    """The error for a call that needs an answer while this thread is inside the library."""
    return BusyError(
        f"{what} was called from code that interrupted lifetimes inside its own lock on this thread "
        "(a signal handler, a trace function or an object's __del__ during garbage collection); "
        "do it after the interrupted call has returned"
    )


# What else keeps a thread from running finalizers.

busy: list[int] = []
"""``thread`` runs some already; ``~thread`` is in a ``defer()``, one entry for each.  A hot path asks only if it is empty."""
mark: Callable[[int], None] = busy.append
unmark: Callable[[int], None] = busy.remove


class _Collecting(set[str]):
    """Not empty while the collector runs.  It is called back in C alone, which no interrupt can make it miss."""

    start = property(fset=set.update)  # phase "start": in go the keys of the dict that comes with it
    stop = property(fset=set.difference_update)  # phase "stop": out they go again


collecting = _Collecting()
_collector = 0  # the thread that collects; 0 if that was not noted


def collecting_here() -> bool:
    """Whether this thread is in the middle of a garbage collection."""
    return bool(collecting) and (_collector == get_ident() or not _collector)


def restrained() -> bool:
    """Whether a drop on this thread must not release anything now, but leave it to a safe point."""
    me = get_ident()
    return me in busy or ~me in busy or SAFEPOINT_MODE in busy or held_here() or collecting_here()


def busily(function: Callable[..., T], *args: object) -> T:
    """``function(*args)``, which runs finalizers: what is dropped meanwhile on this thread waits until the next safe point."""
    me = get_ident()
    if me in busy:
        return function(*args)
    try:
        try:
            mark(me)
            return function(*args)
        finally:
            unmark_down_to(0, me)
    finally:  # once more, should an interrupt have struck the lines above
        unmark_down_to(0, me)


def unmark_down_to(left: int, thread: int) -> None:
    """Take all marks but ``left`` of that kind out of `busy`."""
    while busy.count(thread) > left:
        unmark(thread)


def set_release_mode(mode: Literal["eager", "safepoint"]) -> None:
    """``"eager"`` (the default): a drop in ordinary code releases at once.  ``"safepoint"``: only safe points release."""
    if mode not in ("eager", "safepoint"):
        raise ValueError(f'the release mode is "eager" or "safepoint", not {mode!r}')
    unmark_down_to(0, SAFEPOINT_MODE)
    if mode == "safepoint":
        mark(SAFEPOINT_MODE)


def get_release_mode() -> str:
    """The mode that `set_release_mode` set."""
    return "safepoint" if SAFEPOINT_MODE in busy else "eager"


def _note_collector(phase: str, info: dict[str, int]) -> None:
    global _collector
    _collector = get_ident() if phase == "start" else 0


def ignore_the_collector(*others: Callable[..., object]) -> None:
    """After the exit hook: a callback may run when the globals it needs are gone."""
    for callback in (collecting.__setattr__, _note_collector, *others):
        if callback in gc.callbacks:
            gc.callbacks.remove(callback)


def _reset_in_child() -> None:
    # Another thread of the parent may have held the lock at the fork, or may have been busy.  It does not exist here.
    if not held_here():
        lock._at_fork_reinit()  # type: ignore[attr-defined]
    me = get_ident()
    busy[:] = [each for each in busy if each in (me, ~me, SAFEPOINT_MODE)]


gc.callbacks.append(collecting.__setattr__)
gc.callbacks.append(_note_collector)
