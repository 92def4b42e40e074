"""What a manager counts, and the snapshot it publishes."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Counters", "ManagerStatistics"]


class Counters:
    """Plain integers, changed under the library's lock."""

    __slots__ = (
        "copyback_bytes", "copybacks", "evicted_bytes", "evictions", "hits", "misses", "rungs", "total_bytes",
        "upload_bytes", "uploads",
    )  # fmt: skip

    def __init__(self) -> None:
        self.hits = 0
        self.misses = 0
        self.uploads = 0
        self.upload_bytes = 0
        self.copybacks = 0
        self.copyback_bytes = 0
        self.evictions = 0
        self.evicted_bytes = 0
        self.total_bytes = 0  # of all arrays ever added
        self.rungs: dict[str, int] = {}  # rung of the allocation ladder -> requests it served


@dataclass(frozen=True, slots=True)
class ManagerStatistics:
    """A snapshot of one manager.  Bytes of arrays are their own sizes; ``reserved`` and ``held`` are capacities.

    ``hits`` are uses that found their array on the device, ``misses`` those that had to bring it there.
    """

    arrays: int
    array_bytes: int
    resident: int
    resident_bytes: int
    dirty: int
    dirty_bytes: int
    pinned: int
    pinned_bytes: int
    pending: int
    pending_bytes: int
    limit: int
    reserved_bytes: int
    peak_bytes: int
    held_blocks: int
    held_bytes: int
    total_bytes: int
    hits: int
    misses: int
    uploads: int
    upload_bytes: int
    copybacks: int
    copyback_bytes: int
    evictions: int
    evicted_bytes: int
    rungs: dict[str, int] = field(default_factory=dict)
