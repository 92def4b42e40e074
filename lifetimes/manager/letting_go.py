"""The end of an array whose handle went: `Manager.release`, with a short way for what only the device has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lifetimes.entry import DIRTY, RELEASED
from lifetimes.errors import ClosedError, OwnershipError
from lifetimes.locks import held_here, lock
from lifetimes.manager import moves

if TYPE_CHECKING:
    from lifetimes.manager.core import Manager

__all__ = ["let_go"]


def let_go(manager: Manager, key: int) -> None:
    """Forget an array, if it is there.  Its memory is reused when its last use has completed.

    No safe point: it is called by them.  Locks: the library's; inside of it the release is put off.
    """
    if held_here():
        try:
            manager.release(key)
        except (ClosedError, OwnershipError):  # it was never added, or went with its manager
            pass
        return
    try:
        with lock:
            entry = manager.get(key)
            if entry is None:
                return
            memory, block = manager.memory, entry.block
            pool = memory.pool
            if (
                block is None
                or entry.state != DIRTY
                or entry.pins
                or entry.owner
                or entry.host is not None
                or entry.file is not None
                or not entry.kept
                or manager.waiting.attention
                or memory.soft is not None
                or pool.max_bytes is not None
                or pool.max_age is not None
            ):
                moves.release(manager, entry)
            else:
                # What `moves.release` does, in one piece.  The block has its tickets before the entry leaves the table: should
                # an interrupt strike, it is found without an owner and put into the pool.
                entry.released = True
                nbytes = entry.nbytes
                tickets = [*entry.reads.items()]
                if entry.last_write is not None:
                    tickets.append(entry.last_write)
                block.tickets = tickets
                manager.table.pop(key)
                manager.policy.remove(key)
                entry.kept = False
                entry.state = RELEASED
                entry.block = None
                counters = manager.counters
                counters.arrays -= 1
                counters.array_bytes -= nbytes
                counters.resident -= 1
                counters.resident_bytes -= nbytes
                counters.counts[DIRTY] -= 1
                counters.sums[DIRTY] -= nbytes
                pool.hold(block, tickets)
                manager.waiting.note()
        if manager.late:
            manager.run_late()
    except BaseException as error:
        if not isinstance(error, Exception):
            manager.repair()
        raise
