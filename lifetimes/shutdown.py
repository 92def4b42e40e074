"""The end of the process, and the other end of a fork.

At exit one hook releases everything that is still alive, youngest first, which puts children before parents because a
child is always younger.  Pinned and exported things are never freed, nor their ancestors; pending work is waited for
`PENDING_LIMIT` seconds and the library's lock tried for `LOCK_LIMIT`, then the rest is left to the operating system with
one `CleanupWarning`.  Afterwards late drops are no-ops.

A forked child owns nothing of what it inherited: every inherited cell is marked so and forgotten, the locks are new.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from operator import attrgetter
from types import FrameType
from typing import Any, Final

from lifetimes import cell, locks, pending, reaper
from lifetimes.cell import next_key
from lifetimes.deferring import defer
from lifetimes.failures import Failure, error_in_words, report, warn
from lifetimes.holders import Export, Pin
from lifetimes.lifetime import Lifetime
from lifetimes.locks import busily

__all__ = ["on_fork_in_child", "release_everything"]

LOCK_LIMIT: Final = 2.0
PENDING_LIMIT: Final = 5.0
ROUNDS: Final = 100
"""Finalizers may create lifetimes, which are released as well, so many times over."""

_child_hooks: weakref.WeakSet[Any] = weakref.WeakSet()


def on_fork_in_child(thing: Any) -> None:
    """Have ``thing.forget_parent()`` called in a forked child; ``thing`` is held weakly."""
    _child_hooks.add(thing)


def release_everything() -> None:
    """What the exit hook does, up to making late drops no-ops.  Warns once of what had to be left."""
    if locks.lock.acquire(timeout=LOCK_LIMIT):
        locks.lock.release()
    else:
        warn(f"another thread held the library's lock for {LOCK_LIMIT:g} s at exit; what it guards is left as it is")
        return
    failures: list[Failure] = []
    left: dict[int, cell.Cell] = {}
    reaper.drain()
    try:
        interrupt = busily(_release_all, failures, left)  # what the finalizers drop is released in its turn
    finally:
        struck = report(failures)
    if left:
        names = ", ".join(cell.describe(each) for each in list(left.values())[:5])
        warn(f"work in flight did not finish within {PENDING_LIMIT:g} s at exit; left to the operating system: {names}")
    if struck is not None or interrupt is not None:
        raise struck or interrupt or KeyboardInterrupt


def _release_all(failures: list[Failure], left: dict[int, cell.Cell]) -> BaseException | None:
    interrupt: BaseException | None = None
    deadline = time.monotonic() + PENDING_LIMIT
    for _ in range(ROUNDS):
        before = next_key()
        for each in sorted(cell.live.values(), key=attrgetter("key"), reverse=True):
            if each.state == cell.LIVE:
                each.state = cell.CLOSING
            try:
                waited = pending.wait_all(each, deadline)
            except KeyboardInterrupt as error:
                # Somebody is tired of waiting.  What is ready is released all the same.
                interrupt, deadline, waited = error, 0.0, False
            if not waited:
                left[each.key] = each
            reaper.release(each, failures)
        if not any(key > before for key in list(cell.live)):
            break
    return interrupt


def _at_exit() -> None:
    try:
        release_everything()
    finally:
        # From here on module globals may vanish at any time.  What is not registered is not released, and without
        # these methods a late drop runs no code at all.
        cell.live.clear()
        locks.ignore_the_collector(reaper._look_again)
        for kind in (Lifetime, Export, Pin, defer):
            delattr(kind, "__del__")


def _in_child() -> None:
    locks._reset_in_child()
    inherited = list(cell.live.values())
    cell.live.clear()
    for each in inherited:
        each.state = cell.INHERITED
    frame: FrameType | None = sys._getframe()
    while frame is not None:  # if a finalizer forked, those after it are the parent's
        if frame.f_code is reaper.release.__code__:
            (frame.f_locals.get("armed") or []).clear()
        frame = frame.f_back
    reaper._reset_in_child()
    for thing in list(_child_hooks):
        try:
            thing.forget_parent()
        except Exception as error:
            warn(f"{type(thing).__name__}.forget_parent() failed: {error_in_words(error)}; the others ran", error)


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_in_child)
