"""Device memory under a limit: the driver, the pool in front of it, and the table of its addresses.

Note [Truth].  ``blocks`` says what was taken from the driver and not given back.  The table of addresses and the sum of
bytes follow from it; after an interrupt they are made anew.
"""

from __future__ import annotations

from _thread import get_ident
from itertools import pairwise, starmap
from typing import TYPE_CHECKING, Any

from lifetimes import instrument, tables
from lifetimes.cell import next_key
from lifetimes.errors import OutOfMemory, OwnershipError
from lifetimes.failures import warn
from lifetimes.locks import lock
from lifetimes.pool import Block, GiveBack, Pool
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

    def __init__(
        self,
        driver: Driver,
        limit: int,
        address_table: Any,
        *,
        pool_bytes: int | None = None,
        pool_age: float | None = None,
    ) -> None:
        self.driver = driver
        self.limit = limit
        self.soft: int | None = None
        self.pool = Pool(driver, max_bytes=pool_bytes, max_age=pool_age)
        self.blocks: dict[int, Block] = {}  # by key: Note [Truth]
        self.adopted: dict[int, Block] = {}  # memory of others, by address
        # Invariant: holds both.  Changes only when the driver allocates or frees, so that a pool hit never touches it.
        self.addresses: OrderedTable[Block] = tables.make(address_table, ordered=True)
        self.requests: dict[int, tuple[int, int]] = {}  # token -> thread and bytes that the driver is being asked for
        self.reserved = 0  # Invariant: the capacity of all blocks plus the requests
        self.peak = 0
        self.total = 0  # bytes ever taken from the driver

    def capacity_for(self, nbytes: int) -> int:
        """The class of a request, never above the limit."""
        return round_up(nbytes, max(nbytes, min(self.limit, self.driver.max_allocation)))

    def try_take(self, capacity: int, stream: Timeline) -> tuple[Block, str] | None:
        """A block of this class and where it came from: the pool, else the driver, else None.

        Held blocks of other classes are given back to the driver as far as the limit or the driver demands it.
        """
        block = self.pool.find(capacity, stream)
        if block is not None:
            return block, "pool"
        block = self._from_driver(capacity, stream)
        if block is None and self.pool.held_blocks:
            over = self.reserved + capacity - self.limit
            if self.purge(over if over > 0 else capacity):
                block = self._from_driver(capacity, stream)
        return None if block is None else (block, "driver")

    def purge(self, nbytes: int | None = None) -> int:
        """Give idle held blocks back to the driver, largest first, until ``nbytes`` (None: all) are; how many bytes."""
        if not self.pool.held_blocks:
            return 0
        self.pool.settle()
        with lock:
            idle = self.pool.take_out(nbytes)
        self.free(idle)
        return sum(block.capacity for block in idle)

    def free(self, blocks: Iterable[Block]) -> None:
        """Give blocks back to the driver; nothing uses them any more.  What it refuses is a `CleanupWarning`."""
        going = GiveBack(self.driver, blocks)
        freed = going.blocks
        if not freed:
            return
        if instrument.watchers:
            for block in freed:  # before the driver can issue the address again
                last = block.tickets[-1][0].key if block.tickets else 0
                instrument.emit("free", block.key, address=block.address, nbytes=block.capacity, stream=last)
        with lock:
            for block in freed:  # an address leaves the table before it can be issued again
                self.addresses.pop(block.address)
        try:
            going.run()
        finally:
            try:
                self._gone(going)
            finally:  # once more, should an interrupt have struck
                self._gone(going)

    def _gone(self, going: GiveBack) -> None:
        going.run()  # nothing, unless an interrupt struck at its door the first time
        with lock:
            for block in going.blocks:
                if self.blocks.pop(block.key, None) is not None:
                    self.reserved -= block.capacity

    def adopt(self, address: int, nbytes: int, owner: int) -> Block:
        """Under the lock: enter memory of somebody else, for `owner_of`.

        Errors: `OwnershipError` for memory inside, around or across what is here already.
        """
        below = self.addresses.floor(address)
        above = self.addresses.ceiling(address)
        for found in (below, above):
            if found is not None and found[0] < address + nbytes and address < found[0] + found[1].capacity:
                other = found[1]
                raise OwnershipError(
                    f"{nbytes} bytes at {address:#x} cannot be adopted: they overlap {other!r}, which is "
                    + (f"array #{other.owner}'s" if other.owner else "held by the pool")
                    + " here; a block has one owner"
                )
        block = Block(address, nbytes)
        block.owner = owner
        self.adopted[address] = block
        self.addresses.insert(address, block)
        return block

    def forget(self, block: Block) -> None:
        """Under the lock: adopted memory is somebody else's alone again."""
        if self.adopted.pop(block.address, None) is block:
            self.addresses.pop(block.address)

    def owner_of(self, address: int) -> tuple[Block, int] | None:
        """The block that ``address`` lies in, and the offset.  Complexity: one floor query.  Under the lock."""
        found = self.addresses.floor(address)
        if found is None:
            return None
        base, block = found
        offset = address - base
        return (block, offset) if offset < block.capacity else None

    def _from_driver(self, capacity: int, stream: Timeline) -> Block | None:
        if self.reserved + capacity > self.limit:
            return None
        token = next_key()
        address: list[int] = []
        stale: Block | None = None
        try:
            with lock:
                if self.reserved + capacity > self.limit:
                    return None
                self.requests[token] = (get_ident(), capacity)
                self.reserved += capacity
                if self.reserved > self.peak:
                    self.peak = self.reserved
            # One C call from the driver's answer to our list: an interrupt cannot lose the memory in between.
            address.extend(starmap(self.driver.allocate, ((capacity,),)))
            block = Block(address[0], capacity)
            block.owner = ~get_ident()
            with lock:
                self.blocks[block.key] = block
                del self.requests[token]
                self.total += capacity
                self.pool.misses += 1
                stale = self._enter(block)
        except OutOfMemory:
            return None
        finally:
            if token in self.requests:
                self._withdraw(token, address)
        if stale is not None:
            warn(f"{stale!r} was adopted and freed by its owner without a release; the driver has given it out anew")
        if instrument.watchers:
            instrument.emit("allocate", block.key, address=block.address, nbytes=capacity, stream=stream.key)
        return block

    def _enter(self, block: Block) -> Block | None:
        """Into the table of addresses.  Adopted memory that the driver gives out again has been freed by its owner."""
        below = self.addresses.floor(block.address + block.capacity - 1)
        stale = below[1] if below is not None and below[0] + below[1].capacity > block.address else None
        if stale is None or self.adopted.get(stale.address) is not stale:
            stale = None
        else:
            self.forget(stale)
        self.addresses.insert(block.address, block)
        return stale

    def _withdraw(self, token: int, address: list[int]) -> None:
        """The request came to nothing: give back what the driver may have given, and the bytes."""
        try:
            if address:
                self.driver.free(address[0])
        finally:
            with lock:
                _, capacity = self.requests.pop(token)
                self.reserved -= capacity

    def repair(self, held: Iterable[Block]) -> list[Block]:
        """Under the lock, after an interrupt on this thread: make everything that follows from the truth anew.

        ``held`` are the blocks that arrays have.  Returns the blocks that nobody has any more: they belong into the pool.
        """
        me = get_ident()
        for token, (thread, _) in list(self.requests.items()):
            if thread == me:
                del self.requests[token]
        taken = {block.key for block in held}
        self.pool.keep_only(frozenset(self.blocks) - taken)
        pooled = {block.key for block in self.pool.blocks()}
        self.addresses.clear()
        for block in (*self.blocks.values(), *self.adopted.values()):
            self.addresses.insert(block.address, block)
        self.reserved = self.counted()
        self.peak = max(self.peak, self.reserved)
        # One that another thread has in hand is neither taken nor pooled, and nobody's business.
        return [
            block
            for block in self.blocks.values()
            if block.key not in taken and block.key not in pooled and (block.owner >= 0 or block.owner == ~me)
        ]

    def counted(self) -> int:
        """Under the lock: the reserved bytes, counted."""
        blocks = sum(block.capacity for block in self.blocks.values())
        return blocks + sum(capacity for _, capacity in self.requests.values())

    def check_invariants(self) -> None:
        """Recount the blocks; nothing is being allocated meanwhile."""
        self.pool.check_invariants()
        with lock:
            assert not self.requests, f"requests that are never served: {self.requests}"
            assert self.counted() == self.reserved, (
                f"reserved {self.reserved} bytes, but the blocks have {self.counted()}"
            )
            assert self.reserved <= self.limit, f"{self.reserved} bytes are over the limit of {self.limit}"
            assert self.reserved <= self.peak, f"{self.reserved} bytes are over the peak of {self.peak}"
            known = self.addresses.snapshot()
            both = {block.address: block for block in (*self.blocks.values(), *self.adopted.values())}
            assert dict(known) == both, f"the table of addresses has {known}, there are {both}"
            for (low, block), (high, _) in pairwise(known):
                assert low + block.capacity <= high, f"blocks overlap at {low:#x} and {high:#x}"
