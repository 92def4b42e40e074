"""One row: what was measured, the bar it is held to, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from bench.measure import BUSY_ABOVE, Measured

__all__ = ["ERROR", "MET", "MISSED", "REPORTED", "SKIPPED", "Row", "Side", "format_rate", "format_seconds"]

MET: Final = "met"
MISSED: Final = "missed"
REPORTED: Final = "reported"  # it has no bar
SKIPPED: Final = "skipped"
ERROR: Final = "error"


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a row."""

    label: str
    iterations: int
    rounds: tuple[float, ...]  # seconds for one operation, in order
    median: float

    def as_dict(self) -> dict[str, Any]:
        """As in the JSON file."""
        return {
            "label": self.label,
            "median_seconds": self.median,
            "best_seconds": min(self.rounds),
            "rounds": len(self.rounds),
            "iterations": self.iterations,
            "seconds": list(self.rounds),
        }


@dataclass(slots=True)
class Row:
    """A row of the table.

    ``bar`` bounds the ratio: of times, ours to the peer's, which may be at most that; or, for a row with ``nbytes``
    (the bytes that one operation moves), of rates, which must be at least that.  ``limit`` bounds the time of one
    operation of ours in seconds.  A row with neither is only reported.
    """

    name: str
    title: str
    file: str
    bar: float | None = None
    limit: float | None = None
    nbytes: int = 0
    ours: Side | None = None
    peer: Side | None = None
    slowdown: float = 1.0
    attempts: list[dict[str, Any]] = field(default_factory=list)
    trouble: tuple[str, str] | None = None  # SKIPPED or ERROR, and why

    def take(self, measured: Measured, ours: str, peer: str, slowdown: float) -> None:
        """Let this be the row's figures from now on; earlier ones stay in ``attempts``."""
        self.ours = Side(ours, measured.ours_iterations, tuple(measured.ours), measured.ours_median)
        peer_median = measured.peer_median
        if peer_median is not None:
            self.peer = Side(peer, measured.peer_iterations, tuple(measured.peer), peer_median)
        self.slowdown = slowdown
        attempt = {"ours_median_seconds": measured.ours_median, "peer_median_seconds": peer_median, "ratio": self.ratio}
        self.attempts.append({**attempt, "slowdown": slowdown, "busy": self.busy})

    @property
    def ratio(self) -> float | None:
        """Ours to the peer's: of times, or of rates if the row moves bytes.  None without a peer."""
        if self.ours is None or self.peer is None:
            return None
        of_times = self.ours.median / self.peer.median
        return 1 / of_times if self.nbytes else of_times

    @property
    def busy(self) -> bool:
        """Whether somebody else had part of the machine meanwhile."""
        return self.slowdown > BUSY_ABOVE

    @property
    def misses(self) -> list[str]:
        """What is below its bar, in words."""
        found = []
        ratio = self.ratio
        if self.bar is not None and ratio is not None:
            if self.nbytes and ratio < self.bar:
                found.append(f"{ratio:.2f}x of the peer's rate is below the bar of {self.bar:g}x")
            elif not self.nbytes and ratio > self.bar:
                found.append(f"{ratio:.2f}x of the peer's time is above the bar of {self.bar:g}x")
        if self.limit is not None and self.ours is not None and self.ours.median > self.limit:
            found.append(f"{format_seconds(self.ours.median)} is above the bar of {format_seconds(self.limit)}")
        return found

    @property
    def verdict(self) -> str:
        """One of `MET`, `MISSED`, `REPORTED`, `SKIPPED`, `ERROR`."""
        if self.trouble is not None:
            return self.trouble[0]
        if self.bar is None and self.limit is None:
            return REPORTED
        return MISSED if self.misses else MET

    @property
    def reason(self) -> str:
        """Why it was skipped, failed or missed its bar; else empty."""
        return self.trouble[1] if self.trouble is not None else "; ".join(self.misses)

    @property
    def bars(self) -> str:
        """The bars, for people."""
        bars = []
        if self.bar is not None:
            bars.append(f"{'>=' if self.nbytes else '<='} {self.bar:g}x")
        if self.limit is not None:
            bars.append(f"<= {format_seconds(self.limit)}")
        return ", ".join(bars)

    def show(self, side: Side | None) -> str:
        """The median of a side, for people."""
        if side is None:
            return ""
        return format_rate(self.nbytes / side.median) if self.nbytes else format_seconds(side.median)

    def as_dict(self) -> dict[str, Any]:
        """As in the JSON file."""
        return {
            "name": self.name,
            "title": self.title,
            "file": self.file,
            "verdict": self.verdict,
            "reason": self.reason,
            "ratio": self.ratio,
            "ratio_of": "rates" if self.nbytes else "times",
            "bar": self.bar,
            "limit_seconds": self.limit,
            "bytes": self.nbytes,
            "ours": None if self.ours is None else self.ours.as_dict(),
            "peer": None if self.peer is None else self.peer.as_dict(),
            "busy": self.busy,
            "slowdown": self.slowdown,
            "attempts": self.attempts,
        }


def format_seconds(seconds: float) -> str:
    """For people: three digits and a unit.

    >>> format_seconds(2.5e-6), format_seconds(0.0612), format_seconds(3.14159)
    ('2.5 us', '61.2 ms', '3.14 s')
    """
    for unit, scale in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)):
        if seconds < 999.5 * scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def format_rate(rate: float) -> str:
    """Bytes a second, for people.

    >>> format_rate(12.5 * 2**30)
    '12.5 GiB/s'
    """
    for unit, scale in (("KiB/s", 2**10), ("MiB/s", 2**20)):
        if rate < 999.5 * scale:
            return f"{rate / scale:.3g} {unit}"
    return f"{rate / 2**30:.3g} GiB/s"
