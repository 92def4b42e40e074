"""The published statistics, and the recount that checks them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lifetimes.entry import (
    BROKEN,
    CLEAN,
    DIRTY,
    DISK,
    EVICTING,
    HOST,
    LOADING,
    RELEASED,
    SPILLING,
    STATE_NAMES,
    UNMANAGED,
    UPLOADING,
    Entry,
)
from lifetimes.locks import lock
from lifetimes.manager.statistics import Counters, ManagerStatistics

if TYPE_CHECKING:
    from lifetimes.manager.core import Manager

__all__ = ["all_entries", "check_invariants", "recount", "take_snapshot"]

OFF_DEVICE = (HOST, UPLOADING, SPILLING, DISK, LOADING)
ON_DEVICE = (CLEAN, DIRTY, EVICTING, UNMANAGED)


def take_snapshot(manager: Manager) -> ManagerStatistics:
    """The statistics now.  Under the lock.  Complexity: O(1)."""
    memory, counters = manager.memory, manager.counters
    counts, sums, peaks = counters.counts, counters.sums, counters.peaks
    return ManagerStatistics(
        arrays=counters.arrays,
        array_bytes=counters.array_bytes,
        peak_array_bytes=counters.peak_array_bytes,
        resident=counters.resident,
        resident_bytes=counters.resident_bytes,
        dirty=counts[DIRTY],
        dirty_bytes=sums[DIRTY],
        pinned=len(manager.pinned),
        pinned_bytes=counters.pinned_bytes,
        peak_pinned_bytes=counters.peak_pinned_bytes,
        pending=counts[EVICTING],
        pending_bytes=sums[EVICTING],
        spilled=counts[DISK],
        spilled_bytes=sums[DISK],
        peak_spilled_bytes=peaks[DISK],
        unmanaged=counts[UNMANAGED],
        unmanaged_bytes=sums[UNMANAGED],
        broken=counts[BROKEN],
        broken_bytes=sums[BROKEN],
        limit=memory.limit,
        soft_limit=memory.soft,
        reserved_bytes=memory.reserved,
        peak_bytes=memory.peak,
        held_blocks=memory.pool.held_blocks,
        held_bytes=memory.pool.held_bytes,
        total_bytes=counters.total_bytes,
        hits=counters.hits,
        misses=counters.misses,
        lookups=counters.lookups,
        lookup_ns=counters.lookup_ns / counters.lookups if counters.lookups else 0.0,
        uploads=counters.uploads,
        upload_bytes=counters.upload_bytes,
        copybacks=counters.copybacks,
        copyback_bytes=counters.copyback_bytes,
        evictions=counters.evictions,
        evicted_bytes=counters.evicted_bytes,
        rungs=dict(counters.rungs),
    )


def all_entries(manager: Manager) -> list[Entry]:
    """Under the lock: every entry that is not released, and released ones that somebody still uses or moves."""
    entries = {entry: None for _, entry in manager.table.snapshot()}
    others = (*manager.pinned, *manager.moving, *manager.departing)
    entries.update((entry, None) for entry in others if entry.state != RELEASED)
    return list(entries)


def recount(manager: Manager, entries: list[Entry]) -> dict[str, object]:
    """Under the lock: what `Counters` says of the entries, counted."""
    counts, sums = [0] * len(STATE_NAMES), [0] * len(STATE_NAMES)
    for entry in entries:
        counts[entry.state] += 1
        sums[entry.state] += entry.nbytes
    live = [entry for _, entry in manager.table.snapshot()]
    resident = [entry for entry in entries if entry.block is not None]
    return {
        "counts": counts,
        "sums": sums,
        "arrays": len(live),
        "array_bytes": sum(entry.nbytes for entry in live),
        "resident": len(resident),
        "resident_bytes": sum(entry.nbytes for entry in resident),
        "pinned_bytes": sum(entry.nbytes for entry in entries if entry.pins),
    }


def check_invariants(manager: Manager) -> None:
    """Everything that must hold between any two calls.  Complexity: O(arrays)."""
    manager.run_late()
    manager.memory.check_invariants()
    manager.host_store.check_invariants()
    for timeline in (manager.stream, *manager.own_streams):
        timeline.check_invariants()
    with lock:
        entries = all_entries(manager)
        _check_books(manager, manager.counters, entries)
        _check_blocks(manager, entries)
        for entry in entries:
            _check_entry(manager, entry)
        for entry, _ in manager.evictor.copybacks:
            assert entry.copyback is not None or entry.state != EVICTING, f"nothing is copied back: {entry!r}"
        assert not manager.moving, f"moved by nobody: {manager.moving}"
        departing = {entry for entry in entries if entry.released}
        assert set(manager.departing) == departing, f"departing are {departing}, not {manager.departing}"
        assert not manager.waiting.line, f"in line: {manager.waiting.line}"
        assert len(manager.policy) == sum(entry.kept for entry in entries), "the policy holds keys of nobody"


def _check_books(manager: Manager, counters: Counters, entries: list[Entry]) -> None:
    for name, counted in recount(manager, entries).items():
        kept = getattr(counters, name)
        assert kept == counted, f"{name} is kept as {kept} and counted as {counted} in {manager!r}"
    assert set(manager.pinned) == {entry for entry in entries if entry.pins}, f"pinned is off: {manager.pinned}"
    assert counters.pinned_bytes <= counters.peak_pinned_bytes, "a peak is below what it is the peak of"
    assert counters.array_bytes <= counters.peak_array_bytes <= counters.total_bytes, (
        "array bytes: current, peak, total"
    )


def _check_blocks(manager: Manager, entries: list[Entry]) -> None:
    blocks = [entry.block for entry in entries if entry.block is not None and entry.lease is None]
    used, held = sum(block.capacity for block in blocks), manager.memory.pool.held_bytes
    reserved = manager.memory.reserved
    assert used + held == reserved, f"arrays have {used} bytes and the pool {held}, but {reserved} are reserved"
    assert len({block.key for block in blocks}) == len(blocks), "two arrays share a block"
    for entry in entries:
        if entry.block is not None:
            assert entry.block.owner == entry.key, f"its block belongs to #{entry.block.owner}: {entry!r}"


def _check_entry(manager: Manager, entry: Entry) -> None:
    state = f"{entry!r} in {manager!r}"
    assert entry.owner == 0, f"owned by thread {entry.owner}: {state}"
    assert (manager.table.get(entry.key) is entry) != entry.released, f"filed although released, or lost: {state}"
    if entry.nbytes:
        if entry.state in ON_DEVICE:
            assert entry.block is not None, f"on the device without a block: {state}"
        if entry.state in OFF_DEVICE:
            assert entry.block is None, f"off the device and yet with a block: {state}"
        if entry.state == HOST or (entry.state == CLEAN and entry.file is None):
            assert entry.host is not None, f"no content off the device: {state}"
        if entry.state == DISK:
            assert entry.file is not None, f"no file: {state}"
            assert entry.host is None, f"on disk and in memory: {state}"
    assert entry.file is None or entry.state in (HOST, CLEAN, DISK), f"a file of another content: {state}"
    assert not entry.borrowed or entry.state in (HOST, CLEAN), f"borrowed memory that may be written to: {state}"
    kept = entry.key in manager.policy and not entry.released
    assert kept == entry.kept, f"kept by the policy: {kept}: {state}"
    if entry.state in (EVICTING, UNMANAGED) or entry.block is None or entry.released or entry.lease is not None:
        assert not kept, f"it cannot be evicted: {state}"
    else:
        assert kept or entry.pins, f"it can be evicted, but the policy does not know it: {state}"
