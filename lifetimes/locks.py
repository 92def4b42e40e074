"""The one lock of the library, and the rules of holding it.

There is a single lock for all managers and the registry of lifetimes, so there is no lock order to get wrong.  It is
held for a few table operations at a time.  Under it we call no user code, driver, logging or finalizer, and drop no last
reference.

Note [Re-entry by the holder].  The collector, a signal handler or a tracer may still run user code on a thread that holds
the lock.  The lock is therefore an RLock, so that nobody waits for himself, and every region asks first whether this
thread holds it already: drops, closes and releases are queued, statistics give the last published snapshot, and
calls that need an answer (use, allocate) raise `BusyError`.
"""

from __future__ import annotations

import threading

from lifetimes.errors import BusyError

__all__ = ["held_here", "lock", "refuse_reentry"]

lock = threading.RLock()
held_here = lock._is_owned  # type: ignore[attr-defined]  # what threading.Condition asks too; C, about 30 ns


def refuse_reentry(what: str) -> BusyError:
    """The error for a call that needs an answer while this thread is inside the library."""
    return BusyError(
        f"{what} was called from code that interrupted lifetimes inside its own lock on this thread "
        "(a signal handler, a trace function or an object's __del__ during garbage collection); "
        "do it after the interrupted call has returned"
    )


def _reset_in_child() -> None:
    # Another thread of the parent may have held the lock at the fork; that thread does not exist here.
    lock._at_fork_reinit()  # type: ignore[attr-defined]
