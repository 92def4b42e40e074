"""Timing: loops long enough for the clock, ours and the peer's in turn, and a look at how busy the machine is.

Nothing here knows of pytest, and the clock is an argument, so all of it can be tested without measuring anything.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from statistics import fmean, median
from time import perf_counter
from typing import Final, TypeAlias

__all__ = ["BUSY_ABOVE", "Loop", "Measured", "Plan", "Spin", "best_of", "calibrate", "interleave", "time_loop"]

Loop: TypeAlias = Callable[[Iterator[None]], object]
"""What is measured: ``def loop(rounds): for _ in rounds: <operation>``.  The loop is inside: no call is measured."""
Clock: TypeAlias = Callable[[], float]

BUSY_ABOVE: Final = 1.25
"""A spin that takes so many times as long as it can says that somebody else has part of the machine."""

SPIN: Final = 20_000
"""Iterations of one spin, well under a millisecond."""
SPIN_SHARE: Final = 0.05
"""Spins get this share of the time, spread over all rounds."""
TRIES: Final = 3
"""Timings for each guess of the calibration."""
OVERTIME: Final = 3
"""A row that takes so many times as long as was planned, on a busy machine for instance, makes do with fewer rounds."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to measure, in seconds.

    Many short rounds: shorter than the slices in which a system deals out its cores, so that on a busy machine most of
    them are still undisturbed, and the median is that of an idle one.
    """

    round_seconds: float = 0.001
    row_seconds: float = 1.5
    fewest: int = 11
    most: int = 1501

    def rounds(self, one_pair: float) -> int:
        """How many rounds fit when one of ours and one of the peer's take so long together; odd, for the median."""
        fitting = int(self.row_seconds / one_pair) if one_pair > 0 else self.most
        return min(max(fitting, self.fewest), self.most) | 1


class Spin:
    """A loop that always takes the same time, unless somebody else has the core.

    Only what competes for the core shows, not what competes for memory.
    """

    def __init__(self, clock: Clock = perf_counter, tries: int = 100) -> None:
        self._clock = clock
        self.best = min(self.once() for _ in range(tries))

    def once(self) -> float:
        """Seconds of one spin."""
        return time_loop(_nothing, SPIN, self._clock)

    def for_about(self, seconds: float) -> list[float]:
        """As many spins as take about so long on an idle machine, at least one."""
        spins = [self.once() for _ in range(max(1, round(seconds / self.best)))]
        self.best = min(self.best, min(spins))
        return spins

    def slowdown(self, spins: Sequence[float]) -> float:
        """How many times as long as the best one these took on average: near 1 on an idle machine.

        The average, not the median: who gets half of a core is seldom disturbed, but then waits long.
        """
        return fmean(spins) / self.best if spins else 1.0


@dataclass(slots=True)
class Measured:
    """The rounds of one row, in seconds for one operation, in the order in which they ran."""

    ours_iterations: int
    peer_iterations: int
    ours: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)  # empty without a peer
    spins: list[float] = field(default_factory=list)

    @property
    def ours_median(self) -> float:
        """Seconds for one operation of ours."""
        return median(self.ours)

    @property
    def peer_median(self) -> float | None:
        """Seconds for one operation of the peer; None without one."""
        return median(self.peer) if self.peer else None


def time_loop(loop: Loop, iterations: int, clock: Clock = perf_counter) -> float:
    """Seconds that so many iterations take together."""
    rounds = repeat(None, iterations)
    start = clock()
    loop(rounds)
    return clock() - start


def best_of(tries: int, loop: Loop, iterations: int, clock: Clock = perf_counter) -> float:
    """The least of a few timings: the one that was disturbed least."""
    return min(time_loop(loop, iterations, clock) for _ in range(tries))


def calibrate(loop: Loop, seconds: float, clock: Clock = perf_counter) -> int:
    """How many iterations take about so long; at least one.  It warms the loop up, too."""
    iterations = 1
    while True:
        took = best_of(TRIES, loop, iterations, clock)
        if took >= seconds / 2:
            return max(1, round(iterations * seconds / took))
        # Towards the goal, but not by a leap: the first, cold iterations say little.
        iterations = min(iterations * 10, max(iterations * 2, round(iterations * seconds / (took or seconds))))


def interleave(ours: Loop, peer: Loop | None, plan: Plan, spin: Spin, clock: Clock = perf_counter) -> Measured:
    """Measure ours, peer, ours, peer, ... so that drift and a neighbour's load meet both alike.

    The garbage collector stays on, since it is part of what things cost, but starts with nothing to collect.
    """
    gc.collect()
    measured = Measured(
        calibrate(ours, plan.round_seconds, clock),
        calibrate(peer, plan.round_seconds, clock) if peer is not None else 0,
    )
    one_pair = best_of(TRIES, ours, measured.ours_iterations, clock)
    if peer is not None:
        one_pair += best_of(TRIES, peer, measured.peer_iterations, clock)
    end = clock() + OVERTIME * plan.row_seconds
    for count in range(plan.rounds(one_pair)):
        if count >= plan.fewest and count % 2 and clock() > end:
            break
        measured.spins += spin.for_about(SPIN_SHARE * one_pair)
        measured.ours.append(time_loop(ours, measured.ours_iterations, clock) / measured.ours_iterations)
        if peer is not None:
            measured.peer.append(time_loop(peer, measured.peer_iterations, clock) / measured.peer_iterations)
    return measured


def _nothing(rounds: Iterator[None]) -> None:
    for _ in rounds:
        pass
