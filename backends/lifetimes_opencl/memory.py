"""The driver's calls about memory: allocate, free, copy, and memory that somebody else owns."""

from __future__ import annotations

from typing import Any

import numpy as np

from lifetimes._typing import HostArray
from lifetimes.backend import MemoryInfo
from lifetimes.errors import BackendError, LifetimesError, OwnershipError
from lifetimes_opencl.base import DriverBase
from lifetimes_opencl.blocks import (
    Block,
    BufferBlock,
    SvmBlock,
    checked_destination,
    checked_source,
    flat_bytes,
    host_pointer,
)
from lifetimes_opencl.failures import translate
from lifetimes_opencl.runtime import cl, raw
from lifetimes_opencl.streams import OpenCLStream

__all__ = ["MemoryCalls"]


class MemoryCalls(DriverBase):
    """Copies are commands of a queue.  Both sides of one are held until it is done."""

    def allocate(self, nbytes: int) -> int:
        """``nbytes`` bytes that have not been touched, aligned to 256.

        Errors: `OutOfMemory` beyond the device's memory or its largest allocation, and for what the runtime answers to
        that (``out_of_memory_codes``).
        """
        if self._refusal:
            self._refuse()
        block: Block | None = None
        promised = [0]
        try:
            size = self.blocks.reserve(nbytes, promised)
            if self._flags:
                block = SvmBlock.allocate(self.context, size, self._flags)
            else:
                buffer = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, size)
                block = BufferBlock(self.blocks.invent(size), size, buffer)
            self.blocks.insert(block)
            return block.address
        except cl.Error as error:
            self.blocks.unreserve(promised)
            raise self._out_of_memory(error, size) from error
        except BaseException:  # an interrupt: the caller never learns the address
            if block is not None and self.blocks.get(block.address) is block:
                self.blocks.pop(block.address, foreign=False)
            else:
                self.blocks.unreserve(promised)
            raise

    def _out_of_memory(self, error: Any, size: int) -> LifetimesError:
        what = (
            f"allocating {size:,} bytes of {self.memory} memory, {self.blocks.used:,} of {self.blocks.limit:,} in use"
        )
        return translate(error, what, allocating=True)

    def free(self, address: int) -> None:
        """Errors: `BackendError` for an address that no block of ours starts at (it may be freed already)."""
        if self._refusal:
            self._refuse()
        self.blocks.pop(address, foreign=False)

    def memory_info(self) -> MemoryInfo:
        """The device's memory, less what this driver has allocated: OpenCL has no query for what is free."""
        if self._refusal:
            self._refuse()
        return MemoryInfo(self.blocks.limit - self.blocks.used, self.blocks.limit)

    # Copies.

    def copy_in(self, address: int, source: HostArray, stream: Any) -> None:
        """Host to device.  Errors: `BackendError` for an array that is not C-contiguous, and outside of blocks."""
        checked = self._stream(stream)
        nbytes = checked_source(source).nbytes
        if not nbytes:
            return
        block, offset = self.blocks.find(address, nbytes)
        try:
            if block.__class__ is SvmBlock:
                host, owner = host_pointer(source)
                args = (checked.queue, False, block.at(offset), host, None, nbytes)
                checked.enqueue(raw._enqueue_svm_memcpy, args, (host, owner, block))
            else:
                args = (checked.queue, block.buffer, flat_bytes(source), offset, None, False)  # type: ignore[union-attr]
                checked.enqueue(raw._enqueue_write_buffer, args, (source, block))
        except cl.Error as error:
            raise self._error(error, f"copying {nbytes:,} bytes in") from error

    def copy_out(self, destination: HostArray, address: int, stream: Any) -> None:
        """Device to host.  Errors: as `copy_in`; `BackendError` for an array that cannot be written."""
        checked = self._stream(stream)
        nbytes = checked_destination(destination).nbytes
        if not nbytes:
            return
        block, offset = self.blocks.find(address, nbytes)
        try:
            if block.__class__ is SvmBlock:
                host, owner = host_pointer(destination)
                args = (checked.queue, False, host, block.at(offset), None, nbytes)
                checked.enqueue(raw._enqueue_svm_memcpy, args, (host, owner, block))
            else:
                args = (checked.queue, block.buffer, flat_bytes(destination), offset, None, False)  # type: ignore[union-attr]
                checked.enqueue(raw._enqueue_read_buffer, args, (destination, block))
        except cl.Error as error:
            raise self._error(error, f"copying {nbytes:,} bytes out") from error

    def copy(self, destination: int, source: int, nbytes: int, stream: Any) -> None:
        """Device to device.  Errors: `BackendError` for ranges that overlap or lie outside of blocks."""
        checked = self._stream(stream)
        if nbytes < 0:
            raise BackendError(f"copy needs a size of at least 0 bytes, not {nbytes}")
        if not nbytes:
            return
        target, to = self.blocks.find(destination, nbytes)
        origin, start = self.blocks.find(source, nbytes)
        try:
            self._copy(checked, target, to, origin, start, nbytes)
        except cl.Error as error:
            raise self._error(error, f"copying {nbytes:,} bytes on the device") from error

    def _copy(self, stream: OpenCLStream, target: Block, to: int, origin: Block, start: int, nbytes: int) -> None:
        if isinstance(target, SvmBlock) and isinstance(origin, SvmBlock):
            args = (stream.queue, False, target.at(to), origin.at(start), None, nbytes)
            stream.enqueue(raw._enqueue_svm_memcpy, args, (target, origin))
        elif isinstance(target, BufferBlock) and isinstance(origin, BufferBlock):
            arguments = (stream.queue, origin.buffer, target.buffer, nbytes, start, to, None)
            stream.enqueue(raw._enqueue_copy_buffer, arguments, (target, origin))
        else:  # an adopted buffer and shared memory: OpenCL has no such copy, so it goes through the host
            between = np.empty(nbytes, np.uint8)
            self.copy_out(between, origin.address + start, stream)
            self.copy_in(target.address + to, between, stream)

    # Memory that somebody else owns.

    def adopt(self, memory: Any) -> int:
        """An address for a ``pyopencl.Buffer``, ``SVMAllocation`` or ``SVM``; it is held, and never freed here.

        End it with `disown`.  What is copied or launched with it is ordered by this driver's streams only.
        Errors: `OwnershipError` for memory of another context, or that is known here already; `TypeError`.
        """
        if self._refusal:
            self._refuse()
        block: Block
        if isinstance(memory, cl.SVMPointer):
            nbytes = memory.size
            if nbytes is None:
                raise TypeError(f"{memory!r} does not say how large it is")
            address = int(memory.svm_ptr)
            if nbytes < 1:
                raise TypeError(f"{memory!r} has no bytes")
            if self.blocks.overlaps(address, nbytes):
                raise OwnershipError(f"memory at {address:#x} is known to this driver already")
            block = SvmBlock(address, nbytes, memory, foreign=True)
        elif isinstance(memory, cl.MemoryObjectHolder):
            if memory.context != self.context:
                raise OwnershipError(f"{memory!r} belongs to another context than {self!r}")
            if self.blocks.has_buffer(memory):
                raise OwnershipError(f"{memory!r} is known to this driver already")
            block = BufferBlock(self.blocks.invent(memory.size), memory.size, memory, foreign=True)
        else:
            raise TypeError(f"a pyopencl.Buffer, SVMAllocation or SVM can be adopted, not {type(memory).__name__}")
        self.blocks.insert(block)
        return block.address

    def disown(self, address: int) -> None:
        """Forget adopted memory; its owner may have it.  Work that uses it has completed by then."""
        if self._refusal:
            self._refuse()
        self.blocks.pop(address, foreign=True)
