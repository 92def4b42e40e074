"""Bringing a working set to the device: all of it or none of it.

Everything is pinned and claimed at once under the lock, so two threads that need overlapping sets cannot each take
half.  Memory is found before an entry leaves its state; arrays that will be overwritten are marked dirty only when
nothing can fail any more.
"""

from __future__ import annotations

import time
from _thread import get_ident
from typing import TYPE_CHECKING

from lifetimes import instrument
from lifetimes.entry import BROKEN, CLEAN, DIRTY, DISK, EVICTING, HOST, UNINIT, UNMANAGED, UNSEEN, UPLOADING, Entry
from lifetimes.errors import BackendError, BrokenError, BusyError, ClosedError
from lifetimes.host_store.spill import load
from lifetimes.locks import lock
from lifetimes.manager import moves
from lifetimes.manager.pins import pin, unpin
from lifetimes.manager.shortage import Shortage
from lifetimes.timeline import told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lifetimes._typing import Mode
    from lifetimes.manager.core import Manager
    from lifetimes.pool import Block
    from lifetimes.timeline import Timeline

__all__ = ["acquire", "bring", "check", "look_at_upload"]


def acquire(manager: Manager, token: int, working_set: Sequence[tuple[Entry, Mode]], stream: Timeline) -> None:
    """Pin all of the working set for the use ``token`` and bring it to the device, or change nothing.

    On shortage it takes nothing and waits, up to the manager's ``pin_timeout``, for pins of other threads to end; if
    only this thread's own pins stand in the way, it fails at once.

    Errors: `OutOfMemory`, `BrokenError`, `ClosedError`, `BusyError` for an entry that this very thread is moving.
    """
    waiting = manager.waiting
    shortage: Shortage | None = None
    if not waiting.line or _may_pass(manager, working_set):
        began = waiting.begin()
        try:
            _try_acquire(manager, token, working_set, stream)
            return
        except Shortage as error:
            shortage = error.with_traceback(None)  # which would hold this frame, and this frame it
        if not _worth_waiting(manager, began):
            raise shortage.explain(manager)
    deadline = time.monotonic() + manager.pin_timeout
    try:
        waiting.stand_in_line(token)
        while True:
            began = waiting.begin()
            if waiting.first_in_line(token) or _holds_pins(manager):
                try:
                    _try_acquire(manager, token, working_set, stream)
                    return
                except Shortage as error:
                    shortage = error.with_traceback(None)
                if not _worth_waiting(manager, began):
                    raise shortage.explain(manager)
            if time.monotonic() >= deadline:
                break
            with lock:
                if not waiting.others_changed(began):
                    waiting.wait(waiting.changes, deadline)
    finally:
        waiting.leave_line(token)
    if shortage is None:
        entry = max((entry for entry, _ in working_set), key=lambda entry: entry.nbytes)
        shortage = Shortage(entry.nbytes, entry.nbytes, ["waiting in line"])
    raise shortage.explain(manager, f"waited {manager.pin_timeout:g} s for other threads to leave their `with` blocks")


def _may_pass(manager: Manager, working_set: Sequence[tuple[Entry, Mode]]) -> bool:
    """Whether this need not wait behind the line: it wants no memory, or others may wait for its pins."""
    return all(entry.block is not None or not entry.nbytes for entry, _ in working_set) or _holds_pins(manager)


def _holds_pins(manager: Manager) -> bool:
    me = get_ident()
    with lock:
        holds = any(me in entry.pins.values() for entry in manager.pinned)
    return holds


def _worth_waiting(manager: Manager, began: int) -> bool:
    """Whether another thread pins or moves something, or has changed anything since the moment ``began``."""
    me = get_ident()
    with lock:
        worth = (
            manager.waiting.others_changed(began)
            or any(entry.owner not in (0, me) for entry in manager.moving)
            or any(thread not in (me, ~me) for entry in manager.pinned for thread in entry.pins.values())
        )
    return worth


def _try_acquire(manager: Manager, token: int, working_set: Sequence[tuple[Entry, Mode]], stream: Timeline) -> None:
    blocks: dict[int, Block] = {}
    missing: list[tuple[Entry, Mode]] = []
    try:
        for entry, _ in working_set:
            look_at_upload(entry)
        _claim(manager, token, working_set, missing)
        for entry, _ in missing:
            blocks[entry.key] = manager.ladder.allocate(entry.nbytes, stream)
        _order(working_set, stream)
        # Those in host memory first: what is uploaded makes room there for those that have to be read from files.
        for state in (HOST, DISK):
            for entry, mode in missing:
                if mode != "w" and entry.state == state:
                    bring(manager, entry, blocks, stream)
        _commit(manager, working_set, missing, blocks)
    except BaseException:
        _roll_back(manager, token, working_set, missing, blocks)
        raise


def _claim(
    manager: Manager, token: int, working_set: Sequence[tuple[Entry, Mode]], missing: list[tuple[Entry, Mode]]
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
            manager.waiting.wait(manager.waiting.changes)
        for entry, mode in working_set:
            check(manager, entry, mode)
        for entry, mode in working_set:
            pin(manager, token, entry, thread)
            if entry.state == EVICTING:
                # The copy completes anyway: a reader leaves it valid, a writer makes it void.
                entry.become(CLEAN if mode == "r" else DIRTY)
                manager.host_store.place(entry)
                moves.keep(manager, entry)
            elif entry.block is not None:
                if entry.kept:
                    manager.touch(entry.key)
            elif entry.nbytes:
                missing.append((entry, mode))
                moves.own(manager, entry)


def look_at_upload(entry: Entry) -> None:
    """Without the lock: learn whether the last upload is done, so that one that failed is not built upon."""
    upload = entry.upload
    if entry.checked == UNSEEN and upload is not None:
        upload[0].done(upload[1])


def check(manager: Manager, entry: Entry, mode: Mode) -> None:
    """Under the lock: refuse a use of what cannot be used.

    An upload that is known to have failed is undone: the content is on the host still.
    Errors: `ClosedError`, `BrokenError`; `BackendError` where the place of a failed upload is in use.
    """
    if entry.released:
        raise ClosedError(f"array #{entry.key} was released; it cannot be used any more")
    if manager.closed:
        raise manager.is_closed()
    if entry.checked != told.count:
        count = told.count
        wrong = entry.wrong()
        if wrong is not None and entry.state != BROKEN:
            if entry.state == CLEAN and entry.upload is not None and entry.upload == entry.last_write:
                if entry.pins:
                    raise BackendError(
                        f"uploading array #{entry.key} failed while it is in use: {wrong}; use it again later"
                    )
                moves.back_to_host(manager, entry)
            elif entry.state != UNINIT:
                entry.why = wrong
                entry.become(BROKEN)
                manager.host_store.let_go(entry)
                manager.host_store.discard_file(entry)
                moves.keep(manager, entry)
        upload = entry.upload
        unseen = upload is not None and entry.block is not None and upload[1] > upload[0].reached
        entry.checked = UNSEEN if unseen else count
    if entry.state == BROKEN and mode != "w":
        raise BrokenError(
            f'the content of array #{entry.key} is lost: {entry.why}; write all of it anew in a use with mode "w"'
        )


def _order(working_set: Sequence[tuple[Entry, Mode]], stream: Timeline) -> None:
    """A read waits for the last write, a write for everything."""
    for entry, mode in working_set:
        if entry.last_write is not None:
            stream.wait_for(*entry.last_write)
        if mode != "r":
            for timeline, sequence in list(entry.reads.items()):
                stream.wait_for(timeline, sequence)


def bring(manager: Manager, entry: Entry, blocks: dict[int, Block], stream: Timeline) -> None:
    """Upload an entry that this thread owns into its block, from its file if need be."""
    if entry.state == DISK:
        load(manager.host_store, entry)
    host = entry.host
    assert host is not None, "an entry in the state HOST has its content there"
    block = blocks[entry.key]
    stream.fence()  # the failure of this copy is told apart from what came before it
    with lock:
        entry.become(UPLOADING)
    before = entry.upload
    try:
        try:
            manager.driver.copy_in(block.address, host, stream.handle)
        finally:  # even a call that was interrupted may have enqueued the copy
            try:
                _note_upload(entry, block, stream)
            finally:
                if entry.upload is before:
                    _note_upload(entry, block, stream)
        with lock:
            entry.attach(blocks.pop(entry.key), entry.upload)
            entry.become(CLEAN)
            entry.checked = UNSEEN
            entry.earlier = None
            entry.reads = {}
            manager.host_store.place(entry)
            manager.counters.uploads += 1
            manager.counters.upload_bytes += entry.nbytes
            moves.disown(manager, entry)
            moves.keep(manager, entry)
    finally:
        if entry.state == UPLOADING:
            with lock:
                entry.become(HOST)
                manager.host_store.place(entry)
    stream.mark()  # and from what comes after it
    if instrument.watchers:
        instrument.emit("upload", entry.key, nbytes=entry.nbytes, stream=stream.key)


def _note_upload(entry: Entry, block: Block, stream: Timeline) -> None:
    with lock:
        ticket = (stream, stream.issue())
        block.tickets = [*block.tickets, ticket]
        entry.upload = ticket


def _commit(
    manager: Manager,
    working_set: Sequence[tuple[Entry, Mode]],
    missing: list[tuple[Entry, Mode]],
    blocks: dict[int, Block],
) -> None:
    """Nothing fails from here on: attach the blocks that need no upload, mark what will be written."""
    with lock:
        for entry, mode in working_set:
            block = blocks.get(entry.key)
            if block is not None:
                # Whoever comes from another stream waits for the former use of the block as for a reader.
                entry.reads = _latest(block)
                entry.attach(block)
                del blocks[entry.key]
                moves.keep(manager, entry)
            if mode != "r" and entry.nbytes:
                _will_be_written(manager, entry, mode)
        for entry, _ in missing:
            moves.disown(manager, entry)
        counters = manager.counters
        counters.hits += len(working_set) - len(missing)
        counters.misses += len(missing)
        manager.waiting.note()


def _will_be_written(manager: Manager, entry: Entry, mode: Mode) -> None:
    if mode == "w":
        entry.earlier = None
    if entry.state == BROKEN:  # which "w" alone may use: the failure is history once all is overwritten
        entry.last_write = None
        entry.become(DIRTY if entry.lease is None else UNMANAGED)
    elif entry.state != DIRTY and entry.state != UNMANAGED:
        entry.become(DIRTY)
    if entry.file is not None:
        manager.host_store.discard_file(entry)
    if entry.borrowed:
        manager.host_store.let_go(entry)
    else:
        manager.host_store.place(entry)


def _latest(block: Block) -> dict[Timeline, int]:
    reads: dict[Timeline, int] = {}
    for timeline, sequence in block.tickets:
        if sequence > reads.get(timeline, 0):
            reads[timeline] = sequence
    return reads


def _roll_back(
    manager: Manager,
    token: int,
    working_set: Sequence[tuple[Entry, Mode]],
    missing: Sequence[tuple[Entry, Mode]],
    blocks: dict[int, Block],
) -> None:
    with lock:
        for entry, _ in missing:  # others may be moved by a call around this one
            if entry.owner == get_ident():
                moves.disown(manager, entry)
        for key, block in list(blocks.items()):
            manager.memory.pool.hold(block, block.tickets)
            del blocks[key]
        for entry, _ in working_set:
            unpin(manager, token, entry)
        manager.waiting.note()
