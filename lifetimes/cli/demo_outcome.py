"""What the demo did and found, for whoever prints it."""

from __future__ import annotations

from dataclasses import dataclass, field

from lifetimes.cli.demo_check import Error
from lifetimes.cli.demo_leak import Leak
from lifetimes.cli.demo_plan import Plan
from lifetimes.cli.demo_work import Results
from lifetimes.leaks import LiveThing
from lifetimes.manager import ManagerStatistics

__all__ = ["Outcome"]


@dataclass(slots=True)
class Outcome:
    """What the demo did and found."""

    options: dict[str, str]
    plan: Plan
    source: str
    passes: dict[str, int] = field(default_factory=dict)
    why_not_compiled: str = ""
    """Why the functions ran as they are, and not compiled; empty when they were."""
    statistics: ManagerStatistics | None = None
    results: Results | None = None
    errors: list[Error] = field(default_factory=list)
    leaks: list[Leak] = field(default_factory=list)
    mended: bool = False
    """Whether the leak was gone once the cache was emptied."""
    left: list[LiveThing] = field(default_factory=list)
    """What is alive at the end and was not at the start."""
    alive: int = 0
    """How many things are alive at the end, whoever made them."""
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def within_limit(self) -> bool:
        """Whether the device never held more than the limit."""
        return self.statistics is not None and self.statistics.peak_bytes <= self.plan.limit

    @property
    def lookup_share(self) -> float:
        """Which part of the work's time went into finding arrays in the table, by the look-ups that were timed."""
        done, seconds = self.statistics, self.seconds.get("work", 0.0)
        return done.lookup_ns * 1e-9 * (done.hits + done.misses) / seconds if done is not None and seconds else 0.0

    @property
    def good(self) -> bool:
        """Whether all came right: the numbers, the limit, one leak found, and nothing left."""
        numbers = bool(self.errors) and all(error.good for error in self.errors)
        return numbers and self.within_limit and len(self.leaks) == 1 and self.mended and not self.left
