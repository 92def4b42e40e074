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
import time
import weakref
from collections.abc import Callable
from typing import Any, Final

from lifetimes import cell, locks, pending, reaper
from lifetimes.failures import Failure, report, warn
from lifetimes.lifetime import Lifetime

__all__ = ["on_fork_in_child", "release_everything"]

LOCK_LIMIT: Final = 2.0
PENDING_LIMIT: Final = 5.0

_child_hooks: weakref.WeakSet[Any] = weakref.WeakSet()


def on_fork_in_child(thing: Any) -> None:
    """Have ``thing.forget_parent()`` called in a forked child; ``thing`` is held weakly."""
    _child_hooks.add(thing)


def release_everything() -> None:
    """What the exit hook does, up to making late drops no-ops.  Warns once of what had to be left."""
    failures: list[Failure] | None = None
    if locks.lock.acquire(timeout=LOCK_LIMIT):
        locks.lock.release()
    else:
        warn(f"another thread held the library's lock for {LOCK_LIMIT:g} s at exit; what it guards is left as it is")
        return
    reaper.drain()
    deadline = time.monotonic() + PENDING_LIMIT
    left: list[cell.Cell] = []
    while True:  # finalizers may create lifetimes, which are then released too
        before = len(cell.live)
        left = []
        newest_first = sorted(list(cell.live.values()), key=lambda each: each.key, reverse=True)
        for each in newest_first:
            if each.state == cell.LIVE:
                each.state = cell.CLOSING
            if not pending.wait_all(each, deadline):
                left.append(each)
            failures = reaper.release(each, failures)
        if not cell.live or len(cell.live) >= before:
            break
    if failures is not None:
        report(failures)
    if left:
        names = ", ".join(cell.describe(each) for each in left[:5])
        warn(f"work in flight did not finish within {PENDING_LIMIT:g} s at exit; left to the operating system: {names}")


def _at_exit() -> None:
    try:
        release_everything()
    finally:
        # From here on module globals may vanish at any time; without the method a late drop runs no code at all.
        del Lifetime.__del__


def _in_child() -> None:
    locks._reset_in_child()
    inherited = list(cell.live.values())
    cell.live.clear()
    for each in inherited:
        each.state = cell.INHERITED
    reaper._reset_in_child()
    for thing in list(_child_hooks):
        hook: Callable[[], object] = thing.forget_parent
        hook()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_in_child)
