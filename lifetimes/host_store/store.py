"""`HostStore`: host buffers under a limit, pooled, with files below them."""

from __future__ import annotations

import weakref
from _thread import get_ident
from collections import OrderedDict, deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lifetimes.cell import next_key
from lifetimes.entry import CLEAN, DIRTY, HOST, Entry
from lifetimes.errors import BusyError, OutOfMemory
from lifetimes.host_store import room
from lifetimes.host_store.directory import SpillDirectory
from lifetimes.lifetime import Lifetime
from lifetimes.locks import held_here, lock, refuse_reentry
from lifetimes.shutdown import on_fork_in_child
from lifetimes.size_classes import round_up
from lifetimes.sizes import format_bytes, parse_size

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from lifetimes._typing import ByteView, HostArray
    from lifetimes.host_store.files import SpillFile
    from lifetimes.timeline import Ticket

__all__ = ["HostStatistics", "HostStore"]

_HUGE: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class HostStatistics:
    """A snapshot, in bytes of capacity (``disk_bytes``: of content).

    ``used`` by arrays, copies in flight included; ``held`` for reuse; ``peak`` of their sum, which ``limit`` bounds; ``disk``
    in files.  ``written`` and ``read`` count all bytes that went to files and came back.
    """

    used_bytes: int
    held_bytes: int
    peak_bytes: int
    limit: int | None
    disk_files: int
    disk_bytes: int
    written_bytes: int
    read_bytes: int


class HostStore:
    """Hands out host buffers for copies of device arrays and takes them back; may be shared by managers.

    ``limit`` (bytes or ``"2GiB"``; None: none) bounds all buffers together, those held for reuse included.  When it is
    reached, in this order: held buffers are dropped, then copies of arrays that are on the device as well, then copies
    nobody used for longest go to files under ``directory`` (None: there are no files).  ``held_limit`` bounds what is held.

    A buffer that a copy still reads from or lands in is never handed out again; and its bytes count until they are free.

    Errors: `ValueError` and `TypeError` for limits, `BackendError` when nothing can be written under ``directory``.
    Complexity: take and give O(1) below the limit.  Locks: the library's, for table operations; memory and files are
    worked on without it.

    >>> store = HostStore("1MiB")
    >>> buffer = store.take(1000)
    >>> buffer.nbytes, store.statistics().used_bytes
    (1000, 1024)
    >>> store.give(buffer)
    >>> store.statistics().held_bytes
    1024
    """

    def __init__(
        self,
        limit: int | str | None = None,
        directory: str | os.PathLike[str] | None = None,
        *,
        held_limit: int | str | None = None,
    ) -> None:
        self.limit = None if limit is None else parse_size(limit, "host_limit")
        self.held_limit = None if held_limit is None else parse_size(held_limit, "held_limit")
        # Invariant: no empty deques.
        self._classes: dict[int, deque[HostArray]] = {}
        self._held = 0  # Invariant: the bytes in _classes
        # Every buffer that exists, by a token: it counts until it has died, whoever still refers to it.
        self._alive: dict[int, tuple[weakref.ref[HostArray], int]] = {}
        self._dead: deque[int] = deque()  # filled by weak references, at any moment
        self._requests: dict[int, tuple[int, int]] = {}  # token -> thread and bytes: being allocated right now
        self._bytes = 0  # Invariant: the bytes of _alive and _requests
        self._peak = 0
        self._landing: deque[tuple[HostArray, Sequence[Ticket]]] = deque()  # given back, but copies are still at them
        self._surplus: list[HostArray] = []  # to be dropped outside of the lock
        self._trash: deque[SpillFile] = deque()  # to be removed outside of the lock
        # Copies that may make room, the one not used for longest first; kept only under a limit.
        self.cold: OrderedDict[Entry, None] = OrderedDict()  # the only copy there is
        self.warm: OrderedDict[Entry, None] = OrderedDict()  # the array is on the device as well
        self.moving: dict[int, Entry] = {}  # thread -> the entry whose copy it writes to a file
        self.written_bytes = 0
        self.read_bytes = 0
        self.on_disk: dict[Entry, int] = {}  # arrays that have a file -> its bytes
        self.trouble = ""  # why the last attempt to spill failed
        self.directory = None if directory is None else SpillDirectory(directory)
        self._lifetime: Lifetime[Any] | None = None
        if self.directory is not None:
            self._lifetime = Lifetime(
                self.directory, self.directory.remove, kind="spill directory", label=str(self.directory.path)
            )
        on_fork_in_child(self)

    # Buffers.

    def take(self, nbytes: int) -> ByteView:
        """A writable buffer of exactly ``nbytes`` bytes; its content is whatever it was.

        Errors: `OutOfMemory` when the limit leaves no room and none can be made.
        """
        if not nbytes:
            return np.empty(0, np.uint8)
        if held_here():
            raise refuse_reentry("the host store")
        capacity = round_up(nbytes, _HUGE if self.limit is None else max(self.limit, nbytes))
        if self.limit is not None and capacity > self.limit:
            raise OutOfMemory(f"{nbytes} bytes of host memory were asked for, more than the host limit of {self.limit}")
        if self._surplus or self._trash or self._dead:
            self.settle()
        token = next_key()
        try:
            while True:
                with lock:
                    base = self._reuse(capacity)
                    if base is not None:
                        return base[:nbytes]
                    if self.limit is None or self._bytes + capacity <= self.limit:
                        self._requests[token] = (get_ident(), capacity)
                        self._bytes += capacity
                        self._peak = max(self._peak, self._bytes)
                        break
                if not room.make_room(self, capacity):
                    raise self._shortage(nbytes)
            base = np.empty(capacity, np.uint8)
            with lock:
                self._alive[token] = (weakref.ref(base, partial(_died, self._dead, token)), capacity)
                del self._requests[token]
            return base[:nbytes]
        finally:
            if token in self._requests:
                self.forget_requests(token=token)

    def _reuse(self, capacity: int) -> HostArray | None:
        buffers = self._classes.get(capacity)
        if not buffers:
            return None
        base = buffers.pop()  # the warmest
        self._held -= capacity
        if not buffers:
            del self._classes[capacity]
        return base

    def _shortage(self, nbytes: int) -> OutOfMemory:
        with lock:
            used, held = self._bytes - self._held, self._held
        below = self.trouble or (
            "there is no spill directory" if self.directory is None else "nothing more can be spilled"
        )
        return OutOfMemory(
            f"no {format_bytes(nbytes)} of host memory for copies of arrays: {format_bytes(used)} are used and "
            f"{format_bytes(held)} held of the host limit of {format_bytes(self.limit or 0)}, and {below}"
        )

    def give(self, buffer: ByteView, tickets: Sequence[Ticket] = ()) -> None:
        """Take back a buffer of `take`, to be reused when ``tickets`` (copies from or to it) have completed."""
        if not buffer.nbytes:
            return
        base = buffer.base
        assert isinstance(base, np.ndarray), "a buffer of this store is a view of its whole allocation"
        with lock:
            if any(sequence > timeline.reached for timeline, sequence in tickets):
                self._landing.append((base, tickets))
            else:
                self._hold(base)

    def _hold(self, base: HostArray) -> None:
        capacity = base.nbytes
        if self.held_limit is not None and self._held + capacity > self.held_limit:
            self._surplus.append(base)
            return
        buffers = self._classes.get(capacity)
        if buffers is None:
            self._classes[capacity] = buffers = deque()
        buffers.append(base)
        self._held += capacity

    def trim(self, nbytes: int | None = None) -> int:
        """Leave held buffers to the allocator, largest first, until ``nbytes`` (None: all) are; the number of bytes."""
        dropped: list[HostArray] = []
        freed = 0
        with lock:
            for capacity in sorted(self._classes, reverse=True):
                buffers = self._classes[capacity]
                while buffers and (nbytes is None or freed < nbytes):
                    dropped.append(buffers.popleft())
                    self._held -= capacity
                    freed += capacity
                if not buffers:
                    del self._classes[capacity]
        dropped.clear()
        self.settle()
        return freed

    def settle(self) -> None:
        """Without the lock: look which copies have landed, and drop and remove what nobody needs.  Never blocks."""
        if self._landing:
            with lock:
                landing = list(self._landing)
            for base, tickets in landing:
                if all(timeline.done(sequence) for timeline, sequence in tickets):
                    self._landed(base)
            landing.clear()
            del base
        if self._surplus:
            with lock:
                surplus, self._surplus = self._surplus, []
            surplus.clear()
        while self._trash:
            try:
                file = self._trash.popleft()
            except IndexError:
                break
            try:
                file.path.unlink()
            except OSError:  # gone already
                pass
        if self._dead:
            with lock:
                self._bury()

    def _landed(self, base: HostArray) -> None:
        with lock:
            for at, (other, _) in enumerate(self._landing):
                if other is base:
                    del self._landing[at]
                    self._hold(base)
                    return

    def wait_landing(self) -> bool:
        """Wait for the oldest copy from or to a buffer that was given back; False when there is none."""
        with lock:
            oldest = self._landing[0] if self._landing else None
        if oldest is None:
            return False
        for timeline, sequence in oldest[1]:
            timeline.wait(sequence)
        self._landed(oldest[0])
        return True

    def _bury(self) -> None:
        while self._dead:
            found = self._alive.pop(self._dead.popleft(), None)
            if found is not None:
                self._bytes -= found[1]

    # Entries.

    def place(self, entry: Entry) -> None:
        """Under the lock: the entry's state or ``host`` has changed, and with it what the store may do with the copy."""
        if self.limit is None:
            return
        self.warm.pop(entry, None)
        self.cold.pop(entry, None)
        if entry.host is None or entry.borrowed or not entry.nbytes:
            return
        if entry.state == HOST:
            self.cold[entry] = None
        elif entry.state == CLEAN or entry.state == DIRTY:
            self.warm[entry] = None

    def let_go(self, entry: Entry) -> None:
        """Under the lock: the entry does not need its copy on the host any more."""
        host, entry.host = entry.host, None
        if host is not None and entry.borrowed:
            self._surplus.append(host)  # perhaps the last reference
        elif host is not None:
            self.give(host, entry.host_tickets())
        entry.borrowed = False
        self.warm.pop(entry, None)
        self.cold.pop(entry, None)

    def discard_file(self, entry: Entry) -> None:
        """Under the lock: the file of an entry is void; it is removed soon."""
        file, entry.file = entry.file, None
        if file is not None:
            self.on_disk.pop(entry, None)
            self._trash.append(file)

    # The rest.

    def statistics(self) -> HostStatistics:
        """A snapshot of the counts."""
        if not held_here():
            self.settle()
        with lock:
            statistics = HostStatistics(
                used_bytes=self._bytes - self._held,
                held_bytes=self._held,
                peak_bytes=self._peak,
                limit=self.limit,
                disk_files=len(self.on_disk),
                disk_bytes=sum(self.on_disk.values()),
                written_bytes=self.written_bytes,
                read_bytes=self.read_bytes,
            )
        return statistics

    def close(self) -> None:
        """Drop what is held and remove the spill folder.  Closing twice is fine.

        Errors: `BusyError` while arrays have their content in files; nothing has changed then.
        """
        with lock:
            lost = sum(entry.host is None and entry.block is None for entry in self.on_disk)
        if lost:
            raise BusyError(
                f"{lost} arrays have their content in {self.directory!r}; release them or close their manager"
            )
        self.trim()
        lifetime, self._lifetime = self._lifetime, None
        if lifetime is not None:
            lifetime.close()

    def forget_requests(self, *, token: int | None = None, thread: int | None = None) -> None:
        """After an interrupt: what was being allocated or written is not."""
        with lock:
            if thread is not None:
                self.moving.pop(thread, None)
            for each, (owner, capacity) in list(self._requests.items()):
                if each == token or owner == thread:
                    del self._requests[each]
                    if each not in self._alive:
                        self._bytes -= capacity

    def recount(self) -> None:
        """Under the lock: the totals, from what there is."""
        for capacity in [capacity for capacity, buffers in self._classes.items() if not buffers]:
            del self._classes[capacity]
        self._held = sum(capacity * len(buffers) for capacity, buffers in self._classes.items())
        self._bury()
        self._bytes = sum(capacity for _, capacity in (*self._alive.values(), *self._requests.values()))
        self._peak = max(self._peak, self._bytes)

    def forget_parent(self) -> None:
        """In a forked child: the files belong to the parent (which is also what `SpillDirectory.remove` asks)."""
        self._trash.clear()

    def check_invariants(self) -> None:
        """Recount what there is; meant for tests, while no other thread is inside."""
        self.settle()
        with lock:
            held = sum(capacity * len(buffers) for capacity, buffers in self._classes.items())
            assert all(self._classes.values()), "no class is empty"
            assert held == self._held, f"held bytes: counted {held}, kept {self._held}"
            assert not self._requests, f"requests that are never served: {self._requests}"
            alive = sum(capacity for _, capacity in self._alive.values())
            assert alive == self._bytes, f"bytes: counted {alive}, kept {self._bytes}"
            assert self._held <= self._bytes <= self._peak, (
                f"{self._held} held, {self._bytes} in all, peak {self._peak}"
            )
            assert self.limit is None or self._bytes <= self.limit, f"{self._bytes} bytes over the limit {self.limit}"
            for entry in self.cold:
                assert entry.state == HOST, f"not the only copy: {entry!r}"
                assert entry.host is not None, f"no copy: {entry!r}"
            for entry in self.warm:
                assert entry.block is not None, f"not a second copy: {entry!r}"
                assert entry.host is not None, f"no copy: {entry!r}"
            for entry, nbytes in self.on_disk.items():
                assert entry.file is not None, f"no file: {entry!r}"
                assert entry.file.nbytes == nbytes, f"no such file: {entry!r}"

    def __repr__(self) -> str:
        limit = "no limit" if self.limit is None else f"of {format_bytes(self.limit)}"
        return f"<HostStore: {format_bytes(self._bytes)} ({limit}), {format_bytes(self._held)} of them held>"


def _died(dead: deque[int], token: int, reference: object) -> None:
    dead.append(token)
