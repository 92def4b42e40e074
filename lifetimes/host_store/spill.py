"""Moving one copy between host memory and a file, in both directions; whatever fails, the content is where it was."""

from __future__ import annotations

import threading
from _thread import get_ident
from typing import TYPE_CHECKING

from lifetimes import instrument
from lifetimes.entry import BROKEN, DISK, HOST, LOADING, SPILLING, Entry
from lifetimes.errors import BackendError, BrokenError
from lifetimes.host_store.files import read_file, write_file
from lifetimes.locks import lock

if TYPE_CHECKING:
    from lifetimes._typing import ByteView
    from lifetimes.host_store.store import HostStore

__all__ = ["finished", "load", "read_into", "spill"]

finished = threading.Condition(lock)
"""Notified whenever a copy has been written to a file, or could not be."""


def spill(store: HostStore, entry: Entry) -> bool:
    """Write the copy of an entry that this thread owns in the state SPILLING; False when the disk does not take it."""
    host, directory = entry.host, store.directory
    assert host is not None, "claimed by make_room"
    assert directory is not None, "claimed by make_room"
    written = False
    try:
        try:
            file = write_file(directory.new_path(), host)
            written = True
        except OSError as error:
            store.trouble = f"spilling to {directory.path} failed: {error.strerror or error}"
        with lock:
            if written:
                entry.file = file
                store.on_disk[entry] = file.nbytes
                entry.become(DISK)
                store.let_go(entry)
                store.trouble = ""
                store.written_bytes += entry.nbytes
    finally:
        del host
        with lock:
            if entry.state == SPILLING:
                entry.become(HOST)
                store.place(entry)
                if not written:
                    store.cold.move_to_end(entry, last=False) if entry in store.cold else None
            store.moving.pop(get_ident(), None)
            if entry.owner == get_ident():
                entry.home.disown(entry)
            entry.home.moved(entry)
            finished.notify_all()
    if written and instrument.watchers:
        instrument.emit("spill", entry.key, nbytes=entry.nbytes)
    return written


def load(store: HostStore, entry: Entry) -> None:
    """Bring the content of an entry that this thread owns from its file into host memory.

    Errors: `OutOfMemory` (it stays on disk), `BrokenError` when the file does not hold it any more.
    """
    buffer = store.take(entry.nbytes)
    with lock:
        entry.become(LOADING)
    try:
        read_into(store, entry, buffer)
        with lock:
            entry.host = buffer
            entry.become(HOST)
            store.place(entry)
    finally:
        with lock:
            if entry.state != HOST:
                store.give(buffer)
            if entry.state == LOADING:
                entry.become(DISK)
    if instrument.watchers:
        instrument.emit("load", entry.key, nbytes=entry.nbytes)


def read_into(store: HostStore, entry: Entry, destination: ByteView) -> None:
    """Read the file of an entry that this thread owns.  Errors: `BrokenError`, and the entry is BROKEN."""
    file = entry.file
    assert file is not None, "an entry on disk has a file"
    try:
        read_file(file, destination)
    except BackendError as error:
        with lock:
            entry.why = str(error)
            entry.become(BROKEN)
            store.discard_file(entry)
        raise BrokenError(f"the content of array #{entry.key} is lost: {error}") from error
    with lock:
        store.read_bytes += file.nbytes
