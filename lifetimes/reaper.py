"""Releases what nobody holds any more: the queue, the release loop, and when it may run.

A dropped handle only puts its cell into a queue.  The queue is drained

* at once, up to `EAGER_LIMIT` cells, by the drop itself, in ordinary code (so ``del x`` frees ``x``);
* by the next *safe point* (a public call that allocates, acquires, closes or reads statistics) after a drop during a
  garbage collection, inside the library, inside ``with defer():``, of a ``deferred=True`` lifetime, or in
  ``release_mode = "safepoint"``;
* by `drain`, completely.

Release is a loop, not a recursion: a finalizer that drops other handles only lengthens the queue.

Note [Once].  A finalizer is stored as ``starmap(function, (args,))``: an iterator that makes the call when it is advanced.
Taking the arguments and starting the call is one step in C, so neither an interrupt nor a second thread can run it twice
or lose it between "taken" and "started"; advancing it again does nothing.

Note [Interrupts].  Ctrl-C may strike between any two instructions.  What it can tear is repaired: a failure that escapes
a loop is noted in `repairs`, and the next drain looks through all live cells for ones that should be queued.
"""

from __future__ import annotations

import gc
import signal
from _thread import get_ident
from collections import deque
from typing import TYPE_CHECKING, Final

from lifetimes import instrument, pending
from lifetimes.cell import CLOSING, DROPPED, LIVE, RELEASED, RELEASING, Cell, live
from lifetimes.failures import Failure, report
from lifetimes.locks import held_here

if TYPE_CHECKING:
    from typing import Any, Literal

    from lifetimes.lifetime import Lifetime

__all__ = ["defer", "drain", "get_release_mode", "release", "safepoint", "set_release_mode"]

EAGER_LIMIT: Final = 64
SAFEPOINT_MODE: Final = -1  # in `busy` beside thread identifiers, which are never negative

queue: deque[Cell] = deque()
"""Cells that may be ready: dropped, closing, or just rid of a holder.  An entry too many does no harm."""
parked: deque[Cell] = deque()
"""Deferred cells: `drop` does not touch them, every safe point does."""
busy: list[int] = []
"""Threads on which a drop must not drain: collecting, draining or deferring; one entry each time."""
repairs: list[None] = []
"""Not empty after a failure tore the loop: the next drain looks for lost cells."""


def drop(handle: Lifetime[Any]) -> None:
    """The ``__del__`` of a handle: queue its cell and drain a little, if this thread may."""
    try:
        cell = handle._cell
    except AttributeError:  # its __init__ raised before there was anything to release
        return
    if cell.state >= RELEASING:
        return
    try:
        cell.state = DROPPED
        if busy or queue or cell.holders or cell.deferred:
            queue.append(cell)
            if busy and (SAFEPOINT_MODE in busy or get_ident() in busy):
                return
            interrupt = _drain_eagerly(None)
        else:
            interrupt = _drain_eagerly(cell)
    except BaseException:
        repairs.append(None)
        raise
    if interrupt is not None:
        # Nobody can catch an exception from __del__, so Ctrl-C is raised again in the code around it.
        signal.raise_signal(signal.SIGINT)


def _drain_eagerly(first: Cell | None) -> BaseException | None:
    """Release ``first``, then up to `EAGER_LIMIT` cells of the queue, deferred ones left to a safe point.

    This thread is not busy.
    """
    if held_here():
        if first is not None:
            queue.append(first)
        return None
    failures: list[Failure] | None = None
    me = get_ident()
    try:
        busy.append(me)
        if first is not None:
            failures = release(first, None)
        if queue:
            failures = _drain_some(failures)
    finally:
        while me in busy:
            busy.remove(me)
    return None if failures is None else report(failures)


def _drain_some(failures: list[Failure] | None) -> list[Failure] | None:
    left = EAGER_LIMIT
    while queue and left:
        left -= 1
        try:
            cell = queue.popleft()
        except IndexError:  # another thread took the last one
            break
        if cell.deferred:
            parked.append(cell)
        else:
            failures = release(cell, failures)
    return failures


def safepoint() -> None:
    """Release what is ready, unless this thread is collecting, draining, deferring or holds the library's lock.

    Complexity: three look-ups when there is nothing to do.  Errors: an interrupt that struck a finalizer.
    """
    if (queue or parked or repairs or pending.waiting()) and get_ident() not in busy:
        drain()


def drain(limit: int | None = None) -> int:
    """Release everything that is ready, at most ``limit`` cells; the number of cells released.

    Finalizers that fail are told by `CleanupWarning`.  Called from a finalizer, during a collection or under the
    library's lock it does nothing: the loop around it goes on.  Inside ``with defer():`` it works.

    Errors: `KeyboardInterrupt` when one struck a finalizer; the others have run.
    Complexity: O(cells released + streams with pending work).  Threading: any thread; several may drain at once.

    >>> from lifetimes import Lifetime, defer, drain
    >>> with defer():
    ...     x = Lifetime("handle", print, "released")
    ...     del x
    ...     print("still there")
    ...     _ = drain()
    still there
    released
    """
    me = get_ident()
    deferring = _deferring.get(me, 0)
    if busy.count(me) > deferring:
        return 0
    if held_here():
        return 0
    failures: list[Failure] | None = None
    released = 0
    left = -1 if limit is None else limit
    try:
        try:
            busy.append(me)
            _gather()
            while queue and left:
                left -= 1
                try:
                    cell = queue.popleft()
                except IndexError:  # another thread took the last one
                    break
                failures = release(cell, failures)
                if cell.state == RELEASED:
                    released += 1
        except BaseException:
            repairs.append(None)
            raise
        finally:
            while busy.count(me) > deferring:
                busy.remove(me)
    finally:  # once more, should an interrupt have struck the lines above
        while busy.count(me) > deferring:
            busy.remove(me)
    interrupt = None if failures is None else report(failures)
    if interrupt is not None:
        raise interrupt
    return released


def _gather() -> None:
    """Put into the queue what only a safe point may touch: deferred cells, finished work, torn loops."""
    while parked:
        queue.append(parked.popleft())
    if pending.waiting():
        queue.extend(pending.poll())
    if repairs:
        repairs.clear()
        queue.extend(cell for cell in list(live.values()) if cell.state in (DROPPED, CLOSING))


def release(cell: Cell, failures: list[Failure] | None) -> list[Failure] | None:
    """Release one cell if nothing holds it.  What its finalizers raised is added to ``failures``, which is returned.

    Finalizers run last attached first, each exactly once, each isolated.  The parents are let go afterwards, so that
    they cannot be released while a finalizer of their child still runs.
    """
    if cell.holders and not pending.settle(cell):
        return failures
    key = cell.key
    try:
        if live.pop(key, None) is None:
            return failures
        cell.state = RELEASING
        if cell.finalizers:
            for recipe in cell.finalizers[::-1]:
                try:
                    for _ in recipe:  # Note [Once]
                        pass
                except BaseException as error:
                    if failures is None:
                        failures = []
                    failures.append(Failure(cell, recipe, error))
        for parent in cell.parents:
            parent.holders.pop(key, None)
            if parent.state != LIVE and not parent.holders:
                queue.append(parent)
        cell.state = RELEASED
    except BaseException:
        if cell.state != RELEASED:
            cell.state = DROPPED
            live[key] = cell
        raise
    if instrument.watchers:
        instrument.emit("release", key)
    return failures


class defer:  # noqa: N801 (reads like the statement it is)
    """``with defer():`` neither drops nor safe points on this thread release anything before the block ends.

    For code that holds a lock which finalizers take too.  The end of the outermost block is a safe point; an explicit
    `drain` inside releases at once.  Other threads are not affected.
    """

    __slots__ = ("_thread",)

    def __enter__(self) -> None:
        self._thread = me = get_ident()
        _deferring[me] = _deferring.get(me, 0) + 1
        busy.append(me)

    def __exit__(self, *exc_info: object) -> None:
        me = self._thread
        if me in busy:
            busy.remove(me)
        left = _deferring.pop(me, 1) - 1
        if left:
            _deferring[me] = left
        elif me == get_ident():
            safepoint()


_deferring: dict[int, int] = {}


def set_release_mode(mode: Literal["eager", "safepoint"]) -> None:
    """``"eager"`` (the default): a drop in ordinary code releases at once.  ``"safepoint"``: only safe points release."""
    if mode not in ("eager", "safepoint"):
        raise ValueError(f'the release mode is "eager" or "safepoint", not {mode!r}')
    while SAFEPOINT_MODE in busy:
        busy.remove(SAFEPOINT_MODE)
    if mode == "safepoint":
        busy.append(SAFEPOINT_MODE)


def get_release_mode() -> str:
    """The mode that `set_release_mode` set."""
    return "safepoint" if SAFEPOINT_MODE in busy else "eager"


def _on_collection(phase: str, info: dict[str, int]) -> None:
    me = get_ident()
    if phase == "start":
        busy.append(me)
    elif me in busy:
        busy.remove(me)


def _reset_in_child() -> None:
    """Forget everything inherited; this thread is the only one left."""
    me = get_ident()
    queue.clear()
    parked.clear()
    repairs.clear()
    pending.forget()
    busy[:] = [thread for thread in busy if thread in (me, SAFEPOINT_MODE)]
    for thread in [thread for thread in _deferring if thread != me]:
        del _deferring[thread]


gc.callbacks.append(_on_collection)
