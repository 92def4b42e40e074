"""What a manager counts, and the snapshot it publishes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from lifetimes.entry import STATE_NAMES

__all__ = ["SAMPLED", "Counters", "ManagerStatistics"]

SAMPLED: Final = 64
"""One use in so many has its look-up timed.  A power of two."""


class Counters:
    """Plain integers, changed under the library's lock where the thing happens.

    What follows from the entries (everything but the totals and peaks) can be recounted: `repair` does, and
    `check_invariants` compares.
    """

    __slots__ = (
        "array_bytes", "arrays", "copyback_bytes", "copybacks", "counts", "evicted_bytes", "evictions", "hits",
        "lookup_ns", "lookups", "misses", "peak_array_bytes", "peak_pinned_bytes", "peaks", "pinned_bytes", "resident",
        "resident_bytes", "rungs", "sums", "total_bytes", "upload_bytes", "uploads",
    )  # fmt: skip

    def __init__(self) -> None:
        self.counts = [0] * len(STATE_NAMES)  # entries in each state, released ones that somebody still uses included
        self.sums = [0] * len(STATE_NAMES)  # their bytes
        self.peaks = [0] * len(STATE_NAMES)
        self.arrays = 0
        self.array_bytes = 0
        self.peak_array_bytes = 0
        self.total_bytes = 0  # of all arrays ever added
        self.resident = 0
        self.resident_bytes = 0
        self.pinned_bytes = 0
        self.peak_pinned_bytes = 0
        self.hits = 0
        self.misses = 0
        self.lookups = 0  # timed
        self.lookup_ns = 0  # what they took together
        self.uploads = 0
        self.upload_bytes = 0
        self.copybacks = 0
        self.copyback_bytes = 0
        self.evictions = 0
        self.evicted_bytes = 0
        self.rungs: dict[str, int] = {}  # rung of the allocation ladder -> requests it served


@dataclass(frozen=True, slots=True)
class ManagerStatistics:
    """A snapshot of one manager.  Bytes of arrays are their own sizes; ``reserved`` and ``held`` are capacities.

    ``arrays`` live: added and not released, adopted ones (``unmanaged``) included; ``resident`` have device memory; ``dirty``
    have their only content there; ``pinned`` are in use; ``pending`` are being copied back; ``spilled`` are on disk.
    ``reserved`` is what was taken from the driver, of which ``held`` waits in the pool.  ``total_bytes`` counts all arrays
    ever added.  ``hits`` are uses that found their array on the device, ``misses`` those that had to bring it there.

    ``lookup_ns`` is the mean time of finding an entry in the table, in nanoseconds, over ``lookups`` timed ones (one use in
    64).
    """

    arrays: int
    array_bytes: int
    peak_array_bytes: int
    resident: int
    resident_bytes: int
    dirty: int
    dirty_bytes: int
    pinned: int
    pinned_bytes: int
    peak_pinned_bytes: int
    pending: int
    pending_bytes: int
    spilled: int
    spilled_bytes: int
    peak_spilled_bytes: int
    unmanaged: int
    unmanaged_bytes: int
    broken: int
    broken_bytes: int
    limit: int
    soft_limit: int | None
    reserved_bytes: int
    peak_bytes: int
    held_blocks: int
    held_bytes: int
    total_bytes: int
    hits: int
    misses: int
    lookups: int
    lookup_ns: float
    uploads: int
    upload_bytes: int
    copybacks: int
    copyback_bytes: int
    evictions: int
    evicted_bytes: int
    rungs: dict[str, int] = field(default_factory=dict)
