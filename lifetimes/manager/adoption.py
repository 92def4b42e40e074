"""Memory of somebody else under a key of ours: used and found by address, never freed, evicted or swept."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import TYPE_CHECKING

from lifetimes.cell import next_key
from lifetimes.entry import UNMANAGED, Entry
from lifetimes.lifetime import Lifetime
from lifetimes.locks import lock
from lifetimes.size_classes import check_nbytes
from lifetimes.timeline import Work, told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lifetimes.manager.core import Manager
    from lifetimes.timeline import Ticket

__all__ = ["adopt", "let_go"]


def adopt(
    manager: Manager,
    address: int,
    nbytes: int,
    owner: object,
    on_release: Callable[[int], object] | None,
    label: str | None,
) -> int:
    """See `Manager.adopt`."""
    if isinstance(address, bool):
        raise TypeError(f"an address is an integer, not the bool {address}")
    where = index(address)
    size = check_nbytes(nbytes, 2**64 - 1 - max(where, 0), "the adopted memory")
    if where <= 0 and size:
        raise ValueError(f"no memory can be at the address {where:#x}")
    # On its way out it waits for the work that used the memory: that is what a lifetime is for.
    lease: Lifetime[int] = Lifetime.borrow(
        where, owner=owner, on_release=on_release, kind="adopted memory", nbytes=size, label=label
    )
    entry = Entry(manager, next_key(), size, label, UNMANAGED)
    entry.lease = lease
    entry.checked = told.count
    try:
        with lock:
            if manager.closed:
                raise manager.is_closed()
            if size:
                entry.attach(manager.memory.adopt(where, size, entry.key))
            manager.enter(entry)
    except BaseException:
        if manager.table.get(entry.key) is not entry:
            _take_back(manager, entry, lease)
        raise
    return entry.key


def _take_back(manager: Manager, entry: Entry, lease: Lifetime[int]) -> None:
    """It was not adopted: the memory is still the caller's, who is told by the error alone."""
    lease.detach()
    with lock:
        block = manager.memory.adopted.get(lease._value)
        if block is not None and block.owner == entry.key:
            manager.memory.forget(block)


def let_go(lease: Lifetime[int], tickets: Sequence[Ticket]) -> None:
    """Tell the owner when all work that used the memory has completed.  Without the lock."""
    for timeline, sequence in tickets:
        if sequence > timeline.reached:
            lease.after(Work(timeline, sequence))
    lease.close()
