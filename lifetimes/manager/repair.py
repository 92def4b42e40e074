"""After an interrupt: what the thread had in hand is given up, and all sums and lists are made anew from the entries.

See Note [Interrupts] in guarded.py and Note [Truth] in entry.py.
"""

from __future__ import annotations

from _thread import get_ident
from typing import TYPE_CHECKING

from lifetimes.entry import (
    CLEAN,
    DIRTY,
    DISK,
    EVICTING,
    HOST,
    LOADING,
    RELEASED,
    SPILLING,
    UPLOADING,
    Entry,
)
from lifetimes.locks import lock
from lifetimes.manager import moves
from lifetimes.manager.snapshot import all_entries, recount

if TYPE_CHECKING:
    from lifetimes.manager.core import Manager

__all__ = ["repair"]


def repair(manager: Manager) -> None:
    """Put right what an interrupt on this thread has torn.  Complexity: O(arrays)."""
    me = get_ident()
    with lock:
        for key, entry in manager.table.snapshot():
            if entry.released:
                manager.table.pop(key)
                manager.departing[entry] = None
        entries = all_entries(manager)
        for entry in entries:
            if entry.owner == me or not entry.owner:
                _give_up(manager, entry)
                _settle(manager, entry)
        manager.moving = {entry: None for entry in entries if entry.owner}
        manager.pinned = {entry: None for entry in entries if entry.pins}
        for token in [token for token, thread in manager.waiting.line.items() if thread == me]:
            del manager.waiting.line[token]
        _file_copybacks(manager, entries)
        held = [entry.block for entry in entries if entry.block is not None and entry.lease is None]
        for block in manager.memory.repair(held):
            manager.memory.pool.hold(block, block.tickets)
        for entry in entries:
            if entry.block is not None:
                entry.block.owner = entry.key
        _file_with_policy(manager, entries)
        store = manager.host_store
        store.forget_requests(thread=me)
        for entry in entries:
            store.place(entry)
        store.recount()
        counters = manager.counters
        for name, value in recount(manager, entries).items():
            setattr(counters, name, value)
        counters.total_bytes = max(counters.total_bytes, counters.array_bytes)
        counters.peak_array_bytes = max(counters.peak_array_bytes, counters.array_bytes)
        counters.peak_pinned_bytes = max(counters.peak_pinned_bytes, counters.pinned_bytes)
        for entry in entries:
            manager.moved(entry)
        for entry in [entry for entry in manager.departing if entry.state == RELEASED]:
            del manager.departing[entry]
        manager.waiting.note()


def _give_up(manager: Manager, entry: Entry) -> None:
    """Undo a transition half-way: the content is where it was."""
    if entry.state == EVICTING and entry.copyback is None:
        entry.state = DIRTY
    elif entry.state == UPLOADING:
        entry.state = HOST
    elif entry.state == SPILLING:
        entry.state = HOST if entry.host is not None else DISK
    elif entry.state == LOADING:
        entry.state = DISK
    entry.owner = 0


def _settle(manager: Manager, entry: Entry) -> None:
    """Where state and content were changed in two steps, take the second one too."""
    store = manager.host_store
    if entry.block is not None and entry.state in (HOST, DISK):
        moves.give_block(manager, entry)
    if entry.host is not None and (entry.state == DISK or (entry.borrowed and entry.state not in (HOST, CLEAN))):
        store.let_go(entry)
    if entry.file is not None:
        store.on_disk[entry] = entry.file.nbytes
        if entry.state not in (HOST, CLEAN, DISK):
            store.discard_file(entry)
    else:
        store.on_disk.pop(entry, None)


def _file_copybacks(manager: Manager, entries: list[Entry]) -> None:
    copybacks = manager.evictor.copybacks
    known = dict(copybacks)
    for entry in entries:
        flying = entry.copyback if entry.state == EVICTING and not entry.owner else None
        if flying is not None and known.get(entry) != flying:
            copybacks.append((entry, flying))


def _file_with_policy(manager: Manager, entries: list[Entry]) -> None:
    live = {entry.key for entry in entries if not entry.released}
    for key in [key for key in manager.policy.candidates() if key not in live]:
        manager.policy.remove(key)
    for entry in entries:
        known = entry.key in manager.policy
        entry.kept = known and not entry.released
        if known and (entry.block is None or entry.released or entry.state in (EVICTING, RELEASED)):
            manager.policy.remove(entry.key)
            entry.kept = False
        elif not entry.pins:
            manager.keep(entry)
