"""Whole arrays between the device and the caller's own host memory."""

from __future__ import annotations

from _thread import get_ident
from typing import TYPE_CHECKING

import numpy as np

from lifetimes.cell import next_key
from lifetimes.entry import CLEAN, DISK, HOST, UNINIT, Entry
from lifetimes.errors import BackendError, BusyError
from lifetimes.host_store.spill import read_into
from lifetimes.locks import lock
from lifetimes.manager.acquire import check
from lifetimes.manager.pins import pin, unpin

if TYPE_CHECKING:
    from lifetimes._typing import ByteView, HostArray
    from lifetimes.manager.core import Manager

__all__ = ["read", "write"]


def read(manager: Manager, key: int, out: HostArray) -> HostArray:
    """See `Manager.read`."""
    entry = manager.entry(key)
    if out.nbytes != entry.nbytes or not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError(
            f"array #{key} has {entry.nbytes} bytes; out has {out.nbytes}, or is not C-contiguous, or not writable"
        )
    if not entry.nbytes:
        return out
    flat: ByteView = out.reshape(-1).view(np.uint8)
    token = next_key()
    owned: list[Entry] = []
    try:
        host = _look(manager, entry, token, owned)
        if host is not None:
            np.copyto(flat, host)
            return out
        if owned:
            read_into(manager.host_store, entry, flat)
            return out
    finally:
        try:
            _give_up(manager, entry, token, owned)
        finally:  # once more, should an interrupt have struck the line above
            _give_up(manager, entry, token, owned)
    if entry.state == UNINIT:  # nothing was ever written: there is nothing to copy
        return out
    _copy_out(manager, entry, flat)
    return out


def _give_up(manager: Manager, entry: Entry, token: int, owned: list[Entry]) -> None:
    with lock:
        unpin(manager, token, entry)
        for each in owned:
            manager.disown(each)
            manager.moved(each)
        owned.clear()


def _look(manager: Manager, entry: Entry, token: int, owned: list[Entry]) -> ByteView | None:
    """Where the content is: pinned host memory, or a file of an entry that this thread owns now, or the device."""
    me = get_ident()
    with lock:
        while entry.owner:
            if entry.owner == me:
                raise BusyError(f"{entry!r} is being moved by this very thread, which came back into it")
            manager.waiting.wait(manager.waiting.changes)
        check(manager, entry, "r")
        if entry.host is not None and (entry.state == HOST or (entry.state == CLEAN and entry.copyback is None)):
            pin(manager, token, entry, ~me)  # so that nobody lands in it meanwhile
            return entry.host
        if entry.state == DISK:
            owned.append(entry)
            manager.own(entry)
    return None


def _copy_out(manager: Manager, entry: Entry, flat: ByteView) -> None:
    stream = manager.transfer
    with manager.use(entry.key, "r", stream) as address:
        writes = entry.writes()
        stream.fence()  # the failure of this copy is told apart from others
        manager.driver.copy_out(flat, address, stream.handle)
        sequence = stream.tick()
        stream.mark()
    stream.wait(sequence)
    # They are done, since the copy waited for them, so this takes no time, unless another thread is just recording an event
    # there: what `Timeline.done` cannot tell yet would go unnoticed.
    for timeline, number in writes:
        timeline.wait(number)
        lost = timeline.error(number)
        if lost is not None:
            with lock:
                while entry.owner:  # whoever moves it has its buffers in hand
                    manager.waiting.wait(manager.waiting.changes)
                check(manager, entry, "r")
            raise BackendError(
                f"array #{entry.key} could not be read: {lost}; its content is another by now, read it again"
            )
    error = stream.error(sequence)
    if error is not None:
        raise BackendError(f"array #{entry.key} could not be copied to the host: {error}; it is still on the device")


def write(manager: Manager, key: int, source: HostArray) -> None:
    """See `Manager.write`."""
    entry = manager.entry(key)
    if source.nbytes != entry.nbytes:
        raise ValueError(f"array #{key} has {entry.nbytes} bytes; the source has {source.nbytes}")
    if source.dtype.hasobject:
        raise TypeError(f"an array of dtype {source.dtype} holds Python objects, which a device cannot")
    flat = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
    stream = manager.stream
    with manager.use(key, "w") as address:
        if not entry.nbytes:
            return
        stream.fence()
        manager.driver.copy_in(address, flat, stream.handle)
        sequence = stream.tick()
    stream.mark()
    stream.wait(sequence)
    error = stream.error(sequence)
    if error is not None:
        raise BackendError(f"array #{key} could not be written: {error}; its content is lost, write it again")
