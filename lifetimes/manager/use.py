"""Uses: pinning one array, or a working set at once, for the length of a ``with`` block.

The short way is for an array that is on the device already and was last used on the same stream: one look-up under the
lock.  Everything else (uploads, other streams to wait for, memory to be found) goes through `acquire`.

A pin is not a lock.  It keeps the array where it is; who writes when is the caller's affair, ordered by streams.

Note [Pins].  A pin is an item of the entry's dict, keyed by the use itself: putting it there and taking it out can be
repeated, so whatever an interrupt tore is undone by doing it once more.
"""

from __future__ import annotations

from _thread import get_ident
from typing import TYPE_CHECKING

from lifetimes.entry import CLEAN, DIRTY, Entry
from lifetimes.errors import BusyError
from lifetimes.locks import held_here, lock, refuse_reentry
from lifetimes.manager.acquire import acquire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lifetimes._typing import Mode
    from lifetimes.manager.core import Manager
    from lifetimes.timeline import Timeline

__all__ = ["Use", "UseMany"]


class Use:
    """One array, pinned for one block.  Made by `Manager.use`; entering gives the device address."""

    __slots__ = ("_entry", "_key", "_manager", "_mode", "_stream")

    def __init__(self, manager: Manager, key: int, mode: Mode, stream: Timeline) -> None:
        self._manager = manager
        self._key = key
        self._mode = mode
        self._stream = stream
        self._entry: Entry | None = None

    def __enter__(self) -> int:
        manager = self._manager
        if held_here():
            raise refuse_reentry("Manager.use")
        if self._entry is not None:
            raise BusyError("a use can be entered once; call use() again for another block")
        stream = self._stream
        mode = self._mode
        key = self._key
        try:
            with lock:
                self._entry = entry = manager.get(key)
                if entry is not None and (entry.state == DIRTY or entry.state == CLEAN) and not entry.owner:
                    write = entry.last_write
                    if (write is None or (write[0] is stream and not stream.failures)) and (
                        mode == "r" or not entry.reads or _only(stream, entry)
                    ):
                        if mode != "r":
                            entry.state = DIRTY
                        entry.pins[self] = get_ident()
                        if not entry.parked:
                            manager.touch(key)
                        manager.counters.hits += 1
                        address: int = entry.block.address  # type: ignore[union-attr]  # a resident entry has one
                        return address
            if entry is None:
                raise manager.unknown(key)
            acquire(manager, self, ((entry, mode),), stream)
            return entry.block.address if entry.block is not None else 0
        except BaseException:
            if self._entry is not None:
                with lock:
                    unpin(manager, self, self._entry)
                self._entry = None
            raise

    def __exit__(self, *exc_info: object) -> None:
        entry = self._entry
        if entry is None:
            return
        manager = self._manager
        try:
            with lock:
                leave(manager, self, entry, self._mode, self._stream)
        except BaseException:  # an interrupt while waiting for the lock, or inside
            with lock:
                leave(manager, self, entry, self._mode, self._stream)
            raise
        if self._stream.borrowed or manager.late:
            manager.after_use(self._stream)


class UseMany:
    """A working set, pinned together for one block.  Made by `Manager.use_many`; entering gives the addresses."""

    __slots__ = ("_entered", "_manager", "_pairs", "_stream")

    def __init__(self, manager: Manager, pairs: Sequence[tuple[int, Mode]], stream: Timeline) -> None:
        self._manager = manager
        self._stream = stream
        self._pairs = pairs
        self._entered: list[tuple[Entry, Mode]] | None = None

    def __enter__(self) -> tuple[int, ...]:
        manager = self._manager
        if held_here():
            raise refuse_reentry("Manager.use_many")
        if self._entered is not None:
            raise BusyError("a use can be entered once; call use_many() again for another block")
        modes: dict[int, Mode] = {}
        for key, mode in self._pairs:
            known = modes.get(key)
            # The same array twice: one pin, with the mode that covers both.
            modes[key] = mode if known is None or known == mode else "rw"
        working_set: list[tuple[Entry, Mode]] = []
        with lock:
            for key, mode in modes.items():
                entry = manager.get(key)
                if entry is None:
                    raise manager.unknown(key)
                working_set.append((entry, mode))
        self._entered = working_set
        try:
            acquire(manager, self, working_set, self._stream)
            where = {entry.key: entry.block.address if entry.block is not None else 0 for entry, _ in working_set}
            return tuple([where[key] for key, _ in self._pairs])
        except BaseException:
            with lock:
                for entry, _ in working_set:
                    unpin(manager, self, entry)
            self._entered = None
            raise

    def __exit__(self, *exc_info: object) -> None:
        if self._entered is None:
            return
        manager = self._manager
        try:
            self._leave()
        except BaseException:
            self._leave()
            raise
        if self._stream.borrowed or manager.late:
            manager.after_use(self._stream)

    def _leave(self) -> None:
        with lock:
            for entry, mode in self._entered or ():
                leave(self._manager, self, entry, mode, self._stream)


def leave(manager: Manager, use: object, entry: Entry, mode: Mode, stream: Timeline) -> None:
    """End one use, under the lock: leave its ticket behind and take the pin away.  Doing it twice does no harm."""
    try:
        stream.issued = sequence = stream.issued + 1
        if mode == "r":
            entry.reads[stream] = sequence
        else:
            entry.last_write = (stream, sequence)
            entry.reads = {}
    finally:
        entry.pins.pop(use, None)
        if not entry.pins and (entry.parked or entry.released or manager.waiters):
            manager.last_unpin(entry)


def unpin(manager: Manager, use: object, entry: Entry) -> None:
    """Take a pin away, under the lock, of a use that did not come about."""
    if entry.pins.pop(use, None) is not None and not entry.pins:
        manager.last_unpin(entry)


def _only(stream: Timeline, entry: Entry) -> bool:
    return len(entry.reads) == 1 and stream in entry.reads
