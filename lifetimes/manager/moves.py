"""Small steps of entries, all under the lock: who moves them, whether they can be evicted, and their end."""

from __future__ import annotations

from _thread import get_ident
from functools import partial
from typing import TYPE_CHECKING, Final

from lifetimes.entry import DISK, EVICTING, HOST, RELEASED, Entry
from lifetimes.manager.adoption import let_go

if TYPE_CHECKING:
    from lifetimes.manager.core import Manager

__all__ = ["back_to_host", "disown", "drop_from_policy", "finish", "give_block", "keep", "moved", "own", "release"]


QUEUED: Final = -1
"""`Manager.tend` stands in the line of what is done late."""


def own(manager: Manager, entry: Entry) -> None:
    """This thread moves the entry: nobody else does, and uses wait."""
    entry.owner = get_ident()
    manager.moving[entry] = None


def disown(manager: Manager, entry: Entry) -> None:
    """It does no more."""
    entry.owner = 0
    manager.moving.pop(entry, None)


def moved(manager: Manager, entry: Entry) -> None:
    """A transition has ended, or a pin has gone: what waited for that happens now."""
    if not entry.pins and not entry.owner:
        if entry.released:
            if entry.state != RELEASED:
                manager.finish_release(entry)
        elif not entry.kept:
            keep(manager, entry)
    soft = manager.memory.soft
    if soft is not None and manager.memory.reserved > soft:
        tend_soon(manager)
    manager.waiting.note()


def keep(manager: Manager, entry: Entry) -> None:
    """The policy holds what is on the device and can be evicted."""
    if entry.block is None or entry.kept or entry.released or entry.lease is not None or entry.state == EVICTING:
        return
    if entry.key not in manager.policy:
        manager.policy.add(entry.key, entry.nbytes)
    entry.kept = True


def drop_from_policy(manager: Manager, entry: Entry) -> None:
    """The policy does not hold it any more."""
    manager.policy.remove(entry.key)
    entry.kept = False


def give_block(manager: Manager, entry: Entry) -> None:
    """The entry's block goes to the pool, to be reused after the entry's last uses."""
    block = entry.detach()
    if block is not None:
        pool = manager.memory.pool
        pool.hold(block, block.tickets)
        if pool.max_age is not None or (pool.max_bytes is not None and pool.held_bytes > pool.max_bytes):
            tend_soon(manager)


def tend_soon(manager: Manager) -> None:
    """Have `Manager.tend` called without the lock, at the next moment when that can be."""
    if manager.tending not in (QUEUED, get_ident()):  # what fails while this thread tends is not tried again at once
        manager.tending = QUEUED
        manager.late.append(manager.tend)


def back_to_host(manager: Manager, entry: Entry) -> None:
    """A clean entry leaves the device; its other copy is all there is then."""
    drop_from_policy(manager, entry)
    entry.become(HOST if entry.host is not None else DISK)
    give_block(manager, entry)
    manager.host_store.place(entry)


def release(manager: Manager, entry: Entry) -> None:
    """Nobody finds the entry any more; what it has goes as soon as nobody uses or moves it."""
    entry.released = True
    manager.departing[entry] = None
    manager.table.pop(entry.key)
    counters = manager.counters
    counters.arrays -= 1
    counters.array_bytes -= entry.nbytes
    drop_from_policy(manager, entry)
    moved(manager, entry)


def finish(manager: Manager, entry: Entry) -> None:
    """Nobody uses or moves a released entry: give away what it had."""
    lease = entry.lease
    if lease is not None:
        entry.detach()
        block = manager.memory.adopted.get(lease.value)  # it has the tickets now
        manager.late.append(partial(let_go, lease, [] if block is None else block.tickets))
        entry.lease = None
        if block is not None:
            manager.memory.forget(block)
    else:
        give_block(manager, entry)
    manager.host_store.let_go(entry)
    manager.host_store.discard_file(entry)
    entry.become(RELEASED)
    counters = manager.counters
    counters.counts[RELEASED] -= 1
    counters.sums[RELEASED] -= entry.nbytes
    manager.departing.pop(entry, None)
