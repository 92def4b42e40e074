"""Bringing an array to the device before somebody needs it: best effort, and never at anybody's expense who is at work."""

from __future__ import annotations

from _thread import get_ident
from typing import TYPE_CHECKING

from lifetimes.entry import CLEAN, DISK, EVICTING, HOST, UNINIT
from lifetimes.errors import BrokenError, OutOfMemory
from lifetimes.locks import lock
from lifetimes.manager.acquire import bring, check, look_at_upload
from lifetimes.manager.shortage import Shortage

if TYPE_CHECKING:
    from lifetimes.manager.core import Manager
    from lifetimes.pool import Block
    from lifetimes.timeline import Timeline

__all__ = ["prefetch"]

RUNGS = ("drain", "purge", "evict", "copy-back")
"""What is tried for it: nothing that waits for work, asks hooks or collects garbage."""


def prefetch(manager: Manager, key: int, stream: Timeline) -> bool:
    """See `Manager.prefetch`."""
    entry = manager.entry(key)
    look_at_upload(entry)
    with lock:
        if not entry.nbytes or entry.state == UNINIT:
            return True
        if entry.owner or entry.released:
            return False
        try:
            check(manager, entry, "r")
        except BrokenError:
            return False
        if entry.state == EVICTING:
            entry.become(CLEAN)
            manager.host_store.place(entry)
            manager.keep(entry)
        if entry.block is not None:
            return True
        if manager.waiting.line or entry.state not in (HOST, DISK):
            return False  # others wait for memory
        manager.own(entry)
    blocks: dict[int, Block] = {}
    try:
        blocks[key] = manager.ladder.allocate(entry.nbytes, stream, rungs=RUNGS)
        bring(manager, entry, blocks, stream)
        return True
    except (Shortage, OutOfMemory, BrokenError):
        return False
    finally:
        with lock:
            if entry.owner == get_ident():
                manager.disown(entry)
            for each, block in list(blocks.items()):
                manager.memory.pool.hold(block, block.tickets)
                del blocks[each]
            manager.moved(entry)
