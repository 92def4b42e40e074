"""Releases what nobody holds any more: the queue, the release loop, and when it may run.

A handle that dies puts its cell into a queue.  The queue is drained

* at once, up to `EAGER_LIMIT` cells, by the drop itself, in ordinary code (so ``del x`` frees ``x``);
* by the next *safe point* (a public call that allocates, acquires, closes or reads statistics) after a drop during a
  garbage collection, inside the library, inside ``with defer():``, of a ``deferred=True`` lifetime, or in
  ``release_mode = "safepoint"``;
* by `drain`, completely.

Release is a loop, not a recursion: a finalizer that drops other handles only lengthens the queue.

Note [Once].  To be run, a finalizer becomes ``starmap(function, (args,))``: an iterator that makes the call when it is
advanced.  Taking the arguments and starting the call is one step in C, so neither an interrupt nor a second thread can
run it twice or lose it between "taken" and "started"; advancing it again does nothing.

Note [Interrupts].  Ctrl-C may strike between any two instructions.  An interrupt that strikes inside a finalizer counts
as its failure, unless it came before the first instruction: then the finalizer runs after all.  One that tears a loop is
noted in `repairs`, and the next drain looks through all live cells for ones that should be queued.  Either way it is
delivered again when everything has run: raised by `drain` and ``close``, and as a new Ctrl-C by ``__del__``, from which
nothing can be raised.

Note [Try].  Where a ``try`` statement begins, where its ``except`` clauses are jumped over and, in Python 3.13, where a loop
goes on after an ``if``, stand instructions that no exception table covers, not even that of the ``try`` around them.  An
exception raised there is caught further out only.  So none of these stands where something has been taken and not yet
put down: there, functions are called that contain them.
"""

from __future__ import annotations

import gc
import sys
from _thread import get_ident
from itertools import starmap
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Final

from lifetimes import instrument, pending
from lifetimes.cell import (
    CLOSING,
    DROPPED,
    GONE,
    LIVE,
    RELEASED,
    RELEASING,
    Cell,
    arm,
    broken_rules,
    enqueue,
    live,
    next_key,
    parked,
    queue,
)
from lifetimes.errors import InternalError
from lifetimes.failures import Failure, interrupts, report, run_rest
from lifetimes.locks import (
    busily,
    busy,
    collecting,
    collecting_here,
    get_release_mode,
    held_here,
    mark,
    restrained,
    set_release_mode,
    unmark,
)

if TYPE_CHECKING:
    from collections import deque
    from typing import Any

    from lifetimes.cell import Armed
    from lifetimes.lifetime import Lifetime


__all__ = ["check_invariants", "drain", "get_release_mode", "release", "safepoint", "set_release_mode"]

EAGER_LIMIT: Final = 64
NEWBORN_LIMIT: Final = 1000
"""A drain leaves more than so many of those to the next that were made while it ran, lest it never end."""
PYTHON_FUNCTIONS: Final = (FunctionType, MethodType)

repairs: list[None] = []
"""Not empty after an interrupt tore a loop: the next drain looks for lost cells."""
untold: list[Failure] = []
"""What finalizers raised in a loop that was torn: the next drain tells of it."""


def drop(handle: Lifetime[Any]) -> None:
    """The ``__del__`` of a handle: release its cell, and a little of the queue, if this thread may.

    If it may not, or anything strikes, the cell's own callback queues it right after this.
    """
    me = 0
    failures: list[Failure] | None = None
    interrupted = False  # no error is kept here: its traceback keeps this frame, which keeps the handle
    try:
        if collecting and collecting_here():  # its cell is in the queue already
            return
        cell = handle._cell
        # Reading the state raises, if __init__ did so before the cell was whole.
        special = cell.state or busy or queue or cell.holders or cell.deferred or held_here()
        if special and not _may_release(handle, cell):
            return
        me = get_ident()
        mark(me)
        failures = release(cell, None)
        if queue:
            failures = _release_some(failures)
        unmark(me)
        handle._cell = GONE
        if failures is not None:
            interrupted = report(failures) is not None
    except BaseException as error:
        while me in busy:
            unmark(me)
        if not me and isinstance(error, AttributeError):
            handle._cell = GONE
            return
        repairs.append(None)
        if failures:
            untold.extend(failures)
            failures.clear()
        if isinstance(error, RecursionError):  # too deep to release anything
            return
        if not isinstance(error, KeyboardInterrupt):
            raise
        interrupted = True
    if interrupted:
        for _ in interrupts:
            break


def _may_release(handle: Lifetime[Any], cell: Cell) -> bool:
    """Note that the handle is gone; whether this thread may release anything now."""
    if cell.state >= RELEASING:
        handle._cell = GONE
        return False
    cell.state = DROPPED
    if cell.deferred or restrained():
        enqueue(cell)  # the callback will be late if somebody, a debugger say, keeps the frame of `drop`
        return False
    if cell.holders and pending.waiting():
        # Safe points ask for finished work.  A program that has none must not gather such cells without end.
        queue.extend(pending.poll())
    return True


def _release_some(failures: list[Failure] | None) -> list[Failure] | None:
    """Release up to `EAGER_LIMIT` cells of the queue; deferred ones are left to a safe point."""
    left = EAGER_LIMIT
    try:
        while queue and left:
            left -= 1
            cell = _next(queue)
            if cell is not None and _is_out(cell):
                if cell.deferred:
                    parked.append(cell)
                else:
                    failures = release(cell, failures)
    except BaseException:
        if failures:
            untold.extend(failures)
            failures.clear()
        raise
    return failures


def _next(cells: deque[Cell]) -> Cell | None:
    try:
        return cells.popleft()
    except IndexError:  # another thread took the last one
        return None


def _is_out(cell: Cell) -> bool:
    """Whether a cell is to be released as soon as nothing holds it."""
    state = getattr(cell, "state", RELEASED)  # an interrupt may have left it half-made
    if state == LIVE and cell() is None:  # its __del__ never began
        cell.state = state = DROPPED
    return state in (DROPPED, CLOSING)


def safepoint() -> None:
    """Release what is ready, unless this thread is collecting, draining, deferring or holds the library's lock.

    Complexity: a few look-ups when there is nothing to do.  Errors: an interrupt that struck a finalizer.
    """
    if (queue or parked or repairs or pending.waiting()) and ~get_ident() not in busy:
        _drain_here(-1, pending.LOOSE_LIMIT)


def drain(limit: int | None = None) -> int:
    """Release everything that is ready, at most ``limit`` cells; the number of cells released.

    What finalizers make and drop meanwhile is released as well, up to `NEWBORN_LIMIT`.  Finalizers that fail are told by
    `CleanupWarning`.  Called from a finalizer, during a collection or under the
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
    return _drain_here(-1 if limit is None else limit, sys.maxsize)


def _drain_here(limit: int, loose: int) -> int:
    if get_ident() in busy or held_here() or collecting_here():
        return 0
    failures: list[Failure] = []
    try:
        released = busily(_drain, limit, loose, failures)
    finally:
        interrupt = report(failures)
    if interrupt is not None:
        try:
            raise interrupt
        finally:
            del interrupt  # its traceback holds this frame
    return released


def _drain(left: int, loose: int, failures: list[Failure]) -> int:
    released = 0
    newest = next_key()
    newborn = NEWBORN_LIMIT
    try:
        _gather(loose, failures)
        while queue and left and newborn:
            cell = _next(queue)
            if cell is not None and _is_out(cell):
                release(cell, failures)
                if cell.key > newest:
                    newborn -= 1
                if cell.state == RELEASED:
                    left -= 1
                    released += 1
    except BaseException:
        repairs.append(None)
        raise
    return released


def _gather(loose: int, failures: list[Failure]) -> None:
    """Put into the queue what only a safe point may touch: deferred cells, finished work, torn loops."""
    while parked:
        cell = _next(parked)
        if cell is not None:
            queue.append(cell)
    if pending.waiting():
        queue.extend(pending.poll(loose))
    if repairs:
        repairs.clear()
        queue.extend([cell for cell in list(live.values()) if _is_out(cell)])
    while untold:
        failures.append(untold.pop())


def release(cell: Cell, failures: list[Failure] | None) -> list[Failure] | None:
    """Release one cell if nothing holds it.  What its finalizers raised is added to ``failures``, which is returned.

    Finalizers run last attached first, each exactly once, each isolated.  The parents are let go afterwards, so that
    they cannot be released while a finalizer of their child still runs.
    """
    if cell.holders and not pending.settle(cell):
        return failures
    key = cell.key
    armed: list[Armed] | None = None
    each: Armed | None = None
    raised: BaseException | None = None
    mine = False
    try:
        try:
            del live[key]
            mine = True
            cell.state = RELEASING
            if cell.finalizer is not None:
                armed = [starmap(cell.finalizer, (cell.args,))] if cell.added is None else arm(cell)
                for each in armed:
                    for _ in each:  # Note [Once]
                        pass
        except BaseException as error:
            if not mine and isinstance(error, KeyError):  # somebody else releases it, or it was never finished
                return failures
            if armed is None or each is None:
                raise
            raised = error
            if isinstance(error, RecursionError):
                # No function of ours can be called here, so the rest waits for a release from less deep.
                function, args = (*reversed(cell.added or ()), (cell.finalizer, cell.args))[armed.index(each)]
                struck = error.__traceback__
                if isinstance(function, PYTHON_FUNCTIONS) and struck and struck.tb_next is None:  # it did not begin
                    armed[armed.index(each)] = starmap(function, (args,))
                    raised = None
                raise
            failures = run_rest(cell, armed, armed.index(each), error, failures)
            raised = None
        cell.finalizer = cell.added = None
        cell.args = ()
        if cell.parents:
            let_go_of_parents(cell)
        cell.state = RELEASED
        if instrument.listeners:  # in here, so that an interrupt while they hear it loses no failure
            instrument.emit("release", key)
    except BaseException:  # torn: it goes back into the registry, as far as it got
        if cell.state < RELEASING or (mine and cell.state == RELEASING):
            if armed is not None:
                cell.added, cell.armed = cell.added or [], armed
            live[key] = cell
            cell.state = DROPPED
            enqueue(cell)
        if raised is not None and armed is not None and each is not None:
            function, _ = (*reversed(cell.added or ()), (cell.finalizer, cell.args))[armed.index(each)]
            untold.append((cell, function, raised))
            raised = None
        if failures:
            untold.extend(failures)
            failures.clear()
        raise
    return failures


def let_go_of_parents(cell: Cell) -> None:
    """The cell holds its parents no longer: those that waited for it may be ready."""
    for parent in cell.parents:
        parent.holders.pop(cell.key, None)
        if parent.state and not parent.holders:
            enqueue(parent)


def check_invariants() -> None:
    """What must hold of the registry, and of this thread, between any two calls, with no other thread in the library.

    Errors: `InternalError` with every rule that is broken and the state.  Complexity: O(live).
    """
    wrong = [] if repairs else broken_rules()
    if get_ident() in busy:
        wrong.append("this thread is marked as draining and is not")
    if collecting:
        wrong.append("a collection is noted and none runs")
    if held_here():
        wrong.append("this thread holds the library's lock")
    if wrong:
        state = f"live {list(live.values())[:20]}; queue {list(queue)[:20]}; parked {list(parked)[:20]}; busy {busy}"
        raise InternalError(f"{'; '.join(wrong[:20])}. State: {state}. Please report it")


def _look_again(phase: str, info: dict[str, int]) -> None:
    """Python 3.11 counts calls of C functions, too: at the recursion limit not even the callback of a cell runs.  Such a
    cell is found after the next full collection, which has looked at more than all cells."""
    if phase == "stop" and info["generation"] == 2 and not repairs:
        repairs.append(None)


if sys.version_info < (3, 12):
    gc.callbacks.append(_look_again)


def _reset_in_child() -> None:
    """Forget everything inherited."""
    queue.clear()
    parked.clear()
    repairs.clear()
    untold.clear()
    pending.forget()
