"""Uses: pinning one array, or a working set at once, for the length of a ``with`` block.

The short way is for arrays that are on the device already, with nothing to wait for: one look-up each under the lock.
Everything else (uploads, other streams to wait for, memory to be found) goes through `acquire`.

A pin is not a lock.  It keeps the array where it is; who writes when is the caller's affair, ordered by streams.

Note [Events].  At the end of a use that went the long way an event is recorded, although nobody waits for it yet.  Memory is
short then, probably: the array will be copied back soon, and the copy would wait for all that has been enqueued meanwhile if
its event were recorded only then.  With it, copies run beside the work; it costs little compared with the long way.

See Note [Pins] in pins.py.
"""

from __future__ import annotations

from _thread import get_ident
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from lifetimes.cell import next_key
from lifetimes.entry import CLEAN, DIRTY, Entry
from lifetimes.errors import BusyError
from lifetimes.locks import held_here, lock, refuse_reentry
from lifetimes.manager.acquire import acquire
from lifetimes.manager.pins import leave, unpin
from lifetimes.manager.statistics import SAMPLED
from lifetimes.timeline import told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lifetimes._typing import Mode
    from lifetimes.manager.core import Manager
    from lifetimes.timeline import Timeline

__all__ = ["Use", "UseMany"]

_SAMPLE: Final = SAMPLED - 1
_WRITING: Final = ("rw", "w")


class Use:
    """One array, pinned for one block.  Made by `Manager.use`; entering gives the device address."""

    __slots__ = ("_entry", "_key", "_manager", "_mark", "_mode", "_since", "_stream", "_token")

    def __init__(self, manager: Manager, key: int, mode: Mode, stream: Timeline) -> None:
        self._manager = manager
        self._key = key
        self._mode = mode
        self._stream = stream
        self._mark = stream.borrowed
        self._entry: Entry | None = None

    def __enter__(self) -> int:
        if held_here():
            raise refuse_reentry("Manager.use")
        if self._entry is not None:
            raise BusyError("a use can be entered once; call use() again for another block")
        manager = self._manager
        stream = self._stream
        mode = self._mode
        self._token = token = next_key()
        thread = get_ident()
        counters = manager.counters
        try:
            with lock:
                entry = (
                    manager.get(self._key)
                    if (counters.hits + counters.misses) & _SAMPLE
                    else timed_get(manager, self._key)
                )
                self._entry = entry
                self._since = stream.recorded
                if entry is not None and not entry.owner and entry.checked == told.count:
                    state = entry.state
                    write = entry.last_write
                    if (
                        (state == DIRTY or (state == CLEAN and mode == "r"))
                        and (write is None or write[0] is stream or write[1] <= write[0].reached)
                        and (mode == "r" or not entry.reads or _nothing_to_wait_for(entry.reads, stream))
                    ):
                        pins = entry.pins
                        if not pins:  # Note [Pins]
                            manager.pinned[entry] = None
                            counters.pinned_bytes = pinned = counters.pinned_bytes + entry.nbytes
                            if pinned > counters.peak_pinned_bytes:
                                counters.peak_pinned_bytes = pinned
                        pins[token] = thread
                        if entry.kept:
                            manager.touch(self._key)
                        counters.hits += 1
                        address: int = entry.block.address  # type: ignore[union-attr]  # a resident entry has one
                        return address
            if entry is None:
                raise manager.unknown(self._key)
            self._mark = True  # Note [Events]
            acquire(manager, token, ((entry, mode),), stream)
            return entry.block.address if entry.block is not None else 0
        except BaseException as error:
            entry = self._entry
            if entry is not None:
                with lock:
                    unpin(manager, token, entry)
                self._entry = None
            if not isinstance(error, Exception):
                manager.repair()
            raise

    def __exit__(self, *exc_info: object) -> None:
        entry = self._entry
        if entry is None:
            return
        manager = self._manager
        stream = self._stream
        working_set = ((entry, self._mode),)
        try:
            with lock:
                leave(manager, self._token, working_set, stream, self._since)
        except BaseException as error:  # an interrupt while waiting for the lock, or inside
            with lock:
                leave(manager, self._token, working_set, stream, self._since)
            if not isinstance(error, Exception):
                manager.repair()
            raise
        if self._mark or manager.late:
            manager.after_use(stream, self._mark, exc_info)

    def __del__(self) -> None:
        try:
            entry = self._entry
        except AttributeError:  # its __init__ was interrupted
            return
        if entry is not None and self._token in entry.pins:
            self._manager.leave_late(
                partial(leave, self._manager, self._token, ((entry, self._mode),), self._stream, self._since)
            )


_LEFT: Final[list[tuple[Entry, Mode]]] = []


class UseMany:
    """A working set, pinned together for one block.  Made by `Manager.use_many`; entering gives the addresses."""

    __slots__ = ("_entered", "_manager", "_mark", "_pairs", "_since", "_stream", "_token")

    def __init__(self, manager: Manager, pairs: Sequence[tuple[int, Mode]], stream: Timeline) -> None:
        self._manager = manager
        self._stream = stream
        self._mark = stream.borrowed
        self._pairs = pairs
        self._entered: list[tuple[Entry, Mode]] | None = None

    def __enter__(self) -> tuple[int, ...]:
        if held_here():
            raise refuse_reentry("Manager.use_many")
        if self._entered is not None:
            raise BusyError("a use can be entered once; call use_many() again for another block")
        manager = self._manager
        self._token = token = next_key()
        self._since = self._stream.recorded
        working_set: list[tuple[Entry, Mode]] = []
        self._entered = working_set
        try:
            with lock:
                addresses = self._pin_resident(working_set, token, get_ident())
                if addresses is not None:
                    return addresses
                for entry, _ in working_set:
                    unpin(manager, token, entry)
                working_set.clear()
                self._look_up(working_set)
            self._mark = True  # Note [Events]
            acquire(manager, token, working_set, self._stream)
            where = {entry.key: entry.block.address if entry.block is not None else 0 for entry, _ in working_set}
            return tuple([where[key] for key, _ in self._pairs])
        except BaseException as error:
            with lock:
                for entry, _ in working_set:
                    unpin(manager, token, entry)
            self._entered = None
            if not isinstance(error, Exception):
                manager.repair()
            raise

    def _pin_resident(self, working_set: list[tuple[Entry, Mode]], token: int, thread: int) -> tuple[int, ...] | None:
        """The short way, for all or for none: under the lock; None when one of them needs the long way."""
        manager = self._manager
        stream = self._stream
        get, touch, pinned, counters, count = manager.get, manager.touch, manager.pinned, manager.counters, told.count
        addresses = []
        if not (counters.hits + counters.misses) & _SAMPLE and self._pairs:
            timed_get(manager, self._pairs[0][0])
        for key, mode in self._pairs:
            entry = get(key)
            if entry is None or entry.owner or entry.checked != count:
                return None
            state = entry.state
            if state != DIRTY and (state != CLEAN or mode != "r"):
                return None
            write = entry.last_write
            if write is not None and write[0] is not stream and write[1] > write[0].reached:
                return None
            if mode != "r" and (
                mode not in _WRITING or (entry.reads and not _nothing_to_wait_for(entry.reads, stream))
            ):
                return None
            pins = entry.pins
            if token in pins:
                return None  # the same array twice
            working_set.append((entry, mode))
            if not pins:  # Note [Pins]
                pinned[entry] = None
                counters.pinned_bytes += entry.nbytes
            pins[token] = thread
            if entry.kept:
                touch(key)
            addresses.append(entry.block.address)  # type: ignore[union-attr]  # a resident entry has one
        if counters.pinned_bytes > counters.peak_pinned_bytes:
            counters.peak_pinned_bytes = counters.pinned_bytes
        counters.hits += len(addresses)
        return tuple(addresses)

    def _look_up(self, working_set: list[tuple[Entry, Mode]]) -> None:
        modes: dict[int, Mode] = {}
        for key, mode in self._pairs:
            if mode != "r" and mode not in _WRITING:
                raise ValueError(f'a mode is "r", "rw" or "w", not {mode!r}')
            known = modes.get(key)
            # The same array twice: one pin, with the mode that covers both.
            modes[key] = mode if known is None or known == mode else "rw"
        for key, mode in modes.items():
            entry = self._manager.get(key)
            if entry is None:
                raise self._manager.unknown(key)
            working_set.append((entry, mode))

    def __exit__(self, *exc_info: object) -> None:
        entered = self._entered
        if not entered:
            return
        manager = self._manager
        try:
            with lock:
                leave(manager, self._token, entered, self._stream, self._since)
        except BaseException as error:  # an interrupt while waiting for the lock, or inside
            with lock:
                leave(manager, self._token, entered, self._stream, self._since)
            if not isinstance(error, Exception):
                manager.repair()
            raise
        self._entered = _LEFT
        if self._mark or manager.late:
            manager.after_use(self._stream, self._mark, exc_info)

    def __del__(self) -> None:
        try:
            entered = self._entered
        except AttributeError:  # its __init__ was interrupted
            return
        if entered and any(self._token in entry.pins for entry, _ in entered):
            self._manager.leave_late(partial(leave, self._manager, self._token, entered, self._stream, self._since))


def timed_get(manager: Manager, key: int) -> Entry | None:
    """Under the lock: `Table.get`, and the books of how long it took."""
    start = perf_counter_ns()
    entry = manager.get(key)
    took = perf_counter_ns() - start
    manager.counters.lookups += 1
    manager.counters.lookup_ns += took
    return entry


def _nothing_to_wait_for(reads: dict[Timeline, int], stream: Timeline) -> bool:
    return all(timeline is stream or sequence <= timeline.reached for timeline, sequence in reads.items())
