"""Timing for `lifetimes bench`: short rounds, and the median of many, so that a neighbour's work spoils few of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from statistics import median
from time import perf_counter
from typing import Final, TypeAlias

__all__ = ["Figure", "Loop", "measure"]

Loop: TypeAlias = Callable[[Iterator[None]], object]
"""What is measured: ``def loop(rounds): for _ in rounds: <the operation>``."""

ROUND: Final = 0.002
"""Seconds that one round should take at least."""
FEWEST: Final = 5


@dataclass(frozen=True, slots=True)
class Figure:
    """One line: how long one operation takes, in seconds, and the bytes it moves, if that is what it is for."""

    part: str
    subject: str
    operation: str
    seconds: float
    nbytes: int = 0

    @property
    def rate(self) -> float:
        """Bytes a second; 0 where nothing is moved."""
        return self.nbytes / self.seconds if self.nbytes else 0.0


def measure(loop: Loop, seconds: float, *, clock: Callable[[], float] = perf_counter) -> float:
    """Seconds for one operation: the median over rounds that take about ``seconds`` together.

    >>> measure(lambda rounds: [None for _ in rounds], 0.01) < 1e-4
    True
    """
    iterations = 1
    while (took := _time(loop, iterations, clock)) < ROUND:
        iterations *= 2 if took > ROUND / 10 else 8
    rounds = max(FEWEST, int(seconds / took))
    return median(_time(loop, iterations, clock) for _ in range(rounds)) / iterations


def _time(loop: Loop, iterations: int, clock: Callable[[], float]) -> float:
    rounds = repeat(None, iterations)
    began = clock()
    loop(rounds)
    return clock() - began
