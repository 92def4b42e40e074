"""A driver with less memory."""

from __future__ import annotations

import threading

from lifetimes.adaptors.base import Adaptor
from lifetimes.backend import Driver, MemoryInfo
from lifetimes.errors import OutOfMemory
from lifetimes.sizes import parse_size

__all__ = ["Limited"]


class Limited(Adaptor):
    """``upstream`` with at most ``limit`` bytes (or ``"64MiB"``) allocated through here at a time.

    What was allocated elsewhere does not count, and freeing it here changes no count.
    Locks: one, for the counts; upstream is called without it.

    >>> from lifetimes.testing.sim import SimDriver
    >>> driver = Limited(SimDriver(4096), 1000)
    >>> address = driver.allocate(600)
    >>> driver.allocate(600)
    Traceback (most recent call last):
    lifetimes.errors.OutOfMemory: 600 bytes do not fit: 600 bytes of a limit of 1000 are in use
    >>> driver.free(address)
    >>> driver.memory_info()
    MemoryInfo(free=1000, total=1000)
    """

    def __init__(self, upstream: Driver, limit: int | str) -> None:
        super().__init__(upstream)
        self.limit = parse_size(limit, "limit")
        self.max_allocation = min(self.limit, upstream.max_allocation)
        self.used = 0  # Invariant: the bytes in _blocks, and those that upstream is being asked for
        self._blocks: dict[int, int] = {}
        self._lock = threading.RLock()

    def allocate(self, nbytes: int) -> int:
        with self._lock:
            used = self.used
            if nbytes > self.limit - used:
                raise OutOfMemory(f"{nbytes} bytes do not fit: {used} bytes of a limit of {self.limit} are in use")
            self.used += nbytes
        try:
            address = self.upstream.allocate(nbytes)
        except BaseException:
            with self._lock:
                self.used -= nbytes
            raise
        with self._lock:
            self._blocks[address] = nbytes
        return address

    def free(self, address: int) -> None:
        with self._lock:
            nbytes = self._blocks.pop(address, 0)  # before another thread can be given the same address
        try:
            self.upstream.free(address)
        finally:
            with self._lock:
                self.used -= nbytes

    def memory_info(self) -> MemoryInfo:
        info = self.upstream.memory_info()
        free = self.limit - self.used
        if info is None:
            return MemoryInfo(free, self.limit)
        return MemoryInfo(min(free, info.free), min(self.limit, info.total))

    def check_invariants(self) -> None:
        """Recount; nothing is being allocated meanwhile."""
        with self._lock:
            assert self.used == sum(self._blocks.values()), f"{self.used} bytes are booked in {self!r}"
            assert 0 <= self.used <= self.limit, f"{self.used} bytes of {self.limit}"


_driver: type[Driver] = Limited
