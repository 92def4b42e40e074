"""A driver that counts what it is asked."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from lifetimes.adaptors.base import Adaptor
from lifetimes.backend import Driver

__all__ = ["Counted", "DriverStatistics"]


@dataclass(frozen=True, slots=True)
class DriverStatistics:
    """A snapshot: calls by name (failed ones too), and the bytes that were allocated here."""

    calls: dict[str, int]
    blocks: int
    current_bytes: int
    peak_bytes: int
    total_bytes: int
    unknown_frees: int


class Counted(Adaptor):
    """``upstream``, with its calls and allocations counted from now on.

    A free of something that was not allocated here (before counting began, or elsewhere) is counted as such and
    changes no other number, so none ever falls below zero.
    Locks: one, for the counts.

    >>> from lifetimes.testing.sim import SimDriver
    >>> driver = Counted(SimDriver())
    >>> driver.free(driver.allocate(100))
    >>> statistics = driver.statistics()
    >>> statistics.calls, statistics.current_bytes, statistics.peak_bytes
    ({'allocate': 1, 'free': 1}, 0, 100)
    """

    def __init__(self, upstream: Driver) -> None:
        super().__init__(upstream)
        self._calls: Counter[str] = Counter()
        self._blocks: dict[int, int] = {}
        self._current = 0  # Invariant: the bytes in _blocks
        self._peak = 0
        self._total = 0
        self._unknown = 0
        self._lock = threading.RLock()
        self.wrap_calls(self._counting)

    def _counting(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        calls, lock = self._calls, self._lock

        @wraps(call)
        def counted(*args: Any, **options: Any) -> Any:
            with lock:
                calls[name] += 1
            return call(*args, **options)

        return counted

    def allocate(self, nbytes: int) -> int:
        address = self.upstream.allocate(nbytes)
        with self._lock:
            self._blocks[address] = nbytes
            self._current += nbytes
            self._total += nbytes
            self._peak = max(self._peak, self._current)
        return address

    def free(self, address: int) -> None:
        with self._lock:
            nbytes = self._blocks.pop(address, None)  # before another thread can be given the same address
            if nbytes is None:
                self._unknown += 1
            else:
                self._current -= nbytes
        self.upstream.free(address)

    def statistics(self) -> DriverStatistics:
        """What was counted so far."""
        with self._lock:
            statistics = DriverStatistics(
                dict(self._calls), len(self._blocks), self._current, self._peak, self._total, self._unknown
            )
        return statistics

    def check_invariants(self) -> None:
        """Recount."""
        with self._lock:
            assert self._current == sum(self._blocks.values()), f"{self._current} bytes are booked in {self!r}"
            assert self._current <= self._peak <= self._total, "current, peak, total"


_driver: type[Driver] = Counted
