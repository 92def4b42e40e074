"""Making room in host memory: what goes first, and what may not go at all.

In this order, one step at a time, each followed by another look whether it is enough: buffers that nobody uses; landing
places kept warm for arrays that are newer on the device; copies that are in a file as well; copies of arrays that are
on the device as well (which makes the next eviction copy again); waiting for copies in flight from and to buffers that were
given back; the copy that nobody used for longest, to a file; waiting for uploads and for other threads that write files.

Nothing is touched that a use reads, that another thread moves, or that a copy still has to land in; and a copy stays
until the upload made from it is known to have succeeded.
"""

from __future__ import annotations

from _thread import get_ident
from typing import TYPE_CHECKING

from lifetimes.entry import CLEAN, DIRTY, DISK, HOST, SPILLING, Entry
from lifetimes.host_store import spill
from lifetimes.locks import lock

if TYPE_CHECKING:
    from collections import OrderedDict
    from collections.abc import Callable

    from lifetimes.host_store.store import HostStore
    from lifetimes.timeline import Ticket

__all__ = ["make_room"]


def make_room(store: HostStore, capacity: int) -> bool:
    """One step towards ``capacity`` more bytes of host memory; False when no step is left."""
    assert store.limit is not None, "room is made under a limit only"
    before = store._bytes
    store.settle()
    if store._bytes < before or capacity in store._classes:
        return True
    if store._held and store.trim(store._bytes + capacity - store.limit):
        return True
    if _drop_second_copies(store, capacity):
        store.settle()
        return True
    # A copy in flight is over sooner than a file is written.
    return store.wait_landing() or _spill_one(store) or _wait(store)


def _drop_second_copies(store: HostStore, capacity: int) -> bool:
    """Under the limit again by dropping what is also elsewhere; whether anything was dropped."""
    assert store.limit is not None
    dropped = 0
    with lock:
        short = store._bytes - store._held + capacity - store.limit
        steps: tuple[tuple[OrderedDict[Entry, None], Callable[[Entry], bool]], ...] = (
            (store.warm, _is_dirty),
            (store.cold, _has_file),
            (store.warm, _has_file),
            (store.warm, _upload_succeeded),
        )
        for copies, suits in steps:
            for entry in list(copies):
                if dropped >= short:
                    return True
                if _free(entry) and entry.copyback is None and suits(entry):
                    dropped += entry.nbytes
                    _drop(store, entry)
    return dropped > 0


def _is_dirty(entry: Entry) -> bool:
    return entry.state == DIRTY


def _has_file(entry: Entry) -> bool:
    return entry.file is not None


def _free(entry: Entry) -> bool:
    return not entry.owner and not entry.released and not entry.read_on_host()


def _drop(store: HostStore, entry: Entry) -> None:
    if entry.state == HOST:  # its file is as good
        entry.become(SPILLING)
        entry.become(DISK)
    elif entry.state == CLEAN and entry.file is None:
        entry.become(DIRTY)
    store.let_go(entry)


def _upload_succeeded(entry: Entry) -> bool:
    upload = entry.upload
    return upload is None or (upload[1] <= upload[0].reached and upload[0].error(upload[1]) is None)


def _spill_one(store: HostStore) -> bool:
    if store.directory is None:
        return False
    with lock:
        entry = next((entry for entry in store.cold if _free(entry)), None)
        if entry is None:
            return False
        entry.home.own(entry)
        entry.become(SPILLING)
        store.cold.pop(entry, None)
        store.moving[get_ident()] = entry
    return spill.spill(store, entry)


def _wait(store: HostStore) -> bool:
    """Wait for what is on its way out of memory; False when nothing is."""
    upload: Ticket | None = None
    with lock:
        for entry in store.warm:
            flying = entry.upload is not None and entry.upload[1] > entry.upload[0].reached
            if flying and entry.state == CLEAN and _free(entry):
                upload = entry.upload
                break
        if upload is None:
            if not store.moving:
                return False
            spill.finished.wait(0.05)  # a notice can be lost to an interrupt
            return True
    upload[0].wait(upload[1])
    return True
