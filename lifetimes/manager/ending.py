"""The end of a manager, and what it does at quiet moments before."""

from __future__ import annotations

from _thread import get_ident
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, Final

from lifetimes.errors import BusyError, ClosedError, OwnershipError
from lifetimes.failures import warn
from lifetimes.locks import held_here, lock
from lifetimes.manager import moves

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifetimes.manager.core import Manager
    from lifetimes.timeline import Timeline

__all__ = ["close", "refuse_pinned", "run_late"]


def close(manager: Manager) -> None:
    """See `Manager.close`.  What fails on the way does not keep the rest from its end; it is raised as one group."""
    me = get_ident()
    with lock:
        while manager.closer and manager.closer != me:
            manager.waiting.wait(manager.waiting.changes)
        if manager.ended or manager.closer:  # done, or a driver or finalizer calls it from inside
            return
        manager.closer = me
    try:
        _empty(manager)
        _give_back(manager)
    finally:
        manager.closer = 0
        with lock:
            manager.waiting.note()


def _empty(manager: Manager) -> None:
    """Forget all arrays, or none."""
    with lock:
        refuse_pinned(manager)
        manager.closed = True
        emptied = False
        try:
            _wait_for_moves(manager)
            refuse_pinned(manager)
            for _, entry in manager.table.snapshot():
                moves.release(manager, entry)
            emptied = True
        finally:
            if not emptied:
                manager.closed = False


def _give_back(manager: Manager) -> None:
    failures: list[Exception] = []
    _wait_for_work(manager, failures)
    manager.evictor.copybacks.clear()
    run_late(manager)
    manager.memory.purge()
    if not manager.memory.blocks:
        _end_streams(manager, failures)
        if manager.owns_store:
            manager.host_store.close()
        else:
            manager.host_store.settle()
        manager.ended = True
    try:
        if failures:
            raise failures[0] if len(failures) == 1 else ExceptionGroup("closing the manager failed", failures)
    finally:
        failures.clear()  # their tracebacks hold the frames that hold this list


def refuse_pinned(manager: Manager) -> None:
    """Under the lock.  Errors: `BusyError` that names what is pinned, and by which thread."""
    for entry in manager.pinned:
        threads = ", ".join(str(thread) for thread in sorted({max(each, ~each) for each in entry.pins.values()}))
        raise BusyError(f"cannot close while {entry!r} is in use by thread {threads}; leave its `with` block first")


def _wait_for_moves(manager: Manager) -> None:
    """Under the lock: until no thread is in the middle of moving an entry."""
    while manager.moving:
        for entry in manager.moving:
            if entry.owner == get_ident():
                raise BusyError(f"cannot close while this very thread is moving {entry!r}")
        manager.waiting.wait(manager.waiting.changes)


def _wait_for_work(manager: Manager, failures: list[Exception]) -> None:
    with lock:
        tickets = [ticket for block in manager.memory.pool.blocks() for ticket in block.tickets]
    latest: dict[Timeline, int] = {}
    for timeline, sequence in tickets:
        latest[timeline] = max(sequence, latest.get(timeline, 0))
    for timeline in (manager.stream, *manager.own_streams):
        latest.setdefault(timeline, 0)
    for timeline, sequence in latest.items():
        try:
            if not timeline.borrowed and not timeline.closed:
                manager.driver.synchronize(timeline.handle)  # needs no event, which could not be had
                timeline.settle()
            timeline.wait(sequence)
        except ClosedError:  # the context is gone, and all work with it
            timeline.close()
        except Exception as error:
            failures.append(error)


def _end_streams(manager: Manager, failures: list[Exception]) -> None:
    for timeline in manager.own_streams:
        try:
            timeline.close()
        except Exception as error:
            failures.append(error)
    for slot in manager.handles:
        try:
            while slot:
                manager.driver.destroy_stream(slot.pop())
        except Exception as error:
            failures.append(error)


def run_late(manager: Manager) -> None:
    """Do what could not be done where it came up: under the lock, in a finalizer, inside an interrupted call.

    What an interrupt strikes is done once more the next time: all of it can be repeated.
    """
    if held_here():
        return
    doing: list[Callable[[], object]] = []
    try:
        while manager.late:
            try:
                doing.extend(starmap(manager.late.popleft, ((),)))  # one C call: an interrupt cannot lose it in between
            except IndexError:  # another thread took the last one
                return
            try:
                doing[0]()
            except Exception as error:
                warn(f"what was put off could not be done: {type(error).__name__}: {error}", error)
            doing.clear()
    finally:
        manager.late.extendleft(map(_again, doing))


def _once_more(job: Callable[[], object]) -> None:
    """The interrupt may have struck when it was done already."""
    try:
        job()
    except (ClosedError, OwnershipError):
        pass


_again: Final = partial(partial, _once_more)  # no interrupt strikes what is built in C
