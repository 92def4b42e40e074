"""Real memory under a byte limit, found again by any address inside it."""

from __future__ import annotations

import threading
from collections import deque
from itertools import pairwise
from operator import index

import numpy as np
from sortedcontainers import SortedList

from lifetimes._typing import ByteView
from lifetimes.errors import BackendError, BusyError, OutOfMemory

__all__ = ["ALIGNMENT", "Memory"]

ALIGNMENT = 256
BYTE = np.dtype(np.uint8)
LARGEST = 2**63 - 1 - ALIGNMENT
"""The largest size that an array of bytes can have beside its alignment."""


class Memory:
    """Blocks of bytes by address; the sum of their sizes never exceeds ``limit`` bytes.

    A block is one NumPy array of bytes and lives as long as it is registered here or a view of it exists, so a view
    that was not given back in time reads stale bytes instead of ending the process.

    Complexity: O(log n) in the number of blocks; `find` O(1) at the start of a block.
    Locks: one, held for table operations only, never while the system is asked for memory.

    Note [Interrupts].  Ctrl-C arrives between two bytecodes of certain kinds: after a call, at a backward jump, on
    entry to a function.  What must happen together (a block leaves the table, its bytes leave the sum) therefore stands
    together with no call in between.

    Note [Re-entry].  The collector or a signal handler may run code on a thread that is inside the lock.  ``free`` then
    takes the block away at once and notes the rest for whoever takes the lock next; ``allocate`` raises `BusyError`;
    `find` needs no lock at the start of a block.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        # Invariant: the sizes of _blocks and _noted, plus what `allocate` has reserved and not yet entered.
        self._used = 0
        self._blocks: dict[int, ByteView] = {}
        self._order = SortedList()  # Invariant: holds every key of _blocks; may hold addresses that are free again.
        self._noted: deque[tuple[int, int]] = deque()  # address and size of blocks freed by re-entry
        self._lock = threading.RLock()
        self._inside = self._lock._is_owned  # type: ignore[attr-defined]  # what threading.Condition asks too

    def allocate(self, nbytes: int) -> int:
        """The address of ``nbytes`` new bytes, a multiple of 256; no page of them has been touched.

        Errors: `OutOfMemory` beyond the limit or when the system refuses; `BackendError` below 1 byte.
        """
        size = index(nbytes)
        if size < 1:
            raise BackendError(f"an allocation needs at least 1 byte, not {size}")
        if self._inside():
            raise BusyError(
                "allocate was called from code that interrupted the host driver inside its own lock on this thread; "
                "do it after the interrupted call has returned"
            )
        reserved = address = 0
        try:
            with self._lock:
                self._free_noted()
                used = self._used
                if size <= self.limit - used and size <= LARGEST:
                    self._used += size  # Note [Interrupts]: no call between these two
                    reserved = size
            if not reserved:
                raise OutOfMemory(
                    f"{size:,} bytes do not fit: {used:,} bytes are in use of a limit of {self.limit:,}; "
                    "free something or open the device with a higher limit"
                )
            try:
                raw = np.empty(size + ALIGNMENT - 1, BYTE)
            except MemoryError as error:
                raise OutOfMemory(
                    f"the system has no {size:,} bytes ({used:,} in use of a limit of {self.limit:,}); "
                    "set a lower limit or close other programs"
                ) from error
            start: int = raw.__array_interface__["data"][0]
            offset = -start % ALIGNMENT
            address = start + offset
            block = raw[offset : offset + size]
            with self._lock:
                self._order.add(address)
                self._blocks[address] = block
            return address
        except BaseException:  # an interrupt too: the caller never learns the address
            with self._lock:
                self._blocks.pop(address, None)
                self._used -= reserved
            raise

    def free(self, address: int) -> None:
        """Forget a block.  Errors: `BackendError` for an address that no block starts at (it may be freed already)."""
        block = self.block(address)  # dropped after the lock: giving 64 MiB back to the system takes milliseconds
        size = len(block)
        if self._inside():
            if self._blocks.pop(address, None) is block:
                self._noted.append((address, size))
            return
        with self._lock:
            self._free_noted()
            if self._blocks.get(address) is not block:
                raise BackendError(f"the block at {_hex(address)} was freed twice")
            del self._blocks[address]  # Note [Interrupts]: no call between these two
            self._used -= size
            self._order.discard(address)

    def _free_noted(self) -> None:
        while self._noted:
            address, size = self._noted[0]
            self._order.discard(address)
            self._used -= size  # Note [Interrupts]: no call between these two
            del self._noted[0]

    def block(self, address: int) -> ByteView:
        """The bytes of the block that starts at ``address``.  Errors: `BackendError` when none does."""
        block = self._blocks.get(address)
        if block is None:
            raise BackendError(f"no block of this device starts at {_hex(address)}; it was freed or is another's")
        return block

    def find(self, address: int, nbytes: int) -> tuple[ByteView, int]:
        """The block that holds all of ``nbytes`` bytes from ``address``, and the offset of ``address`` in it.

        Errors: `BackendError` when no block does.
        """
        block = self._blocks.get(address)
        if block is not None:
            offset = 0
        else:
            block, offset = self._enclosing(address)
        if nbytes > len(block) - offset:
            raise BackendError(
                f"{nbytes:,} bytes from {_hex(address)} run past the end of their block, "
                f"which has {len(block) - offset:,} from there"
            )
        return block, offset

    def _enclosing(self, address: int) -> tuple[ByteView, int]:
        if self._inside():  # the order may be half changed: Note [Re-entry]
            start = max((known for known in list(self._blocks) if known <= address), default=0)
        else:
            with self._lock:
                start = next((a for a in self._order.irange(None, address, reverse=True) if a in self._blocks), 0)
        block = self._blocks.get(start)
        if block is None or address - start >= len(block):
            raise BackendError(f"{_hex(address)} lies in no block of this device; it was freed or is another's")
        return block, address - start

    @property
    def used(self) -> int:
        """Bytes in use."""
        if not self._inside():
            with self._lock:
                self._free_noted()
        return self._used

    @property
    def count(self) -> int:
        """Blocks in use."""
        return len(self._blocks)

    def clear(self) -> None:
        """Forget every block."""
        for address in list(self._blocks):
            self.free(address)

    def check_invariants(self) -> None:
        """Recount; meant for tests, while no other thread allocates."""
        with self._lock:
            self._free_noted()
            blocks = sorted(self._blocks.items())
            used = sum(len(block) for _, block in blocks)
            assert self._used == used, f"{self._used} bytes are booked and the blocks have {used}"
            assert self._used <= self.limit, f"{self._used} bytes are in use of a limit of {self.limit}"
            missing = [address for address, _ in blocks if address not in self._order]
            assert not missing, f"blocks that the order does not know: {missing}"
            for (low, block), (high, _) in pairwise(blocks):
                assert low + len(block) <= high, f"the blocks at {low:#x} and {high:#x} overlap"


def _hex(address: object) -> str:
    return f"{address:#x}" if isinstance(address, int) else repr(address)
