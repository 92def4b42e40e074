"""`Manager`: arrays that may be larger together than the device, kept in a table, evicted by a policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from lifetimes.cell import next_key
from lifetimes.entry import HOST, Entry
from lifetimes.locks import held_here, lock
from lifetimes.manager import adoption, ending, limits, moves, transfer
from lifetimes.manager.guarded import guarded
from lifetimes.manager.inside import Inside
from lifetimes.manager.prefetch import prefetch
from lifetimes.manager.reclaim import Hook
from lifetimes.manager.snapshot import check_invariants, take_snapshot
from lifetimes.manager.statistics import ManagerStatistics
from lifetimes.manager.use import Use, UseMany
from lifetimes.size_classes import check_nbytes
from lifetimes.sizes import parse_limit
from lifetimes.timeline import Timeline, told

if TYPE_CHECKING:
    from types import TracebackType

    from lifetimes._typing import ByteView, HostArray, Mode
    from lifetimes.timeline import Ticket

__all__ = ["Manager"]


class Manager(Inside):
    """Owns arrays by key, on the device while there is room, on the host otherwise, in files when that is full too.

    ``table`` holds the entries, ``address_table`` (ordered) the blocks by address, and ``policy`` says who goes first when
    memory is short; each by name, import path or object.  ``memory_limit`` is in bytes (``"64MiB"``, ``"90%"`` of the
    device; None: all of it) and bounds everything taken from the driver, blocks held for reuse included.  ``host_limit``
    and ``spill_dir`` make a host store of the manager's own; ``host_store`` gives one that others use too.  ``pool_bytes``
    and ``pool_age`` (seconds) cap what is held for reuse.  ``pin_timeout`` (seconds) is how long a use waits for other
    threads to end theirs when memory is short; ``collect_garbage`` lets it run the collector then.

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

    # Arrays come and go.

    @guarded
    def add(
        self, content: HostArray | int, *, copy: bool = True, label: str | None = None, key: int | None = None
    ) -> int:
        """Manage a new array: a copy of a NumPy array, or so many bytes of unspecified content.  Returns its key.

        Nothing is put on the device before the first use.  ``copy=False`` borrows a C-contiguous array, which must not
        change while it is managed; it is never written.
        Errors: `ValueError` and `TypeError` for sizes and dtypes that cannot be, `OutOfMemory` for more than the limit.
        """
        if self.closed:
            raise self.is_closed()
        host: ByteView | None = None
        borrowed = False
        if isinstance(content, np.ndarray):
            if content.dtype.hasobject:
                raise TypeError(f"an array of dtype {content.dtype} holds Python objects, which a device cannot")
            nbytes = check_nbytes(content.nbytes, self.memory.limit, "the array")
            if copy or not content.flags.c_contiguous:
                host = self.host_buffer(nbytes)
                np.copyto(host.view(content.dtype).reshape(content.shape), content) if nbytes else None
            else:
                host, borrowed = content.reshape(-1).view(np.uint8), True
        else:
            nbytes = check_nbytes(content, self.memory.limit, "the array")
        entry = Entry(self, next_key() if key is None else key, nbytes, label)
        entry.checked = told.count
        if host is not None:
            entry.host, entry.borrowed, entry.state = host, borrowed, HOST
        try:
            with lock:
                if self.closed:
                    raise self.is_closed()
                self.enter(entry)
                self.host_store.place(entry)
        except BaseException:
            if self.table.get(entry.key) is not entry:
                self.host_store.let_go(entry)
            raise
        return entry.key

    @guarded
    def adopt(
        self,
        address: int,
        nbytes: int,
        owner: object = None,
        on_release: Callable[[int], object] | None = None,
        *,
        label: str | None = None,
    ) -> int:
        """Put device memory of somebody else under a key: it can be used and found by address, but is never freed.

        Nor is it evicted, swept or counted against the limit.  ``owner`` is kept alive until the release, and
        ``on_release(address)`` is called when the last work that used it has completed.

        Errors: `OwnershipError` when it overlaps a block that is here already; `TypeError` and `ValueError`.
        """
        return adoption.adopt(self, address, nbytes, owner, on_release, label)

    def release(self, key: int) -> None:
        """Forget an array.  Its memory is reused when its last use has completed; a pinned one goes at its last unpin.

        Errors: `OwnershipError` for a key that is not managed (released already, or never added).
        Complexity: O(1); no driver call, and nothing is waited for.
        """
        if held_here():
            self.late.append(partial(self.release, key))
            return
        self._release(key)

    @guarded
    def _release(self, key: int) -> None:
        with lock:
            entry = self.table.get(key)
            if entry is not None:
                moves.release(self, entry)
                return
        raise self.unknown(key)

    # Using them.

    def use(self, key: int, mode: Mode = "r", stream: Any = None) -> Use:
        """``with manager.use(key, mode) as address:`` pins one array on the device for the block.

        Modes: ``"r"`` reads; ``"rw"`` reads and writes; ``"w"`` promises to overwrite the whole array, so nothing is
        uploaded.  Work in the block belongs on ``stream`` (a stream or timeline; None is the manager's own), which waits
        for whatever the mode has to wait for.  If the body raises, content that it may have written is unspecified.

        Errors (on entering): `OutOfMemory`, `BrokenError` when a write that the content depends on is known to have
        failed, `OwnershipError`, `ClosedError`.
        Complexity: one look-up for a resident array.
        """
        if mode != "r" and mode not in ("rw", "w"):
            raise ValueError(f'a mode is "r", "rw" or "w", not {mode!r}')
        return Use(self, key, mode, self.stream if stream is None else timeline_of(stream))

    def use_many(self, pairs: Sequence[tuple[int, Mode]], stream: Any = None) -> UseMany:
        """As `use` for several arrays at once: ``with manager.use_many([(a, "r"), (b, "w")]) as (at_a, at_b):``.

        All are pinned together or none: on shortage nothing is kept while it waits for other threads' pins.
        Errors (on entering): as `use`, and `ValueError` for a mode that is none.
        Complexity: one look-up each for resident arrays.
        """
        return UseMany(self, pairs, self.stream if stream is None else timeline_of(stream))

    @guarded
    def read(self, key: int, out: HostArray) -> HostArray:
        """Copy the whole array into ``out`` (C-contiguous, as many bytes) and wait for it.  Returns ``out``.

        No transfer when the host has the content already, and none for an array that nobody has written.
        Complexity: one copy, and the wait for the work that the content depends on.
        Errors: as `use`; `ValueError` for another size.
        """
        return transfer.read(self, key, out)

    @guarded
    def write(self, key: int, source: HostArray) -> None:
        """Overwrite the whole array from the host, and wait until the source may change again.

        Errors: as `use`; `ValueError` for another size.
        """
        transfer.write(self, key, source)

    # Moving them.

    @guarded
    def evict(self, key: int) -> bool:
        """Move an array off the device now, keeping its content on the host; False when it is pinned or adopted.

        Also False, with a `CleanupWarning`, when it cannot be copied: it stays on the device then.
        Errors: `OwnershipError`, `ClosedError`.
        Complexity: one copy, which is waited for; none for what the host has already and for what was never written.
        """
        return self.evictor.evict(self.entry(key))

    @guarded
    def prefetch(self, key: int, stream: Any = None) -> bool:
        """Bring an array to the device before it is needed; whether it is there or on its way.

        Best effort: it pins nothing, evicts nothing that is pinned, waits for no other thread and never raises
        `OutOfMemory`.  The copy runs on ``stream``, or on one of the manager's own for this.
        Errors: `OwnershipError`, `ClosedError`, and `BackendError` for what else a driver may answer.
        Complexity: as an upload's, which is not waited for.
        """
        return prefetch(self, key, self.fetch if stream is None else timeline_of(stream))

    @guarded
    def reclaim(self, level: str = "evict") -> int:
        """Give memory back to the driver; how many bytes.

        Levels, each beyond the one before: ``"idle"`` gives back what is held and idle, ``"wait"`` waits for work in flight
        first, ``"collect"`` collects garbage too, ``"evict"`` evicts every array that is not in use.  The hooks of
        `add_reclaim_hook` are told the level before anything else.  Host memory that is held for reuse goes at every level and
        is not counted.
        Errors: `ValueError` for another level.
        Complexity: O(held blocks); for ``"evict"`` O(arrays).
        """
        return self.reclaimer.reclaim(level)

    def add_reclaim_hook(self, hook: Hook) -> Hook:
        """Call ``hook(level)`` at each `reclaim`, and with ``"hooks"`` when an allocation finds no memory otherwise.

        It runs with no lock held and may free, allocate and use; true says that it gave something up.  It is held weakly.
        Returns the hook, so that this can decorate a function.
        """
        self.reclaimer.add(hook)
        return hook

    def remove_reclaim_hook(self, hook: Hook) -> None:
        """Do not call it any more.  An unknown hook is ignored."""
        self.reclaimer.remove(hook)

    @guarded
    def set_limit(self, *, hard: Any = ..., soft: Any = ...) -> None:
        """Change limits while running: bytes, ``"64MiB"``, ``"90%"`` of the device, None for none of your own.

        The ``hard`` limit is `memory_limit`: it holds when this returns.  The ``soft`` one is aimed at: what is beyond it is
        given up as pins drop.
        Errors: `BusyError` for a hard limit below what is in use (nothing has changed then), `ValueError`, `TypeError`.
        Complexity: that of evicting what is beyond the limit.
        """
        wanted = None if hard is ... else parse_limit(hard, self.total)
        aim = None if soft is ... or soft is None else parse_limit(soft, self.total, "soft_limit")
        if wanted is not None:
            limits.set_hard(self, wanted)
        if soft is not ...:
            limits.set_soft(self, aim)

    def owner_of(self, address: int) -> tuple[int, int] | None:
        """The key of the array whose memory ``address`` lies in, and the offset in bytes; None outside of all arrays.

        Complexity: one search in the address table, O(log blocks).
        """
        with lock:
            found = self.memory.owner_of(address)
            if found is None:
                return None
            block, offset = found
            entry = self.table.get(block.owner) if block.owner > 0 else None
            return (entry.key, offset) if entry is not None and offset < entry.nbytes else None

    def unproven(self, keys: Sequence[int]) -> list[Ticket]:
        """The writes that these arrays depend on and that are not known to have gone well: in flight, or failed."""
        found: list[Ticket] = []
        with lock:
            for key in keys:
                entry = self.table.get(key)
                if entry is not None:
                    found += [write for write in entry.writes() if write[1] > write[0].reached or write[0].failures]
        return found

    # Telling.

    def statistics(self) -> ManagerStatistics:
        """A snapshot of the counts; the last published one if this thread is inside the lock.  Complexity: O(1)."""
        return self._published if held_here() else self._statistics()

    @guarded
    def _statistics(self) -> ManagerStatistics:
        if not self.closed:
            self.evictor.settle()
            self.tend()
        with lock:
            self._published = take_snapshot(self)
        return self._published

    def check_invariants(self) -> None:
        """Recount everything and compare.  For tests: call it while no other thread uses the manager."""
        check_invariants(self)

    def __repr__(self) -> str:
        counters = self.counters
        return f"<Manager of {counters.arrays} arrays, {counters.resident} on {self.driver.name!r}{', closed' * self.closed}>"

    # Ending.

    def close(self) -> None:
        """Wait for the work that used its memory, forget all arrays and give everything back.  Closing twice is fine.

        Errors: `BusyError` while an array is pinned or being moved by this thread; nothing has changed then.
        """
        if held_here():
            self.late.append(self.close)
            return
        try:
            ending.close(self)
        except BaseException as error:
            if not isinstance(error, Exception):
                self.repair()
            raise

    def refuse_pinned(self) -> None:
        """Errors: `BusyError` that names what is pinned, and by which thread."""
        with lock:
            ending.refuse_pinned(self)

    def __enter__(self) -> Self:
        if self.closed:
            raise self.is_closed()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"while closing the manager: {failure}")


def timeline_of(stream: Any) -> Timeline:
    """The timeline of a stream object, or the timeline itself."""
    timeline = stream if isinstance(stream, Timeline) else getattr(stream, "timeline", None)
    if not isinstance(timeline, Timeline):
        raise TypeError(f"a stream is wanted here, not {type(stream).__name__} {stream!r}")
    return timeline
