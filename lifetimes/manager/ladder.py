"""The allocation ladder: what is tried, in which order, before device memory is called exhausted.

pool -> driver -> drain the reaper -> purge the pool -> evict -> wait for copy-backs -> wait for work in flight -> ask the
reclaim hooks -> collect garbage -> `OutOfMemory`.  After each step that changed something the pool is asked first, then the
driver.  Every step either uses something up or says that it changed nothing, so the ladder ends.
"""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, Final

from lifetimes import reaper
from lifetimes.locks import lock
from lifetimes.manager.eviction import TRIES
from lifetimes.manager.shortage import Shortage

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifetimes.manager.core import Manager
    from lifetimes.pool import Block
    from lifetimes.timeline import Timeline

__all__ = ["Ladder"]

PASSES: Final = 4
"""How often the whole ladder is climbed again although nothing but other threads and hooks changed anything."""
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
            "hooks": self._ask_hooks,
            "collect": self._collect,
        }

    def allocate(self, nbytes: int, stream: Timeline, *, rungs: tuple[str, ...] | None = None) -> Block:
        """A block for ``nbytes`` >= 1 that ``stream`` may use.  Errors: `Shortage`; what a driver raises beside that.

        ``rungs`` restricts what is tried after the pool and the driver.
        """
        manager = self.manager
        memory = manager.memory
        capacity = memory.capacity_for(nbytes)
        manager.evictor.settle()
        found = memory.try_take(capacity, stream)
        tried = ["pool", "driver"]
        if found is not None:
            return self._count(found[1], found[0])
        steps = self.rungs if rungs is None else {rung: self.rungs[rung] for rung in rungs}
        begun = manager.evictor.failed
        passes = PASSES
        while passes:
            passes -= 1
            used_up, promised, failed = False, False, manager.evictor.failed
            for rung, step in steps.items():
                if rung not in tried:
                    tried.append(rung)
                # Bounded for the case that other threads undo each step at once.
                for _ in range(len(manager.table) + len(manager.evictor.copybacks) + 64):
                    if rung == "evict" and manager.evictor.failed - begun >= (TRIES if passes else 1):
                        step = self._evict_without_copies
                    if not step(capacity):
                        break
                    found = memory.try_take(capacity, stream)
                    if found is not None:
                        return self._count(rung, found[0])
                    if rung in ("hooks", "collect"):
                        promised = True
                        break
                    used_up = True
            if used_up and manager.evictor.failed == failed:
                passes = max(passes, 1)  # as long as something can be used up, there is something to gain
            if not promised and not self._hope():
                break
        raise Shortage(nbytes, capacity, tried)

    def _hope(self) -> bool:
        """Whether another climb could help: not when all that is left is pinned."""
        manager = self.manager
        with lock:
            hope = bool(len(manager.policy) or manager.evictor.copybacks or manager.memory.pool.held_blocks)
        return hope

    def _count(self, rung: str, block: Block) -> Block:
        manager = self.manager
        with lock:
            rungs = manager.counters.rungs
            rungs[rung] = rungs.get(rung, 0) + 1
        return block

    def _drain(self, capacity: int) -> bool:
        before = self.manager.memory.pool.held_bytes
        reaper.safepoint()
        self.manager.run_late()
        return self.manager.memory.pool.held_bytes > before

    def _purge(self, capacity: int) -> bool:
        return self.manager.memory.purge() > 0

    def _evict_without_copies(self, capacity: int) -> bool:
        return self._evict(capacity, copying=False)

    def _evict(self, capacity: int, copying: bool = True) -> bool:
        """Until free bytes plus bytes on their way cover the request; then one at a time, if the driver is the one short."""
        manager = self.manager
        if manager.evictor.settle():
            return True
        with lock:
            memory = manager.memory
            coming = manager.evictor.in_flight() + memory.pool.held_bytes
            short = capacity - (memory.limit - memory.reserved) - coming
        if short <= 0 and not coming:
            short = 1
        return short > 0 and manager.evictor.evict_some(short, copying=copying)

    def _wait_for_copyback(self, capacity: int) -> bool:
        return self.manager.evictor.wait_oldest()

    def _wait_for_work(self, capacity: int) -> bool:
        return self.wait_for_work()

    def wait_for_work(self) -> bool:
        """Wait for the work that used the oldest held block in flight; False when there is none."""
        pool = self.manager.memory.pool
        pool.settle()
        with lock:
            flying = pool.in_flight()
        if not flying:
            return False
        for timeline, sequence in flying[0].tickets:
            timeline.wait(sequence)
        return True

    def _ask_hooks(self, capacity: int) -> bool:
        return self.manager.reclaimer.ask("hooks")

    def _collect(self, capacity: int) -> bool:
        if not self.manager.collect_garbage:
            return False
        elapsed = time.monotonic() - self._started
        if self._collecting > COLLECT_SHARE * elapsed:
            return False
        start = time.perf_counter()
        manager = self.manager
        before = (manager.memory.pool.held_bytes, len(manager.pinned))
        gc.collect()
        reaper.safepoint()
        manager.run_late()
        self._collecting += time.perf_counter() - start
        return (manager.memory.pool.held_bytes, len(manager.pinned)) != before
