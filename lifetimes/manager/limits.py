"""Limits that change while the manager runs: the hard one at once or not at all, the soft one as pins drop."""

from __future__ import annotations

import time
from _thread import get_ident
from typing import TYPE_CHECKING

from lifetimes.errors import BusyError
from lifetimes.locks import lock
from lifetimes.manager.eviction import TRIES
from lifetimes.sizes import format_bytes

if TYPE_CHECKING:
    from lifetimes.manager.core import Manager

__all__ = ["lower_to_soft", "set_hard", "set_soft"]


def set_hard(manager: Manager, limit: int) -> None:
    """Let the manager take ``limit`` bytes from the driver and no more, evicting what is beyond.

    Errors: `BusyError` when so much cannot be given up because it is in use; the limit is as before then.
    """
    memory = manager.memory
    before = memory.limit
    done = False
    try:
        with lock:
            pinned = _pinned(manager)
            if pinned > limit:
                raise BusyError(
                    f"a limit of {format_bytes(limit)} is below the {format_bytes(pinned)} that are in use right now "
                    f"(the limit stays {format_bytes(before)}); leave `with` blocks first, or set a soft limit"
                )
            memory.limit = limit
        _shrink(manager, limit)
        done = True
    finally:
        if not done and memory.limit == limit:
            memory.limit = before
    with lock:
        manager.waiting.note()


def _pinned(manager: Manager) -> int:
    """Under the lock: bytes that cannot be given up now: blocks in use, and those that threads have in hand."""
    pinned = sum(entry.block.capacity for entry in manager.pinned if entry.block is not None and entry.lease is None)
    return pinned + sum(nbytes for _, nbytes in manager.memory.requests.values())


def _shrink(manager: Manager, limit: int) -> None:
    memory, evictor = manager.memory, manager.evictor
    deadline = time.monotonic() + manager.pin_timeout
    failed = evictor.failed
    while True:
        evictor.settle()
        with lock:
            seen = manager.waiting.changes
            over = memory.reserved - limit
            short = over - evictor.in_flight() - memory.pool.held_bytes
        if over <= 0:
            return
        if memory.purge(over):
            continue
        if evictor.failed - failed < TRIES:
            if short > 0 and evictor.evict_some(short):
                continue
            if evictor.wait_oldest() or manager.ladder.wait_for_work():
                continue
        with lock:
            me = get_ident()
            moved = any(entry.owner != me for entry in manager.moving)
            if moved and time.monotonic() < deadline:
                manager.waiting.wait(seen, deadline)
                continue
            if manager.waiting.changes != seen and time.monotonic() < deadline:
                continue
            raise BusyError(
                f"{format_bytes(over)} more than a limit of {format_bytes(limit)} are in use or cannot be copied back: "
                f"{len(manager.pinned)} pinned arrays; leave `with` blocks first, or set a soft limit"
            )


def set_soft(manager: Manager, limit: int | None) -> None:
    """Aim at ``limit`` bytes from now on; None: aim at nothing."""
    with lock:
        before, manager.memory.soft = manager.memory.soft, limit
        # While there is a soft limit each last unpin looks at it.
        manager.waiting.attention += (limit is not None) - (before is not None)
    lower_to_soft(manager)


def lower_to_soft(manager: Manager) -> None:
    """Give up what is beyond the soft limit and not in use.  Waits for nothing: what is in flight goes the next time."""
    memory = manager.memory
    soft = memory.soft
    if soft is None or memory.reserved <= soft:
        return
    manager.evictor.settle()
    memory.purge(memory.reserved - soft)
    with lock:
        short = memory.reserved - soft - manager.evictor.in_flight() - memory.pool.held_bytes
    if short > 0 and manager.evictor.evict_some(short):
        manager.evictor.settle()
        memory.purge(max(memory.reserved - soft, 0))
