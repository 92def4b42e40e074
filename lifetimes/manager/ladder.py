"""The allocation ladder: what is tried, in which order, before device memory is called exhausted.

pool -> driver -> drain the reaper -> purge the pool -> evict -> wait for copy-backs -> wait for work in flight ->
collect garbage -> `OutOfMemory`.  After each step that changed something the pool is asked first, then the driver.
Every step either uses something up or says that it changed nothing, so the ladder ends.
"""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, Final

from lifetimes import reaper
from lifetimes.locks import lock
from lifetimes.manager.shortage import out_of_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifetimes.manager.core import Manager
    from lifetimes.pool import Block
    from lifetimes.timeline import Timeline

__all__ = ["Ladder"]

PASSES: Final = 4
"""How often the whole ladder is climbed while other threads take what was freed for us."""
COLLECT_SHARE: Final = 0.05
"""Collecting garbage may cost this share of the time since the manager was made (the first time is free)."""


class Ladder:
    """Obtains blocks for one manager."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self._started = time.monotonic()
        self._collecting = 0.0  # seconds spent in gc.collect
        # Rung -> step; a step is told the capacity and says whether it changed anything.
        self.rungs: dict[str, Callable[[int], bool]] = {
            "drain": self._drain,
            "purge": self._purge,
            "evict": self._evict,
            "copy-back": self._wait_for_copyback,
            "in-flight": self._wait_for_work,
            "collect": self._collect,
        }

    def allocate(self, nbytes: int, stream: Timeline) -> Block:
        """A block for ``nbytes`` >= 1 that ``stream`` may use.  Errors: `OutOfMemory`, with who holds what."""
        manager = self.manager
        memory = manager.memory
        capacity = memory.capacity_for(nbytes)
        manager.evictor.settle()
        found = memory.pool.hits
        block = memory.try_take(capacity, stream)
        if block is not None:
            self._count("pool" if memory.pool.hits > found else "driver")
            return block
        tried = ["pool", "driver"]
        for _ in range(PASSES):
            progress = False
            for rung, step in self.rungs.items():
                if rung not in tried:
                    tried.append(rung)
                while step(capacity):
                    progress = True
                    block = memory.try_take(capacity, stream)
                    if block is not None:
                        self._count(rung)
                        return block
            if not progress:
                break
        raise out_of_memory(manager, nbytes, capacity, tried)

    def _count(self, rung: str) -> None:
        with lock:
            rungs = self.manager.counters.rungs
            rungs[rung] = rungs.get(rung, 0) + 1

    def _drain(self, capacity: int) -> bool:
        before = self.manager.memory.pool.held_bytes
        reaper.safepoint()
        return self.manager.memory.pool.held_bytes > before

    def _purge(self, capacity: int) -> bool:
        return self.manager.memory.purge()

    def _evict(self, capacity: int) -> bool:
        manager = self.manager
        manager.evictor.settle()
        with lock:
            memory = manager.memory
            coming = manager.evictor.in_flight()
            short = capacity - (memory.limit - memory.reserved) - coming
        if short <= 0 and not coming:
            short = 1  # the limit has room, but the driver has not: one victim at a time
        return short > 0 and manager.evictor.evict_some(short)

    def _wait_for_copyback(self, capacity: int) -> bool:
        return self.manager.evictor.wait_oldest()

    def _wait_for_work(self, capacity: int) -> bool:
        pool = self.manager.memory.pool
        pool.settle()
        with lock:
            flying = pool.in_flight()
        if not flying:
            return False
        for timeline, sequence in flying[0].tickets:
            timeline.wait(sequence)
        return True

    def _collect(self, capacity: int) -> bool:
        if not self.manager.collect_garbage:
            return False
        elapsed = time.monotonic() - self._started
        if self._collecting > COLLECT_SHARE * elapsed:
            return False
        start = time.perf_counter()
        before = self.manager.memory.pool.held_bytes
        gc.collect()
        reaper.safepoint()
        self._collecting += time.perf_counter() - start
        return self.manager.memory.pool.held_bytes > before
