"""Which block an address lies in, and how many bytes are in use."""

from __future__ import annotations

import threading
from bisect import bisect_right
from itertools import pairwise
from operator import index
from typing import Any, Final

from lifetimes.errors import BackendError, OutOfMemory
from lifetimes_opencl.blocks import ALIGNMENT, Block, BufferBlock, SvmBlock

__all__ = ["Blocks"]

FIRST_INVENTED: Final = 1 << 56
"""Addresses of buffers begin here: above every address that a processor of today can have."""


class Blocks:
    """Blocks by address; the sum of the sizes of our own never exceeds ``limit`` bytes.

    Complexity: O(1), and for an address inside a block O(log n), or O(n) for the first one after an allocation.
    Locks: one, around a few statements without a call.  So neither a signal handler nor the collector can run inside and
    come back, and an interrupt finds a block with all that is booked for it, or without any.

    Note [Order].  The sorted addresses are a list that is never changed, only replaced, and that may be out of date.
    Blocks do not overlap, so a block that is found in it and holds the address is the right one; if none is found, a fresh
    list decides.
    """

    def __init__(self, limit: int, largest: int) -> None:
        self.limit = limit
        self.largest = largest
        self.used = 0  # Invariant: the sizes of our own blocks, plus what `reserve` has promised
        self._next = FIRST_INVENTED
        self._blocks: dict[int, Block] = {}
        self.pointers: dict[int, Any] = {}  # what kernels are given for the start of a block
        self._order: list[int] = []
        self._lock = threading.Lock()

    def reserve(self, nbytes: int, promised: list[int]) -> int:
        """Promise the bytes of an allocation.  Returns the size as an int.

        ``promised`` is a list with one 0, where the size is put in the same step: it tells a caller who is interrupted
        what there is to take back.
        Errors: `OutOfMemory` beyond the largest allocation or the limit, `BackendError` below 1 byte.
        """
        size = index(nbytes)
        if size < 1:
            raise BackendError(f"an allocation needs at least 1 byte, not {size}")
        if size > self.largest:
            raise OutOfMemory(f"{size:,} bytes are more than the device's largest allocation, {self.largest:,}")
        with self._lock:
            used = self.used
            fits = size <= self.limit - used
            if fits:
                self.used = used + size
                promised[0] = size
        if not fits:
            raise OutOfMemory(
                f"{size:,} bytes do not fit: {used:,} bytes are in use of the {self.limit:,} that the device has; "
                "free something first"
            )
        return size

    def unreserve(self, promised: list[int]) -> None:
        """Take a promise back."""
        with self._lock:
            self.used -= promised[0]
            promised[0] = 0

    def invent(self, nbytes: int) -> int:
        """An address for a buffer, never used before, with a gap behind the buffer."""
        with self._lock:
            address = self._next
            self._next = address + (nbytes // ALIGNMENT + 2) * ALIGNMENT
        return address

    def insert(self, block: Block) -> None:
        """Make a block known.  Its bytes have been reserved, unless it is somebody else's."""
        address, pointer = block.address, block.pointer if isinstance(block, SvmBlock) else block.buffer
        with self._lock:
            self._blocks[address] = block
            self.pointers[address] = pointer

    def pop(self, address: int, *, foreign: bool) -> Block:
        """Forget the block that starts at ``address``; its memory lives on while somebody holds the block.

        Errors: `BackendError` for an address that no block starts at, and for mixing up our own and adopted ones.
        """
        block = self._blocks.get(address)
        if block is None:
            raise BackendError(f"no block of this device starts at {in_hex(address)}; it was freed or is another's")
        if block.foreign is not foreign:
            raise BackendError(
                f"the memory at {in_hex(address)} belongs to somebody else; disown() it instead"
                if block.foreign
                else f"the memory at {in_hex(address)} was allocated here; free() it instead"
            )
        start, nbytes = block.address, 0 if foreign else block.nbytes
        with self._lock:
            ours = start in self._blocks and self._blocks[start] is block  # or another thread has freed it meanwhile
            if ours:
                del self._blocks[start], self.pointers[start]
                self.used -= nbytes
        if not ours:
            raise BackendError(f"the block at {in_hex(address)} was freed twice")
        return block

    def get(self, address: object) -> Block | None:
        """The block that starts at ``address``, or None."""
        return self._blocks.get(address)  # type: ignore[call-overload, no-any-return]

    def find(self, address: int, nbytes: int) -> tuple[Block, int]:
        """The block that holds all of ``nbytes`` bytes from ``address``, and the offset of ``address`` in it.

        Errors: `BackendError` when none does.
        """
        block = self._blocks.get(address)
        offset = 0
        if block is None:
            block = self.enclosing(address)
            if block is None:
                raise BackendError(f"{in_hex(address)} lies in no block of this device; it was freed or is another's")
            offset = address - block.address
        if nbytes > block.nbytes - offset:
            raise BackendError(
                f"{nbytes:,} bytes from {in_hex(address)} run past the end of their block, "
                f"which has {block.nbytes - offset:,} from there"
            )
        return block, offset

    def enclosing(self, address: int) -> Block | None:
        """The block that ``address`` lies in, or None.  Note [Order]."""
        for order in (self._order, None):
            if order is None:
                self._order = order = sorted(self._blocks)
            place = bisect_right(order, address)
            block = self._blocks.get(order[place - 1]) if place else None
            if block is not None and block.address <= address < block.address + block.nbytes:
                return block
        return None

    def overlaps(self, address: int, nbytes: int) -> bool:
        """Whether a block has a byte among ``nbytes`` from ``address``.  Complexity: O(n)."""
        blocks = list(self._blocks.values())
        return any(block.address < address + nbytes and address < block.address + block.nbytes for block in blocks)

    def has_buffer(self, buffer: Any) -> bool:
        """Whether a block is this buffer.  Complexity: O(n)."""
        return any(isinstance(block, BufferBlock) and block.buffer == buffer for block in list(self._blocks.values()))

    def clear(self) -> list[Block]:
        """Forget every block and return them."""
        blocks = list(self._blocks.values())
        self._blocks.clear()
        self.pointers.clear()
        with self._lock:
            self.used = 0
        return blocks

    def check_invariants(self) -> None:
        """Recount; meant for tests, while no other thread allocates."""
        blocks = sorted(self._blocks.values(), key=lambda block: block.address)
        used = sum(block.nbytes for block in blocks if not block.foreign)
        assert self.used == used, f"{self.used} bytes are booked and the blocks have {used}"
        assert self.used <= self.limit, f"{self.used} bytes are in use of {self.limit}"
        for low, high in pairwise(blocks):
            assert low.address + low.nbytes <= high.address, f"{low.address:#x} and {high.address:#x} overlap"


def in_hex(address: object) -> str:
    """For messages."""
    return f"{address:#x}" if isinstance(address, int) else repr(address)
