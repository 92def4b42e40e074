"""Bounded memory with real bytes at simulated addresses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from sortedcontainers import SortedDict

from lifetimes._typing import ByteView

__all__ = ["ALIGNMENT", "FREED", "IN_FLIGHT", "Block", "SimMemory", "poison"]

ALIGNMENT = 256
FREED = 0xDD
"""What memory shows that belongs to nobody, and new memory until it is written."""
IN_FLIGHT = 0xCD
"""What the destination of a copy shows until the copy has completed."""

BASE = 0x5A_0000_0000_0000
GUARD = 4096
"""Addresses left out between two blocks, so that running past one does not land in the next."""


class Block:
    """One allocation.  ``pending`` counts the commands in flight that use it."""

    __slots__ = ("address", "data", "pending")

    def __init__(self, address: int, data: ByteView) -> None:
        self.address = address
        self.data = data
        self.pending = 0

    @property
    def nbytes(self) -> int:
        """Its size."""
        return len(self.data)


def poison(arrays: Iterable[ByteView], pattern: int) -> None:
    """Fill arrays with a pattern that no test writes."""
    for array in arrays:
        array[...] = pattern


class SimMemory:
    """Blocks by simulated address; the sum of their sizes never exceeds ``total``.

    Freed memory is poisoned and, with ``reuse``, the range freed last is given out first to the next request of the
    same size (rounded up to 256), bytes and address: a stale address or view then shows another block's content.

    Complexity: O(log n) in the number of blocks.  Locks: none; the driver's covers it.
    """

    def __init__(self, total: int, *, reuse: bool = True) -> None:
        self.total = total
        self.used = 0  # Invariant: sum of nbytes over _blocks
        self._reuse = reuse
        self._next = BASE
        self._blocks: SortedDict = SortedDict()  # address -> Block
        self._freed: defaultdict[int, list[tuple[int, ByteView]]] = defaultdict(list)  # by capacity, last freed last
        self._kept = 0  # bytes kept for reuse, bounded by total
        self._past: set[int] = set()  # addresses that were freed and not given out again

    def allocate(self, nbytes: int) -> Block | None:
        """A block, None when it does not fit."""
        if nbytes > self.total - self.used:
            return None
        capacity = -(-nbytes // ALIGNMENT) * ALIGNMENT
        if self._freed[capacity]:
            address, data = self._freed[capacity].pop()
            self._kept -= capacity
        else:
            address, data = self._next, np.full(capacity, FREED, np.uint8)
            self._next += -(-(capacity + GUARD) // GUARD) * GUARD
        block = Block(address, data[:nbytes])
        self._past.discard(address)
        self._blocks[address] = block
        self.used += nbytes
        return block

    def free(self, block: Block) -> None:
        """Take a block back and poison it."""
        del self._blocks[block.address]
        self.used -= block.nbytes
        self._past.add(block.address)
        base = block.data.base
        data: ByteView = block.data if base is None else base
        poison((data,), FREED)
        if self._reuse:
            if self._kept + len(data) > self.total:
                self._freed.clear()
                self._kept = 0
            self._freed[len(data)].append((block.address, data))
            self._kept += len(data)

    def at(self, address: object) -> Block | None:
        """The block that starts at ``address``."""
        block: Block | None = self._blocks.get(address)
        return block

    def around(self, address: int) -> Block | None:
        """The block that ``address`` lies in."""
        start = next(self._blocks.irange(None, address, reverse=True), None)
        if start is None:
            return None
        block: Block = self._blocks[start]
        return block if address < start + block.nbytes else None

    def issued(self, address: int) -> bool:
        """Whether ``address`` lies in the part of the address space that has been given out at some time."""
        return BASE <= address < self._next

    def was_freed(self, address: object) -> bool:
        """Whether a block started at ``address`` once and none does now."""
        return address in self._past

    def blocks(self) -> list[Block]:
        """All blocks, by address."""
        return list(self._blocks.values())

    def clear(self) -> None:
        """Take every block back."""
        for block in self.blocks():
            self.free(block)

    def check_invariants(self) -> None:
        """Recount."""
        blocks = self.blocks()
        used = sum(block.nbytes for block in blocks)
        assert self.used == used, f"{self.used} bytes are booked and the blocks have {used}"
        assert self.used <= self.total, f"{self.used} bytes are in use of {self.total}"
        for block in blocks:
            assert block.address % ALIGNMENT == 0, f"the block at {block.address:#x} is not aligned"
            assert block.pending >= 0, f"the block at {block.address:#x} has {block.pending} commands in flight"
        for low, high in pairwise(blocks):
            assert low.address + low.nbytes <= high.address, f"{low.address:#x} and {high.address:#x} overlap"
        kept = [address for ranges in self._freed.values() for address, _ in ranges]
        assert not set(kept) & set(self._blocks), f"addresses that are free and live: {set(kept) & set(self._blocks)}"
        assert len(set(kept)) == len(kept), f"an address is free twice: {kept}"
        held = sum(len(data) for ranges in self._freed.values() for _, data in ranges)
        assert held <= self.total, f"{held} bytes are kept for reuse of {self.total}"
        assert self._kept == held, f"{self._kept} bytes are booked for reuse and {held} are there"
