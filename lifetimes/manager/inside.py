"""The inside of a manager: its parts, and the small things that the other files of this folder call."""

from __future__ import annotations

from _thread import get_ident
from collections import deque
from collections.abc import Callable
from itertools import starmap
from typing import TYPE_CHECKING, Any, cast

from lifetimes import policies, tables
from lifetimes.errors import ClosedError, OwnershipError
from lifetimes.host_store import HostStore
from lifetimes.locks import held_here, lock
from lifetimes.manager import ending, limits, moves
from lifetimes.manager.eviction import Evictor
from lifetimes.manager.ladder import Ladder
from lifetimes.manager.memory import DeviceMemory
from lifetimes.manager.reclaim import Reclaimer
from lifetimes.manager.repair import repair
from lifetimes.manager.snapshot import take_snapshot
from lifetimes.manager.statistics import Counters, ManagerStatistics
from lifetimes.manager.waiting import Waiting
from lifetimes.shutdown import on_fork_in_child
from lifetimes.sizes import parse_limit, parse_size
from lifetimes.timeline import Timeline

if TYPE_CHECKING:
    import os

    from lifetimes._typing import ByteView
    from lifetimes.backend import Driver, StreamHandle
    from lifetimes.entry import Entry
    from lifetimes.manager.core import Manager
    from lifetimes.policies.protocol import Policy
    from lifetimes.tables.protocol import Table

__all__ = ["Inside"]


class Inside:
    """Everything of a `Manager` but its public calls."""

    def __init__(
        self,
        driver: Driver,
        *,
        memory_limit: int | str | None = None,
        soft_limit: int | str | None = None,
        host_limit: int | str | None = None,
        spill_dir: str | os.PathLike[str] | None = None,
        host_store: HostStore | None = None,
        table: Any = "dict",
        address_table: Any = None,
        policy: Any = "lru",
        stream: Timeline | None = None,
        pool_bytes: int | str | None = None,
        pool_age: float | None = None,
        pin_timeout: float = 30.0,
        collect_garbage: bool = True,
    ) -> None:
        if host_store is not None and (host_limit is not None or spill_dir is not None):
            raise ValueError("host_limit and spill_dir make a host store of the manager's own; give them or host_store")
        info = driver.memory_info()
        self.total = info.total if info is not None else driver.max_allocation
        self.driver = driver
        self.table: Table[Entry] = tables.make(table)
        self.policy: Policy = policies.make(policy)
        self.memory = DeviceMemory(
            driver,
            parse_limit(memory_limit, self.total),
            address_table or tables.default_ordered(),
            pool_bytes=None if pool_bytes is None else parse_size(pool_bytes, "pool_bytes"),
            pool_age=None if pool_age is None else _seconds(pool_age, "pool_age"),
        )
        soft = None if soft_limit is None else parse_limit(soft_limit, self.total, "soft_limit")
        self.pin_timeout = _seconds(pin_timeout, "pin_timeout")
        self.collect_garbage = collect_garbage
        self.counters = Counters()
        manager = self._manager()
        self.evictor = Evictor(manager)
        self.ladder = Ladder(manager)
        self.reclaimer = Reclaimer(manager)
        self.waiting = Waiting()
        self.closed = False
        self.ended = False
        self.closer = 0  # the thread that is closing, or 0
        self.late: deque[Callable[[], object]] = deque()  # what could not be done where it came up
        self.tending = 0  # the thread inside `tend`, `moves.QUEUED` when a call of it stands in ``late``, or 0
        # Invariants: the entries that are pinned; that some thread moves; that are released but not gone yet.
        self.pinned: dict[Entry, None] = {}
        self.moving: dict[Entry, None] = {}
        self.departing: dict[Entry, None] = {}
        # The hot path calls these without a look-up in between.
        self.get: Callable[[int], Entry | None] = self.table.get
        self.touch = self.policy.touch
        self.own_streams: list[Timeline] = []
        self.handles: list[list[StreamHandle]] = []  # of these streams; a slot is there before its stream is made
        self._transfer: Timeline | None = None
        self._fetch: Timeline | None = None
        self.owns_store = host_store is None
        self.host_store = HostStore(host_limit, spill_dir) if host_store is None else host_store
        self.stream = self._new_stream() if stream is None else stream
        self._published: ManagerStatistics = take_snapshot(manager)
        if soft is not None:
            limits.set_soft(manager, soft)
        on_fork_in_child(self)

    def _manager(self) -> Manager:
        return cast("Manager", self)

    def enter(self, entry: Entry) -> None:
        """Under the lock: a new entry, in the table and in the books."""
        counters, nbytes = self.counters, entry.nbytes
        self.table.insert(entry.key, entry)
        counters.counts[entry.state] += 1
        counters.sums[entry.state] += nbytes
        counters.arrays += 1
        counters.array_bytes += nbytes
        counters.total_bytes += nbytes
        if counters.array_bytes > counters.peak_array_bytes:
            counters.peak_array_bytes = counters.array_bytes

    def forget_parent(self) -> None:
        """In a forked child: the device belongs to the parent."""
        self.closed = self.ended = True
        self.closer = 0
        self.get = _nothing
        self.late.clear()
        self.pinned.clear()
        self.moving.clear()
        self.waiting = Waiting()

    def repair(self) -> None:
        """Put right what an interrupt on this thread has torn.  Complexity: O(arrays)."""
        if not self.ended:
            repair(self._manager())

    @property
    def transfer(self) -> Timeline:
        """The stream of copies back to the host."""
        if self._transfer is None:
            self._transfer = self._new_stream()
        return self._transfer

    @property
    def fetch(self) -> Timeline:
        """The stream of copies to the device that nobody waits for yet."""
        if self._fetch is None:
            self._fetch = self._new_stream()
        return self._fetch

    def host_buffer(self, nbytes: int) -> ByteView:
        """Host memory; while there is none, copies on their way may make room when they have landed."""
        while True:
            try:
                return self.host_store.take(nbytes)
            except MemoryError:
                if not self.evictor.wait_oldest():
                    raise

    def own(self, entry: Entry) -> None:
        """Under the lock: this thread moves the entry from now on."""
        moves.own(self._manager(), entry)

    def disown(self, entry: Entry) -> None:
        """Under the lock: it does no more."""
        moves.disown(self._manager(), entry)

    def moved(self, entry: Entry) -> None:
        """Under the lock: a transition has ended, or a pin has gone."""
        moves.moved(self._manager(), entry)

    def finish_release(self, entry: Entry) -> None:
        """Under the lock: a released entry that nobody uses or moves gives away what it had."""
        moves.finish(self._manager(), entry)

    def keep(self, entry: Entry) -> None:
        """Under the lock: the entry can be evicted, so the policy holds it."""
        moves.keep(self._manager(), entry)

    def tend(self) -> None:
        """Apply the caps of the pool and the soft limit."""
        self.tending = me = get_ident()
        try:
            pool = self.memory.pool
            if pool.max_bytes is not None or pool.max_age is not None:
                pool.settle()
                with lock:
                    over = pool.excess()
                self.memory.free(over)
            limits.lower_to_soft(self._manager())
        finally:
            if self.tending == me:
                self.tending = 0

    def leave_late(self, leaving: Callable[[], None]) -> None:
        """End a use whose block did not: now, or once this thread is out of the library."""
        if held_here():
            self.late.append(leaving)
        else:
            with lock:
                leaving()

    def run_late(self) -> None:
        """Do what could not be done where it came up."""
        ending.run_late(self._manager())

    def after_use(self, stream: Timeline, mark: bool, exc_info: tuple[object, ...]) -> None:
        """What a use could not do under the lock.  The user's own exception wins over ours."""
        try:
            if mark:
                stream.mark()
            self.run_late()
        except Exception as error:
            raised = exc_info[1] if len(exc_info) > 1 else None
            if not isinstance(raised, BaseException):
                raise
            raised.add_note(f"at the end of the use: {error}")
        except BaseException:
            self.repair()
            raise

    def unknown(self, key: int) -> Exception:
        """The error for a key that is not in the table."""
        if self.closed:
            return self.is_closed()
        return OwnershipError(f"no array #{key} here: it was released already, or belongs to another manager")

    def entry(self, key: int) -> Entry:
        """The entry of a key.  Errors: `OwnershipError`, `ClosedError`."""
        entry = self.get(key)
        if entry is None:
            raise self.unknown(key)
        return entry

    def is_closed(self) -> ClosedError:
        """The error for a use after the end."""
        return ClosedError("the manager is closed, or was inherited by a forked process; open a device anew")

    def _new_stream(self) -> Timeline:
        slot: list[StreamHandle] = []
        self.handles.append(slot)
        slot.extend(starmap(self.driver.create_stream, ((),)))  # one C call: an interrupt cannot lose the stream
        timeline = Timeline(self.driver, slot[0])
        self.own_streams.append(timeline)
        return timeline


def _seconds(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{what} is a number of seconds, not {type(value).__name__} {value!r}")
    if not value >= 0:
        raise ValueError(f"{what} is a number of seconds from 0 on, not {value!r}")
    return float(value)


def _nothing(key: int) -> None:
    return None
