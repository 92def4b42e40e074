"""The calls of a simulated driver about memory."""

from __future__ import annotations

from functools import partial

import numpy as np

from lifetimes._typing import ByteView, HostArray
from lifetimes.backend import MemoryInfo
from lifetimes.errors import OutOfMemory
from lifetimes.testing.sim.memory import Block
from lifetimes.testing.sim.order import OrderCalls
from lifetimes.testing.sim.timeline import Command

__all__ = ["MemoryCalls"]


class MemoryCalls(OrderCalls):
    """Allocation, copies that take time, and views of device memory."""

    def allocate(self, nbytes: int) -> int:
        """A poisoned block.  Errors: `OutOfMemory` with the request, the bytes in use and the total."""
        self._enter("allocate")
        if nbytes < 1:
            raise self._violation(f"an allocation needs at least 1 byte, not {nbytes}")
        with self._lock:
            block = self._memory.allocate(nbytes)
            if block is not None:
                self.log.append(("allocate", (block.address, nbytes)))
                return block.address
            used, total = self._memory.used, self._memory.total
        raise OutOfMemory(f"{nbytes:,} bytes do not fit: {used:,} of {total:,} bytes are in use")

    def free(self, address: int) -> None:
        """Poison a block and take it back.  A violation: not the start of a live block, or commands in flight use it."""
        self._enter("free")
        with self._lock:
            block = self._block(address)
            if block.pending:
                raise self._violation(f"the block at {address:#x} was freed with {block.pending} commands in flight")
            self._memory.free(block)
            self.log.append(("free", address))

    def memory_info(self) -> MemoryInfo:
        """Free and total bytes, exact."""
        self._enter("memory_info")
        return MemoryInfo(self._memory.total - self._memory.used, self._memory.total)

    def view(self, address: int, nbytes: int) -> ByteView:
        """The bytes as they are now, poison included; after a `free` the view shows poison, or the next owner's bytes."""
        self._enter("view")
        with self._lock:
            self.log.append(("view", (address, nbytes)))
            block, offset = self._around(address, nbytes)
            return block.data[offset : offset + nbytes]

    def copy_in(self, address: int, source: HostArray, stream: int) -> None:
        """Enqueue a copy that reads ``source`` when it completes."""
        late = self._enter("copy_in")
        data = self._flat(source, "copy_in")
        self._copy("copy_in", (address, data.nbytes, stream), (address, None), (None, data), data.nbytes, stream, late)

    def copy_out(self, destination: HostArray, address: int, stream: int) -> None:
        """Enqueue a copy that reads device memory when it completes."""
        late = self._enter("copy_out")
        data = self._flat(destination, "copy_out")
        if not data.flags.writeable:
            raise self._violation("copy_out was given an array that is not writable")
        self._copy("copy_out", (address, data.nbytes, stream), (None, data), (address, None), data.nbytes, stream, late)

    def copy(self, destination: int, source: int, nbytes: int, stream: int) -> None:
        """Enqueue a copy on the device.  A violation: ranges that overlap."""
        late = self._enter("copy")
        self._copy(
            "copy", (destination, source, nbytes, stream), (destination, None), (source, None), nbytes, stream, late
        )

    def _flat(self, array: HostArray, kind: str) -> ByteView:
        if not array.flags.c_contiguous:
            raise self._violation(f"{kind} was given an array that is not C-contiguous")
        flat: ByteView = array.ravel().view(np.uint8) if array.nbytes else np.empty(0, np.uint8)
        if not array.nbytes and not array.flags.writeable:
            flat.flags.writeable = False
        return flat

    def _copy(
        self,
        kind: str,
        detail: object,
        destination: tuple[int | None, ByteView | None],
        source: tuple[int | None, ByteView | None],
        nbytes: int,
        stream: int,
        late: BaseException | None,
    ) -> None:
        duration = self._duration(kind, nbytes)
        with self._lock:
            lane = self._find(self._streams, stream)
            self.log.append((kind, detail))
            if nbytes < 0:
                raise self._violation(f"{kind} of {nbytes} bytes")
            if nbytes == 0:
                return
            blocks: list[Block] = []
            into = self._side(destination, nbytes, blocks)
            data = self._side(source, nbytes, blocks)
            if kind == "copy" and np.may_share_memory(into, data):
                raise self._violation(f"copy with overlapping ranges: {detail}")
            effect = partial(np.copyto, into, data)
            command = Command(
                kind, detail, effect, duration=duration, blocks=blocks, reads=(data,), targets=(into,), error=late
            )
            self._time.enqueue(lane, command)
        self._time.run_instant(lane)

    def _side(self, side: tuple[int | None, ByteView | None], nbytes: int, blocks: list[Block]) -> ByteView:
        address, array = side
        if array is not None:
            return array
        assert address is not None, "a side of a copy is an address or an array"
        block, offset = self._around(address, nbytes)
        blocks.append(block)
        return block.data[offset : offset + nbytes]
