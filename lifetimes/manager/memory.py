"""Device memory under a limit: the driver, the pool in front of it, and the table of its addresses."""

from __future__ import annotations

from itertools import starmap
from typing import TYPE_CHECKING, Any

from lifetimes import tables
from lifetimes.errors import OutOfMemory
from lifetimes.locks import lock
from lifetimes.pool import Block, Pool
from lifetimes.size_classes import round_up

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lifetimes.backend import Driver
    from lifetimes.tables.protocol import OrderedTable
    from lifetimes.timeline import Timeline

__all__ = ["DeviceMemory"]


class DeviceMemory:
    """Blocks from the pool or the driver, never more than ``limit`` bytes of capacity in all.

    Bytes are reserved under the lock before the driver is called, so two threads cannot overshoot together.  Locks: the
    library's, for the counts; the driver is called without it.
    """

    def __init__(self, driver: Driver, limit: int, address_table: Any) -> None:
        self.driver = driver
        self.limit = limit
        self.pool = Pool(driver)
        # Changes only when the driver allocates or frees, so that a pool hit never touches it.
        self.addresses: OrderedTable[Block] = tables.make(address_table, ordered=True)
        self.reserved = 0  # Invariant: the capacity of all blocks plus the requests the driver is working on
        self.peak = 0
        self.drivers = 0  # allocations the driver was asked for

    def capacity_for(self, nbytes: int) -> int:
        """The class of a request, never above the limit."""
        return round_up(nbytes, min(self.limit, self.driver.max_allocation))

    def try_take(self, capacity: int, stream: Timeline) -> Block | None:
        """A block of this class from the pool, else from the driver, else None.

        Held blocks of other classes are given back to the driver as far as the limit demands it.
        """
        block = self.pool.find(capacity, stream)
        if block is not None:
            return block
        block = self._from_driver(capacity)
        if block is not None:
            return block
        if self.reserved + capacity <= self.limit or not self.pool.held_blocks:
            return None
        self.pool.settle()
        with lock:
            over = self.reserved + capacity - self.limit
            idle = self.pool.purge(over) if over > 0 else []
        if over > 0 and not idle:
            return None
        self.free(idle)
        return self._from_driver(capacity)

    def purge(self) -> bool:
        """Give every idle held block back to the driver; whether there was one."""
        self.pool.settle()
        with lock:
            idle = self.pool.purge()
        self.free(idle)
        return bool(idle)

    def free(self, blocks: Iterable[Block]) -> None:
        """Give blocks back to the driver; nothing uses them any more."""
        for block in blocks:
            with lock:  # an address leaves the table before it can be issued again
                self.addresses.pop(block.address)
            try:
                self.driver.free(block.address)
            finally:
                with lock:
                    self.reserved -= block.capacity

    def owner_of(self, address: int) -> tuple[Block, int] | None:
        """The block that ``address`` lies in, and the offset.  Complexity: one floor query.  Under the lock."""
        found = self.addresses.floor(address)
        if found is None:
            return None
        base, block = found
        offset = address - base
        return (block, offset) if offset < block.capacity else None

    def _from_driver(self, capacity: int) -> Block | None:
        with lock:
            if self.reserved + capacity > self.limit:
                return None
            self.reserved += capacity
            self.peak = max(self.peak, self.reserved)
        address: list[int] = []
        block: Block | None = None
        try:
            # One C call from the driver's answer to our list: an interrupt cannot lose the memory in between.
            address.extend(starmap(self.driver.allocate, ((capacity,),)))
            block = Block(address[0], capacity)
            with lock:
                self.addresses.insert(block.address, block)
                self.drivers += 1
        except OutOfMemory:
            self._unreserve(capacity)
            return None
        except BaseException:
            if address and (block is None or self.addresses.get(block.address) is not block):
                self.driver.free(address[0])
                self._unreserve(capacity)
            elif block is not None:
                self.free([block])
            else:
                self._unreserve(capacity)
            raise
        return block

    def _unreserve(self, capacity: int) -> None:
        with lock:
            self.reserved -= capacity

    def check_invariants(self) -> None:
        """Recount the blocks; nothing is being allocated meanwhile."""
        self.pool.check_invariants()
        with lock:
            blocks = self.addresses.snapshot()
            counted = sum(block.capacity for _, block in blocks)
            assert counted == self.reserved, f"reserved {self.reserved} bytes, but the blocks have {counted}"
            assert self.reserved <= self.limit, f"{self.reserved} bytes are over the limit of {self.limit}"
            for (low, block), (high, _) in zip(blocks, blocks[1:], strict=False):
                assert low + block.capacity <= high, f"blocks overlap at {low:#x} and {high:#x}"
