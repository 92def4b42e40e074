"""Moving arrays off the device: victims are chosen under the lock, copied back without it, committed under it.

A clean or uninitialised array costs no copy: its block goes to the pool with the tickets of its last uses.  A dirty one
is EVICTING while its copy is on the way; the block stays until the copy's ticket has completed.  A use that comes
meanwhile simply takes the array back: a reader leaves it clean (the copy completes anyway), a writer dirty.
"""

from __future__ import annotations

from _thread import get_ident
from collections import deque
from typing import TYPE_CHECKING

from lifetimes.entry import BROKEN, CLEAN, DIRTY, EVICTING, HOST, RELEASED, UNINIT, Entry
from lifetimes.errors import BackendError
from lifetimes.failures import warn
from lifetimes.locks import lock

if TYPE_CHECKING:
    from lifetimes.manager.core import Manager
    from lifetimes.timeline import Ticket

__all__ = ["Evictor"]


class Evictor:
    """Evicts entries of one manager.  Threading: any thread; each entry is moved by the one that claimed it."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        # Copies on their way, oldest first.  Invariant: an EVICTING entry that nobody owns stands here.
        self.copybacks: deque[tuple[Entry, Ticket]] = deque()

    def evict_some(self, nbytes: int) -> bool:
        """Evict in the policy's order until ``nbytes`` of capacity are free or on their way; whether anything was.

        Complexity: one pass over the candidates at most; those found pinned leave the policy until their last unpin.
        """
        manager = self.manager
        claimed: list[Entry] = []
        freed = 0
        with lock:
            for key in manager.policy.candidates():
                if freed >= nbytes:
                    break
                entry = manager.table.get(key)
                if entry is None or entry.pins or entry.owner:
                    manager.policy.remove(key)
                    if entry is not None:
                        entry.parked = True
                    continue
                assert entry.block is not None, "only resident entries are candidates"
                freed += entry.block.capacity
                if self._claim(entry):
                    claimed.append(entry)
        self._copy_back(claimed)
        return freed > 0

    def evict(self, entry: Entry) -> bool:
        """Evict this one and wait until its content is on the host.  False when it is pinned or being moved."""
        with lock:
            if entry.pins or entry.owner or entry.block is None:
                return entry.block is None and not entry.owner and entry.state in (HOST, UNINIT)
            claimed = [entry] if entry.state != EVICTING and self._claim(entry) else []
        self._copy_back(claimed)
        while entry.state == EVICTING:
            if not self.wait_oldest():
                break
        return entry.block is None

    def in_flight(self) -> int:
        """Bytes of capacity whose copy-back is on its way.  Under the lock."""
        return sum(entry.block.capacity for entry, _ in self.copybacks if entry.state == EVICTING and entry.block)

    def settle(self) -> None:
        """Commit the copies that have completed.  Never blocks."""
        copybacks = self.copybacks
        while copybacks:
            try:
                entry, ticket = copybacks[0]
            except IndexError:
                return
            if not ticket[0].done(ticket[1]):
                return
            self._commit(entry, ticket)

    def wait_oldest(self) -> bool:
        """Wait for the oldest copy on its way and commit it; False when there is none."""
        try:
            entry, ticket = self.copybacks[0]
        except IndexError:
            return False
        ticket[0].wait(ticket[1])
        self._commit(entry, ticket)
        return True

    def _claim(self, entry: Entry) -> bool:
        """Under the lock: free a clean entry at once; True for a dirty one, which is ours to copy back."""
        manager = self.manager
        manager.policy.remove(entry.key)
        entry.parked = False
        counters = manager.counters
        counters.evictions += 1
        counters.evicted_bytes += entry.nbytes
        if entry.state == DIRTY:
            entry.become(EVICTING)
            entry.owner = get_ident()
            return True
        if entry.state == CLEAN:
            entry.become(HOST)
        manager.give_block(entry)
        return False

    def _copy_back(self, claimed: list[Entry]) -> None:
        """Enqueue the copies of claimed entries.  Whatever fails, each entry ends unowned and with its content."""
        manager = self.manager
        at = 0
        try:
            for at, entry in enumerate(claimed):
                self._enqueue(entry)
        except BaseException as error:
            failed = claimed[at:]
            with lock:
                for entry in failed:
                    if entry.state == EVICTING and entry.owner == get_ident():
                        entry.owner = 0
                        entry.become(DIRTY)
                        manager.keep(entry)
                manager.note_change()
            if not isinstance(error, (BackendError, MemoryError)):
                raise
            warn(f"copying {claimed[at]!r} back to the host failed: {error}; it stays on the device", error)

    def _enqueue(self, entry: Entry) -> None:
        manager = self.manager
        transfer = manager.transfer
        assert entry.block is not None, "an evicting entry keeps its block"
        fresh = entry.host is None or entry.borrowed
        buffer = manager.host_store.take(entry.nbytes) if fresh else entry.host
        assert buffer is not None, "taken just now, or there already"
        try:
            if entry.last_write is not None:
                transfer.wait_for(*entry.last_write)
            manager.driver.copy_out(buffer, entry.block.address, transfer.handle)
        except BaseException:
            if fresh:
                manager.host_store.give(buffer)
            raise
        with lock:
            ticket = (transfer, transfer.tick())
            entry.host = buffer
            entry.borrowed = False
            entry.copyback = ticket
            entry.reads[transfer] = ticket[1]
            entry.owner = 0
            self.copybacks.append((entry, ticket))
            manager.counters.copybacks += 1
            manager.counters.copyback_bytes += entry.nbytes
            manager.note_change()
        transfer.mark()  # its failure must be told apart from the next copy's

    def _commit(self, entry: Entry, ticket: Ticket) -> None:
        """The copy has completed, or failed."""
        manager = self.manager
        error = ticket[0].error(ticket[1])
        write = entry.last_write
        # The copy came after the write, so the write is done, but nobody may have asked yet how it ended.
        lost = write is not None and write[0].done(write[1]) and write[0].error(write[1]) is not None
        with lock:
            try:
                self.copybacks.remove((entry, ticket))
            except ValueError:
                return  # another thread committed it
            if entry.copyback == ticket:
                entry.copyback = None
                if entry.state == EVICTING:
                    if error is None:
                        # A copy of what a failed write left behind is worth nothing.
                        entry.become(BROKEN if lost else HOST)
                        manager.give_block(entry)
                    else:
                        entry.become(DIRTY)
                        manager.keep(entry)
                elif entry.state == CLEAN and error is not None:
                    entry.become(DIRTY)
            if entry.released and not entry.owner and not entry.pins and entry.state != RELEASED:
                manager.finish_release(entry)
            manager.note_change()
        if error is not None:
            warn(f"copying {entry!r} back to the host failed: {error}; it stays on the device", error)
