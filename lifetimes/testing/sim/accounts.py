"""What a simulated driver knows about its caller: every call, every fault, every rule that was broken."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TypeVar

from lifetimes.errors import BackendError, ClosedError
from lifetimes.testing.faults import FaultPlan
from lifetimes.testing.sim.handles import HandleTable
from lifetimes.testing.sim.memory import Block, SimMemory

__all__ = ["Accounts"]

T = TypeVar("T")


class Accounts:
    """Counts, log and violations; the base of the driver.

    Locks: one RLock over the whole state, so that a finalizer run by the collector inside a call does not wait for
    itself.  Planned actions, latencies and the functions of commands run without it.
    """

    def __init__(self, total: int, faults: FaultPlan | None, *, reuse_addresses: bool) -> None:
        self._lock = threading.RLock()
        self._closed = False
        self._memory = SimMemory(total, reuse=reuse_addresses)
        self.faults = faults if faults is not None else FaultPlan()
        """What is planned to go wrong; add to it at any time."""
        self.counts: Counter[str] = Counter()
        """Calls by kind, those included that failed."""
        self.log: list[tuple[str, object]] = []
        """What happened, in order: ("copy_in", (address, nbytes, stream)) at a call, ("copy_in done", ...) at the
        completion of its work, ("fault", kind) where a planned fault struck."""
        self.violations: list[str] = []
        """Rules of the driver protocol that the caller has broken, a sentence each.  A right caller leaves it empty."""

    def _enter(self, kind: str) -> BaseException | None:
        """Begin a call: count it and let planned faults strike; the result is the one for the work's completion."""
        if self._closed:
            raise ClosedError(f"{kind} was called on a simulated driver that is closed")
        self._demand_context(kind)
        with self._lock:
            self.counts[kind] += 1
        try:
            late = self.faults.call(kind)
        except BaseException:
            with self._lock:
                self.log.append(("fault", kind))
            raise
        if self._closed:  # a planned action may have closed it
            raise ClosedError(f"{kind} was called on a simulated driver that is closed")
        return late

    def _demand_context(self, kind: str) -> None:
        """Overridden by the driver with contexts."""

    def _violation(self, sentence: str) -> BackendError:
        """Record a broken rule; the result is to be raised."""
        with self._lock:
            self.violations.append(sentence)
        return BackendError(sentence)

    def _find(self, table: HandleTable[T], handle: object) -> T:
        found = table.get(handle)
        if found is None:
            raise self._violation(f"{handle!r} is no live {table.what}: it was destroyed or never created")
        return found

    def _block(self, address: int) -> Block:
        """The block that starts at ``address``."""
        block = self._memory.at(address)
        if block is None:
            why = "was freed already" if self._memory.was_freed(address) else "was never allocated"
            raise self._violation(f"the address {address:#x} {why}")
        return block

    def _around(self, address: int, nbytes: int) -> tuple[Block, int]:
        """The block that holds ``nbytes`` bytes from ``address``, and the offset in it."""
        block = self._memory.around(address)
        if block is None:
            raise self._violation(f"the address {address:#x} lies in no live block")
        offset = address - block.address
        if offset + nbytes > block.nbytes:
            raise self._violation(
                f"{nbytes} bytes from {address:#x} run past the end of their block, which has {block.nbytes - offset}"
            )
        return block, offset

    @property
    def live_blocks(self) -> dict[int, int]:
        """Address -> bytes of what is allocated."""
        with self._lock:
            return {block.address: block.nbytes for block in self._memory.blocks()}

    @property
    def in_use(self) -> int:
        """Bytes allocated."""
        return self._memory.used

    def calls(self, kind: str) -> list[object]:
        """The details of every logged call of one kind, in order."""
        return [detail for name, detail in self.log if name == kind]
