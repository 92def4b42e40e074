"""Counting a manager: the published statistics, and the recount that checks them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lifetimes.entry import CLEAN, DIRTY, EVICTING, HOST, RELEASED, STATE_NAMES, UPLOADING
from lifetimes.locks import lock
from lifetimes.manager.statistics import ManagerStatistics

if TYPE_CHECKING:
    from lifetimes.entry import Entry
    from lifetimes.manager.core import Manager

__all__ = ["check_invariants", "take_snapshot"]


def take_snapshot(manager: Manager) -> ManagerStatistics:
    """The statistics now.  Under the lock.  Complexity: O(arrays)."""
    entries = [entry for _, entry in manager.table.snapshot()]
    resident = [entry for entry in entries if entry.block is not None]
    dirty = [entry for entry in resident if entry.state == DIRTY]
    pinned = [entry for entry in entries if entry.pins]
    pending = [entry for entry in resident if entry.state == EVICTING]
    memory, counters = manager.memory, manager.counters
    return ManagerStatistics(
        arrays=len(entries),
        array_bytes=_total(entries),
        resident=len(resident),
        resident_bytes=_total(resident),
        dirty=len(dirty),
        dirty_bytes=_total(dirty),
        pinned=len(pinned),
        pinned_bytes=_total(pinned),
        pending=len(pending),
        pending_bytes=_total(pending),
        limit=memory.limit,
        reserved_bytes=memory.reserved,
        peak_bytes=memory.peak,
        held_blocks=memory.pool.held_blocks,
        held_bytes=memory.pool.held_bytes,
        total_bytes=counters.total_bytes,
        hits=counters.hits,
        misses=counters.misses,
        uploads=counters.uploads,
        upload_bytes=counters.upload_bytes,
        copybacks=counters.copybacks,
        copyback_bytes=counters.copyback_bytes,
        evictions=counters.evictions,
        evicted_bytes=counters.evicted_bytes,
        rungs=dict(counters.rungs),
    )


def check_invariants(manager: Manager) -> None:
    """Everything that must hold between any two calls.  Complexity: O(arrays)."""
    manager.memory.check_invariants()
    manager.host_store.check_invariants()
    with lock:
        entries = manager.table.snapshot()
        blocks = [entry.block for _, entry in entries if entry.block is not None]
        held = manager.memory.pool.held_bytes
        used = sum(block.capacity for block in blocks)
        assert used + held == manager.memory.reserved, (
            f"arrays have {used} bytes and the pool {held}, but {manager.memory.reserved} are reserved"
        )
        assert len({block.key for block in blocks}) == len(blocks), "two arrays share a block"
        for key, entry in entries:
            state = f"{entry!r} in {manager.memory!r}"
            assert key == entry.key, f"filed under {key}: {state}"
            assert entry.state != RELEASED, f"released but in the table: {state}"
            has_block = entry.block is not None
            if entry.nbytes and entry.state in (UPLOADING, CLEAN, DIRTY, EVICTING):
                assert has_block, f"{STATE_NAMES[entry.state]} without a block: {state}"
            if entry.state == HOST:
                assert not has_block, f"on the host and yet with a block: {state}"
            if entry.state in (HOST, UPLOADING, CLEAN):
                assert entry.host is not None, f"no content anywhere: {state}"
            kept = key in manager.policy
            settled = entry.state != EVICTING and not entry.owner
            assert kept == (has_block and settled and not entry.parked), f"kept by the policy: {kept}: {state}"
            assert entry.pins or not entry.parked, f"parked but not pinned: {state}"


def _total(entries: list[Entry]) -> int:
    return sum(entry.nbytes for entry in entries)
