"""Moving arrays off the device: victims are chosen under the lock, copied back without it, committed under it.

A clean or uninitialised array costs no copy: its block goes to the pool with the tickets of its last uses.  A dirty one
is EVICTING while its copy is on the way; the block stays until the copy's ticket has completed.  A use that comes
meanwhile simply takes the array back: a reader leaves it clean (the copy completes anyway), a writer dirty.
"""

from __future__ import annotations

from _thread import get_ident
from collections import deque
from typing import TYPE_CHECKING, Final

from lifetimes import instrument
from lifetimes.entry import BROKEN, CLEAN, DIRTY, EVICTING, HOST, Entry
from lifetimes.errors import BackendError, OutOfMemory
from lifetimes.failures import warn
from lifetimes.locks import lock
from lifetimes.manager import moves

if TYPE_CHECKING:
    from lifetimes.manager.core import Manager
    from lifetimes.timeline import Ticket, Timeline

__all__ = ["TRIES", "Evictor"]

TRIES: Final = 8
"""How many copies may fail before whoever needs the memory gives up evicting arrays that have to be copied."""


class _HostIsFull(Exception):  # noqa: N818 (a state of affairs)
    """There is no host memory to copy to."""


class Evictor:
    """Evicts entries of one manager.  Threading: any thread; each entry is moved by the one that claimed it."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        # Copies on their way, oldest first.  Invariant: an EVICTING entry that nobody owns stands here.
        self.copybacks: deque[tuple[Entry, Ticket]] = deque()
        self.failed = 0  # copies that could not be enqueued, or failed

    def evict_some(self, nbytes: int, *, copying: bool = True) -> bool:
        """Evict in the policy's order until ``nbytes`` of capacity are free or on their way; whether anything was.

        An array whose copy cannot be enqueued (no host memory, a failing driver) stays, and the next one goes in its place;
        after a few of them, and if not ``copying``, only arrays that need no copy go.
        Complexity: one pass over the candidates, and one more for each failure; those found pinned leave the policy until
        their last unpin.
        """
        stayed: set[int] = set()
        gained = 0
        while copying and gained < nbytes:
            before = len(stayed)
            gained += self._evict_some(nbytes - gained, stayed)
            if len(stayed) == before:
                return gained > 0
            copying = len(stayed) < TRIES
        if gained < nbytes:
            gained += self._evict_some(nbytes - gained, None)
        return gained > 0

    def _evict_some(self, nbytes: int, stayed: set[int] | None) -> int:
        """One pass; bytes of capacity.  Passes by what ``stayed``, and adds to it; None: by what has to be copied."""
        manager = self.manager
        claimed: list[Entry] = []
        chosen = 0
        try:
            with lock:
                for key in manager.policy.candidates():
                    if chosen >= nbytes:
                        break
                    entry = manager.table.get(key)
                    if entry is None or entry.pins or entry.owner:
                        manager.policy.remove(key)
                        if entry is not None:
                            entry.kept = False
                        continue
                    if entry.state == DIRTY if stayed is None else key in stayed:
                        continue
                    assert entry.block is not None, "only resident entries are candidates"
                    chosen += entry.block.capacity
                    if self._claim(entry):
                        claimed.append(entry)
                copied = sum(entry.block.capacity for entry in claimed if entry.block is not None)
            coming = self._copy_back(claimed)
            if stayed is not None and coming < copied:
                stayed.update(entry.key for entry in claimed if entry.state == DIRTY)
            return chosen - copied + coming
        finally:
            if claimed:
                self._disclaim(claimed)

    def evict(self, entry: Entry) -> bool:
        """Evict this one and wait until its content is on the host.  False when it is pinned, moved or adopted."""
        claimed: list[Entry] = []
        try:
            with lock:
                if entry.pins or entry.owner or entry.lease is not None or entry.released:
                    return False
                if entry.block is None:
                    return True
                if entry.state != EVICTING and self._claim(entry):
                    claimed.append(entry)
            if claimed and not self._copy_back(claimed):
                return False
        finally:
            if claimed:
                self._disclaim(claimed)
        while entry.state == EVICTING:
            if not self.wait_oldest():
                break
        return entry.block is None

    def in_flight(self) -> int:
        """Bytes of capacity whose copy-back is on its way.  Under the lock."""
        return sum(
            entry.block.capacity
            for entry, ticket in self.copybacks
            if entry.state == EVICTING and entry.copyback == ticket and entry.block is not None
        )

    def settle(self) -> bool:
        """Commit the copies that have completed; whether there were any.  Never blocks."""
        copybacks = self.copybacks
        any_done = False
        while copybacks:
            try:
                entry, ticket = copybacks[0]
            except IndexError:
                break
            if not ticket[0].done(ticket[1]):
                break
            any_done = True
            self._commit(entry, ticket)
        return any_done

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
        moves.drop_from_policy(manager, entry)
        counters = manager.counters
        counters.evictions += 1
        counters.evicted_bytes += entry.nbytes
        state = entry.state
        if state == DIRTY:
            if entry.copyback is not None:
                # Void, since a writer took the array back: all that it tells is when ``host`` is free.
                entry.upload = entry.copyback
                entry.copyback = None
            entry.become(EVICTING)
            moves.own(manager, entry)
            manager.host_store.place(entry)
            return True
        if state == CLEAN:
            if entry.copyback is not None:
                # A reader took it over while it was copied back; that copy is still what we wait for.
                entry.become(EVICTING)
                manager.host_store.place(entry)
                return False
            moves.back_to_host(manager, entry)
            return False
        moves.give_block(manager, entry)  # uninitialised, or broken: nothing to keep
        return False

    def _copy_back(self, claimed: list[Entry]) -> int:
        """Enqueue the copies of claimed entries; the bytes on their way.  What fails stays on the device."""
        coming = 0
        for entry in claimed:
            block = entry.block
            assert block is not None, "an evicting entry keeps its block"
            try:
                self._enqueue(entry)
                coming += block.capacity
            except _HostIsFull:  # which the out-of-memory error will say
                self.failed += 1
                self._disclaim([entry])
            except (BackendError, OutOfMemory) as error:
                self.failed += 1
                self._disclaim([entry])
                warn(f"copying {entry!r} back to the host failed: {error}; it stays on the device", error)
        return coming

    def _disclaim(self, claimed: list[Entry]) -> None:
        """Whatever happened: what is still claimed here and not on its way stays on the device."""
        with lock:
            me = get_ident()
            for entry in claimed:
                if entry.owner == me:
                    if entry.state == EVICTING:
                        entry.become(DIRTY)
                        self.manager.host_store.place(entry)
                        moves.keep(self.manager, entry)
                    moves.disown(self.manager, entry)
                    moves.moved(self.manager, entry)

    def _enqueue(self, entry: Entry) -> None:
        manager = self.manager
        transfer = manager.transfer
        block = entry.block
        assert block is not None, "an evicting entry keeps its block"
        fresh = entry.host is None
        try:
            buffer = manager.host_buffer(entry.nbytes) if fresh else entry.host
        except OutOfMemory as error:
            raise _HostIsFull from error
        assert buffer is not None, "taken just now, or there already"
        called = enqueued = False
        try:
            latest: dict[Timeline, int] = {}  # on one stream the last work is behind all others
            for timeline, sequence in (*entry.writes(), *entry.host_tickets()):
                if sequence > latest.get(timeline, 0):
                    latest[timeline] = sequence
            for timeline, sequence in latest.items():
                transfer.wait_for(timeline, sequence)
            transfer.fence()  # the failure of this copy is told apart from the one before
            called = True
            manager.driver.copy_out(buffer, block.address, transfer.handle)
            with lock:
                ticket = (transfer, transfer.issue())
                entry.host = buffer
                entry.reads[transfer] = ticket[1]
                entry.copyback = ticket
                self.copybacks.append((entry, ticket))
                enqueued = True
                moves.disown(manager, entry)
                counters = manager.counters
                counters.copybacks += 1
                counters.copyback_bytes += entry.nbytes
                moves.moved(manager, entry)
        finally:
            if not enqueued:
                with lock:
                    entry.copyback = None
                    landing = []
                    if called:  # even a call that was interrupted may have enqueued the copy
                        landing.append((transfer, transfer.issue()))
                        entry.reads[transfer] = landing[0][1]
                    if fresh:
                        entry.host = None
                        manager.host_store.give(buffer, landing)
                    elif landing:
                        entry.upload = landing[0]  # so that nobody reuses the buffer before
        transfer.mark()
        if instrument.watchers:
            instrument.emit("copyback", entry.key, nbytes=entry.nbytes)

    def _commit(self, entry: Entry, ticket: Ticket) -> None:
        """The copy has completed, or failed."""
        manager = self.manager
        error = ticket[0].error(ticket[1])
        # They are done, since the copy waited for them, so this takes no time, unless another thread is just recording an event
        # there: what `Timeline.done` cannot tell yet would go unnoticed, and a worthless copy be taken for the content.
        with lock:
            counts = entry.copyback == ticket and entry.state in (EVICTING, CLEAN)
            writes = entry.writes() if counts else []  # a writer that took it back has others, which are in flight
        for timeline, sequence in writes:
            timeline.wait(sequence)
        evicted = False
        with lock:
            try:
                self.copybacks.remove((entry, ticket))
            except ValueError:
                return  # another thread committed it
            if entry.copyback == ticket:
                entry.copyback = None
                wrong = entry.wrong() if entry.state in (EVICTING, CLEAN) else None
                if error is not None:
                    self.failed += 1
                if entry.state == EVICTING:
                    if error is not None:
                        entry.become(DIRTY)
                        moves.keep(manager, entry)
                        manager.host_store.place(entry)
                    elif wrong is not None:  # a copy of what a failed write left behind is worth nothing
                        entry.why = wrong
                        entry.become(BROKEN)
                        moves.give_block(manager, entry)
                        manager.host_store.let_go(entry)
                    else:
                        entry.become(HOST)
                        moves.give_block(manager, entry)
                        manager.host_store.place(entry)
                        evicted = True
                elif entry.state == CLEAN and (error is not None or wrong is not None):
                    entry.become(DIRTY)
                    manager.host_store.place(entry)
            moves.moved(manager, entry)
        if error is not None:
            warn(f"copying {entry!r} back to the host failed: {error}; it stays on the device", error)
        elif evicted and instrument.watchers:
            instrument.emit("evict", entry.key, nbytes=entry.nbytes)
