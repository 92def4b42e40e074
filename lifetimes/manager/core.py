"""`Manager`: arrays that may be larger together than the device, kept in a table, evicted by a policy."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lifetimes import policies, tables
from lifetimes.cell import next_key
from lifetimes.entry import HOST, RELEASED, Entry
from lifetimes.errors import BrokenError, BusyError, ClosedError, OwnershipError
from lifetimes.host_store import HostStore
from lifetimes.locks import held_here, lock, refuse_reentry
from lifetimes.manager.eviction import Evictor
from lifetimes.manager.ladder import Ladder
from lifetimes.manager.memory import DeviceMemory
from lifetimes.manager.snapshot import check_invariants, take_snapshot
from lifetimes.manager.statistics import Counters, ManagerStatistics
from lifetimes.manager.use import Use, UseMany
from lifetimes.reaper import safepoint
from lifetimes.shutdown import on_fork_in_child
from lifetimes.size_classes import check_nbytes
from lifetimes.sizes import parse_limit
from lifetimes.timeline import Timeline

if TYPE_CHECKING:
    from lifetimes._typing import ByteView, HostArray, Mode
    from lifetimes.backend import Driver
    from lifetimes.policies.protocol import Policy
    from lifetimes.tables.protocol import Table
    from lifetimes.timeline import Ticket

__all__ = ["Manager"]


class Manager:
    """Owns arrays by key, on the device while there is room, on the host otherwise.

    ``table`` holds the entries and ``policy`` says who goes first when memory is short; both by name, import path or
    object.  ``memory_limit`` is in bytes (``"64MiB"``, ``"90%"`` of the device; None: all of it) and bounds everything taken
    from the driver, blocks held for reuse included.

    Threading: any thread.  Locks: the library's, never held while the driver works.

    >>> import numpy as np
    >>> from lifetimes.testing.sim import SimDriver
    >>> manager = Manager(SimDriver(), memory_limit="1MiB", table="judy")
    >>> key = manager.add(np.arange(4.0))
    >>> with manager.use(key) as address:
    ...     address != 0
    True
    >>> manager.evict(key), manager.read(key, np.empty(4))
    (True, array([0., 1., 2., 3.]))
    >>> manager.release(key)
    >>> manager.close()
    """

    def __init__(
        self,
        driver: Driver,
        *,
        memory_limit: int | str | None = None,
        table: Any = "dict",
        address_table: Any = None,
        policy: Any = "lru",
        host_store: HostStore | None = None,
        stream: Timeline | None = None,
        pin_timeout: float = 30.0,
        collect_garbage: bool = True,
    ) -> None:
        info = driver.memory_info()
        total = info.total if info is not None else driver.max_allocation
        self.driver = driver
        self.table: Table[Entry] = tables.make(table)
        self.policy: Policy = policies.make(policy)
        self.memory = DeviceMemory(driver, parse_limit(memory_limit, total), address_table or "sorted")
        self.host_store = HostStore() if host_store is None else host_store
        self.pin_timeout = pin_timeout
        self.collect_garbage = collect_garbage
        self.counters = Counters()
        self.evictor = Evictor(self)
        self.ladder = Ladder(self)
        self.closed = False
        # Releases that came while this thread was inside the lock.
        self.late: deque[int] = deque()
        # Note [Changes].  Waiters compare the count, so a change between their look and their wait is not missed.
        self.changed = threading.Condition(lock)
        self.changes = 0
        self.waiters = 0
        self.turnstile = threading.Lock()  # held by the one thread that waits for memory; never taken under the lock
        # The hot path calls these without a look-up in between.
        self.get = self.table.get
        self.touch = self.policy.touch
        self._own_streams: list[Timeline] = []
        self.stream = self._new_stream() if stream is None else stream
        self._transfer: Timeline | None = None
        self._published: ManagerStatistics = take_snapshot(self)
        on_fork_in_child(self)

    # Arrays come and go.

    def add(self, content: HostArray | int, *, copy: bool = True, label: str | None = None, key: int | None = None) -> int:
        """Manage a new array: a copy of a NumPy array, or so many bytes of unspecified content.  Returns its key.

        Nothing is put on the device before the first use.  ``copy=False`` borrows a C-contiguous array, which must not
        change while it is managed; it is never written.
        Errors: `ValueError` and `TypeError` for sizes and dtypes that cannot be, `OutOfMemory` for more than the limit.
        """
        if self.closed:
            raise self._is_closed()
        if held_here():
            raise refuse_reentry("Manager.add")
        safepoint()
        host: ByteView | None = None
        borrowed = False
        if isinstance(content, np.ndarray):
            if content.dtype.hasobject:
                raise TypeError(f"an array of dtype {content.dtype} holds Python objects, which a device cannot")
            nbytes = check_nbytes(content.nbytes, self.memory.limit, "the array")
            if copy or not content.flags.c_contiguous:
                host = self.host_store.take(nbytes)
                np.copyto(host.view(content.dtype).reshape(content.shape), content) if nbytes else None
            else:
                host, borrowed = content.reshape(-1).view(np.uint8), True
        else:
            nbytes = check_nbytes(content, self.memory.limit, "the array")
        entry = Entry(next_key() if key is None else key, nbytes, label)
        if host is not None:
            entry.host, entry.borrowed, entry.state = host, borrowed, HOST
        with lock:
            self.table.insert(entry.key, entry)
            self.counters.total_bytes += nbytes
        return entry.key

    def release(self, key: int) -> None:
        """Forget an array.  Its memory is reused when its last use has completed; a pinned one goes at its last unpin.

        Errors: `OwnershipError` for a key that is not managed (released already, or never added).
        """
        if held_here():
            self.late.append(key)
            return
        with lock:
            entry = self.table.get(key)
            if entry is not None and not entry.released:
                entry.released = True
                if not entry.pins and not entry.owner:
                    self.finish_release(entry)
                return
        raise self.unknown(key)

    # Using them.

    def use(self, key: int, mode: Mode = "r", stream: Any = None) -> Use:
        """``with manager.use(key, mode) as address:`` pins one array on the device for the block.

        Modes: ``"r"`` reads; ``"rw"`` reads and writes; ``"w"`` promises to overwrite the whole array, so nothing is
        uploaded.  Work in the block belongs on ``stream`` (a stream or timeline; None is the manager's own), which waits
        for whatever the mode has to wait for.  If the body raises, content that it may have written is unspecified.

        Errors (on entering): `OutOfMemory`, `BrokenError` when the last write failed, `OwnershipError`, `ClosedError`.
        Complexity: one look-up for a resident array.
        """
        if mode != "r" and mode not in ("rw", "w"):
            raise ValueError(f'a mode is "r", "rw" or "w", not {mode!r}')
        return Use(self, key, mode, self.stream if stream is None else timeline_of(stream))

    def use_many(self, pairs: Sequence[tuple[int, Mode]], stream: Any = None) -> UseMany:
        """As `use` for several arrays at once: ``with manager.use_many([(a, "r"), (b, "w")]) as (at_a, at_b):``.

        All are pinned together or none: on shortage nothing is kept while it waits for other threads' pins.
        """
        for _, mode in pairs:
            if mode not in ("r", "rw", "w"):
                raise ValueError(f'a mode is "r", "rw" or "w", not {mode!r}')
        return UseMany(self, pairs, self.stream if stream is None else timeline_of(stream))

    def read(self, key: int, out: HostArray) -> HostArray:
        """Copy the whole array into ``out`` (C-contiguous, as many bytes) and wait for it.  Returns ``out``.

        No transfer when the host has the content already.  Errors: as `use`; `ValueError` for another size.
        """
        entry = self._entry(key)
        if out.nbytes != entry.nbytes or not out.flags.c_contiguous:
            raise ValueError(f"array #{key} has {entry.nbytes} bytes; out has {out.nbytes}, or is not C-contiguous")
        if not entry.nbytes:
            return out
        flat = out.reshape(-1).view(np.uint8)
        token = object()
        with lock:
            host = entry.host if entry.state == HOST or (entry.valid_on_host() and not entry.copyback) else None
            if host is not None:
                entry.pins[token] = threading.get_ident()  # so that nobody copies back into it meanwhile
        if host is not None:
            try:
                np.copyto(flat, host)
            finally:
                with lock:
                    entry.pins.pop(token, None)
                    if not entry.pins:
                        self.last_unpin(entry)
            return out
        with self.use(key, "r") as address:
            self.driver.copy_out(flat, address, self.stream.handle)
        self.stream.wait(self.stream.issued)
        self._refuse_broken(entry)
        return out

    def write(self, key: int, source: HostArray) -> None:
        """Overwrite the whole array from the host, and wait until the source may change again."""
        entry = self._entry(key)
        if source.nbytes != entry.nbytes:
            raise ValueError(f"array #{key} has {entry.nbytes} bytes; the source has {source.nbytes}")
        flat = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
        with self.use(key, "w") as address:
            if entry.nbytes:
                self.driver.copy_in(address, flat, self.stream.handle)
        self.stream.wait(self.stream.issued)

    # Moving them.

    def evict(self, key: int) -> bool:
        """Move an array off the device now, keeping its content on the host; False when it is pinned."""
        entry = self._entry(key)
        if held_here():
            raise refuse_reentry("Manager.evict")
        safepoint()
        return self.evictor.evict(entry)

    def owner_of(self, address: int) -> tuple[int, int] | None:
        """The key of the array whose memory ``address`` lies in, and the offset in bytes; None outside of all arrays."""
        with lock:
            found = self.memory.owner_of(address)
            if found is None:
                return None
            block, offset = found
            entry = self.table.get(block.owner) if block.owner else None
            return (entry.key, offset) if entry is not None and offset < entry.nbytes else None

    # Telling.

    def statistics(self) -> ManagerStatistics:
        """A snapshot of the counts; the last published one if this thread is inside the lock."""
        if not held_here():
            safepoint()
            self.evictor.settle()
            with lock:
                self._published = take_snapshot(self)
        return self._published

    def check_invariants(self) -> None:
        """Recount everything and compare.  For tests: call it while no other thread uses the manager."""
        check_invariants(self)

    # Ending.

    def close(self) -> None:
        """Wait for the work of the manager's streams, forget all arrays and give all memory back.  Closing twice is fine.

        Errors: `BusyError` while an array is pinned; nothing has changed then.
        """
        with lock:
            if self.closed:
                return
            self.refuse_pinned()
            self.closed = True
            for _, entry in self.table.snapshot():
                self.finish_release(entry)
        streams = [*self._own_streams, *([] if self.stream in self._own_streams else [self.stream])]
        for stream in streams:
            self.driver.synchronize(stream.handle)
        self.evictor.copybacks.clear()
        self.memory.purge()
        for stream in self._own_streams:
            stream.close()
            self.driver.destroy_stream(stream.handle)

    def unproven(self, keys: Sequence[int]) -> list[Ticket]:
        """The last writes of these arrays that are not known to have gone well: they are in flight, or failed."""
        found = []
        with lock:
            for key in keys:
                entry = self.table.get(key)
                write = None if entry is None else entry.last_write
                if write is not None and (write[1] > write[0].reached or write[0].failures):
                    found.append(write)
        return found

    def refuse_pinned(self) -> None:
        """Errors: `BusyError` that names what is pinned, and by which thread."""
        with lock:
            pinned = [entry for _, entry in self.table.snapshot() if entry.pins]
        if pinned:
            threads = ", ".join(str(thread) for thread in sorted(set(pinned[0].pins.values())))
            raise BusyError(f"cannot close while {pinned[0]!r} is in use by thread {threads}; leave its `with` block")

    def forget_parent(self) -> None:
        """In a forked child: the device belongs to the parent."""
        self.closed = True
        self.turnstile = threading.Lock()

    # For the other files of this folder.

    @property
    def transfer(self) -> Timeline:
        """The stream of copies back to the host."""
        if self._transfer is None:
            self._transfer = self._new_stream()
        return self._transfer

    def keep(self, entry: Entry) -> None:
        """Under the lock: the entry is resident, so the policy holds it."""
        if entry.key not in self.policy and entry.block is not None:
            self.policy.add(entry.key, entry.nbytes)
            entry.parked = False

    def give_block(self, entry: Entry) -> None:
        """Under the lock: the entry's block goes to the pool, to be reused after the entry's last uses."""
        block = entry.block
        if block is not None:
            entry.block = None
            block.owner = 0
            self.memory.pool.hold(block, entry.tickets())

    def finish_release(self, entry: Entry) -> None:
        """Under the lock, unpinned and unowned: forget the entry, then give away what it had."""
        self.table.pop(entry.key)
        self.policy.remove(entry.key)
        entry.released = True
        entry.state = RELEASED
        self.give_block(entry)
        host, entry.host = entry.host, None
        if host is not None and not entry.borrowed:
            if entry.copyback is None or entry.copyback[1] <= entry.copyback[0].reached:
                self.host_store.give(host)
            else:
                self.host_store.abandon(host)  # a copy is still landing in it
        self.note_change()

    def last_unpin(self, entry: Entry) -> None:
        """Under the lock: nobody uses the entry any more."""
        if entry.parked:
            entry.parked = False
            self.keep(entry)
        if entry.released and not entry.owner and entry.state != RELEASED:
            self.finish_release(entry)
        self.note_change()

    def note_change(self) -> None:
        """Under the lock: something happened that a waiting thread may have waited for.  Note [Changes]."""
        self.changes += 1
        if self.waiters:
            self.changed.notify_all()

    def wait_for_change(self, seen: int, deadline: float | None) -> None:
        """Under the lock, which is given up meanwhile: block until something changed since ``seen``."""
        self.waiters += 1
        try:
            while self.changes == seen:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return
                self.changed.wait(left)
        finally:
            self.waiters -= 1

    def after_use(self, stream: Timeline) -> None:
        """What a use could not do under the lock."""
        if stream.borrowed:
            stream.mark()
        while self.late:
            self.release(self.late.popleft())

    def unknown(self, key: int) -> Exception:
        """The error for a key that is not in the table."""
        if self.closed:
            return self._is_closed()
        return OwnershipError(f"no array #{key} here: it was released already, or belongs to another manager")

    def _entry(self, key: int) -> Entry:
        entry = self.table.get(key)
        if entry is None:
            raise self.unknown(key)
        return entry

    def _refuse_broken(self, entry: Entry) -> None:
        write = entry.last_write
        reason = None if write is None else write[0].error(write[1])
        if reason is not None:
            raise BrokenError(
                f"the content of array #{entry.key} is lost: the work that last wrote it failed ({reason})"
            )

    def _is_closed(self) -> ClosedError:
        return ClosedError("the manager is closed, or was inherited by a forked process; open a device anew")

    def _new_stream(self) -> Timeline:
        timeline = Timeline(self.driver, self.driver.create_stream())
        self._own_streams.append(timeline)
        return timeline


def timeline_of(stream: Any) -> Timeline:
    """The timeline of a stream object, or the timeline itself."""
    timeline = stream if isinstance(stream, Timeline) else getattr(stream, "timeline", None)
    if not isinstance(timeline, Timeline):
        raise TypeError(f"a stream is wanted here, not {type(stream).__name__} {stream!r}")
    return timeline


