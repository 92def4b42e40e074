"""Bringing a working set to the device: all of it or none of it.

Everything is pinned and claimed at once under the lock, so two threads that need overlapping sets cannot each take
half.  Memory is found before an entry leaves its state; arrays that will be overwritten are marked dirty only when
nothing can fail any more.
"""

from __future__ import annotations

import time
from _thread import get_ident
from typing import TYPE_CHECKING

from lifetimes.entry import BROKEN, CLEAN, DIRTY, EVICTING, HOST, UPLOADING, Entry
from lifetimes.errors import BrokenError, BusyError, ClosedError, OutOfMemory
from lifetimes.locks import lock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lifetimes._typing import Mode
    from lifetimes.manager.core import Manager
    from lifetimes.pool import Block
    from lifetimes.timeline import Timeline

__all__ = ["acquire"]


def acquire(manager: Manager, use: object, working_set: Sequence[tuple[Entry, Mode]], stream: Timeline) -> None:
    """Pin all of the working set for ``use`` and bring it to the device, or change nothing.

    On shortage it takes nothing and waits, up to the manager's ``pin_timeout``, for pins of other threads to end; if
    only this thread's own pins stand in the way, it fails at once.  Threads that wait do so one after the other, so that
    they do not take the memory from each other half by half.

    Errors: `OutOfMemory`, `BrokenError`, `ClosedError`, `BusyError` for an entry that this very thread is moving.
    """
    try:
        _try_acquire(manager, use, working_set, stream)
        return
    except OutOfMemory as error:
        if not _worth_waiting(manager, None):
            raise
        shortage = error
    deadline = time.monotonic() + manager.pin_timeout
    if not manager.turnstile.acquire(timeout=manager.pin_timeout):
        raise _gave_up(manager, shortage)
    try:
        while True:
            seen = manager.changes
            try:
                _try_acquire(manager, use, working_set, stream)
                return
            except OutOfMemory as error:
                shortage = error
            if not _worth_waiting(manager, seen):
                raise shortage
            with lock:
                manager.wait_for_change(seen, deadline)
            if time.monotonic() >= deadline:
                raise _gave_up(manager, shortage)
    finally:
        manager.turnstile.release()


def _worth_waiting(manager: Manager, seen: int | None) -> bool:
    """Whether another thread pins or moves something, or anything changed since ``seen``."""
    me = get_ident()
    with lock:
        if seen is not None and manager.changes != seen:
            return True
        return any(
            (entry.owner and entry.owner != me) or any(thread != me for thread in entry.pins.values())
            for _, entry in manager.table.snapshot()
        )


def _gave_up(manager: Manager, shortage: OutOfMemory) -> OutOfMemory:
    shortage.add_note(f"waited {manager.pin_timeout:g} s for other threads to leave their `with` blocks")
    return shortage


def _try_acquire(manager: Manager, use: object, working_set: Sequence[tuple[Entry, Mode]], stream: Timeline) -> None:
    blocks: dict[int, Block] = {}
    missing: list[tuple[Entry, Mode]] = []
    try:
        _claim(manager, use, working_set, missing)
        for entry, _ in missing:
            blocks[entry.key] = manager.ladder.allocate(entry.nbytes, stream)
        _order(working_set, stream)
        for entry, mode in missing:
            if entry.state == HOST and mode != "w":
                _upload(manager, entry, blocks, stream)
        _commit(manager, working_set, missing, blocks)
    except BaseException:
        _roll_back(manager, use, working_set, blocks)
        raise


def _claim(
    manager: Manager, use: object, working_set: Sequence[tuple[Entry, Mode]], missing: list[tuple[Entry, Mode]]
) -> None:
    """Pin everything, and own what must be moved (``missing``), once nobody else is moving any of it."""
    thread = get_ident()
    with lock:
        while True:
            moving = next((entry for entry, _ in working_set if entry.owner), None)
            if moving is None:
                break
            if moving.owner == thread:
                raise BusyError(f"{moving!r} is being moved by this very thread, which came back into it")
            manager.wait_for_change(manager.changes, None)
        for entry, mode in working_set:
            _check(entry, mode)
        for entry, mode in working_set:
            entry.pins[use] = thread
            if entry.state == EVICTING:
                # The copy completes anyway: a reader leaves it valid, a writer makes it void.
                entry.become(CLEAN if mode == "r" else DIRTY)
                manager.keep(entry)
            elif entry.block is not None:
                if not entry.parked:
                    manager.touch(entry.key)
            elif entry.nbytes:
                missing.append((entry, mode))
                entry.owner = thread


def _check(entry: Entry, mode: Mode) -> None:
    if entry.released:
        raise ClosedError(f"array #{entry.key} was released; it cannot be used any more")
    write = entry.last_write
    reason = None if write is None else write[0].error(write[1])
    if reason is not None and entry.state != BROKEN:
        entry.become(BROKEN)
    if entry.state == BROKEN and mode != "w":
        raise BrokenError(
            f"the content of array #{entry.key} is lost: the work that last wrote it failed"
            + (f" ({reason})" if reason is not None else "")
            + '; write all of it anew in a use with mode "w"'
        )


def _order(working_set: Sequence[tuple[Entry, Mode]], stream: Timeline) -> None:
    """A read waits for the last write, a write for everything."""
    for entry, mode in working_set:
        if entry.last_write is not None:
            stream.wait_for(*entry.last_write)
        if mode != "r":
            for timeline, sequence in list(entry.reads.items()):
                stream.wait_for(timeline, sequence)


def _upload(manager: Manager, entry: Entry, blocks: dict[int, Block], stream: Timeline) -> None:
    host = entry.host
    assert host is not None, "an entry in the state HOST has its content there"
    with lock:
        entry.become(UPLOADING)
    try:
        manager.driver.copy_in(blocks[entry.key].address, host, stream.handle)
    except BaseException:
        with lock:
            entry.become(HOST)
        raise
    with lock:
        entry.become(CLEAN)
        entry.attach(blocks.pop(entry.key))
        entry.last_write = (stream, stream.tick())
        entry.reads = {}
        manager.counters.uploads += 1
        manager.counters.upload_bytes += entry.nbytes
        manager.keep(entry)


def _commit(
    manager: Manager,
    working_set: Sequence[tuple[Entry, Mode]],
    missing: list[tuple[Entry, Mode]],
    blocks: dict[int, Block],
) -> None:
    """Nothing fails from here on: attach the blocks that need no upload, mark what will be written."""
    with lock:
        for entry, mode in working_set:
            block = blocks.pop(entry.key, None)
            if block is not None:
                entry.attach(block)
                entry.reads = {}
                manager.keep(entry)
            if mode != "r" and entry.state != DIRTY:
                if entry.state == BROKEN:
                    entry.last_write = None  # the failure is history once all is overwritten
                entry.become(DIRTY)
        for entry, _ in missing:
            entry.owner = 0
        counters = manager.counters
        counters.hits += len(working_set) - len(missing)
        counters.misses += len(missing)
        manager.note_change()


def _roll_back(
    manager: Manager, use: object, working_set: Sequence[tuple[Entry, Mode]], blocks: dict[int, Block]
) -> None:
    thread = get_ident()
    with lock:
        for block in blocks.values():
            manager.memory.pool.hold(block, block.tickets)
        blocks.clear()
        for entry, _ in working_set:
            if entry.owner == thread:
                entry.owner = 0
            if entry.pins.pop(use, None) is not None and not entry.pins:
                manager.last_unpin(entry)
        manager.note_change()
