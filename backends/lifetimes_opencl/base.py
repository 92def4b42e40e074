"""What the calls of a driver share: the context and device, the refusal after the end, and streams by handle."""

from __future__ import annotations

import os
from typing import Any, Final, NoReturn

from lifetimes.errors import BackendError, ClosedError, OwnershipError
from lifetimes_opencl.blocks import ALIGNMENT, SVM_ALIGNMENT
from lifetimes_opencl.failures import OUT_OF_MEMORY, translate
from lifetimes_opencl.runtime import cl
from lifetimes_opencl.streams import DESTROYED, Borrowed, Mark, OpenCLEvent, OpenCLStream
from lifetimes_opencl.table import Blocks

__all__ = ["DriverBase"]

COARSE: Final = 1
FINE: Final = 2
MEMORY_FLAGS: Final = {"fine": 1 | 1 << 10, "coarse": 1}
"""READ_WRITE, and SVM_FINE_GRAIN_BUFFER: the numbers are the standard's."""


class DriverBase:
    """The state of a driver.

    ``memory`` says which kind it allocates: ``fine`` or ``coarse`` shared virtual memory, or ``buffers``.
    """

    name = "opencl"
    out_of_memory_codes: frozenset[object] = OUT_OF_MEMORY

    def __init__(self, device: Any, context: Any, memory: str, limit: int | None) -> None:
        self.device = device
        self.context = context
        self.memory = memory
        total = int(device.global_mem_size)
        largest = int(device.max_mem_alloc_size)
        if memory != "buffers":
            largest -= ALIGNMENT - SVM_ALIGNMENT  # what it takes to align a block
        total = total if limit is None else min(limit, total)
        self.max_allocation = min(largest, total)
        self.local_memory = int(device.local_mem_size)
        self.buffer_alignment = max(1, int(device.mem_base_addr_align) // 8)
        self.blocks = Blocks(total, self.max_allocation)
        self.shared_virtual_memory = memory != "buffers"  # whether addresses are the runtime's own
        self._flags = MEMORY_FLAGS.get(memory, 0)
        self._refusal = ""  # not empty: why every call is refused
        self._process = os.getpid()
        self._streams: set[OpenCLStream] = set()
        self._borrowed = Borrowed()

    def _refuse(self) -> NoReturn:
        raise ClosedError(f"this OpenCL driver {self._refusal}; open the device again for a new one")

    def _stream(self, handle: Any) -> OpenCLStream:
        """The stream of a handle, or of somebody else's in-order queue.

        Errors: `BackendError` for what is neither, or was destroyed; `OwnershipError` for a queue of another context.
        """
        if self._refusal:
            self._refuse()
        if handle.__class__ is OpenCLStream:
            if handle.queue is None:
                raise BackendError(f"{handle!r} was destroyed")
            stream: OpenCLStream = handle
            return stream
        if isinstance(handle, cl.CommandQueue):
            return self._borrow(handle)
        raise BackendError(f"{handle!r} is no stream of the OpenCL back end, nor a pyopencl.CommandQueue")

    def check_stream(self, handle: Any) -> None:
        """Errors: those that every call raises for a handle that is no stream of this driver."""
        self._stream(handle)

    def _borrow(self, queue: Any) -> OpenCLStream:
        known = self._borrowed.find(queue)
        if known is not None:
            return known
        if queue.context != self.context:
            raise OwnershipError(f"{queue!r} belongs to another context than {self!r}")
        if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
            raise BackendError(f"{queue!r} is out of order; a stream is a queue that keeps its order")
        for stream in self._borrowed.streams():
            self._borrowed.forget(stream)
        return self._borrowed.add(queue)

    def _mark(self, event: Any) -> Mark | None:
        """The mark of an event handle.  Errors: `BackendError` for what is no live event."""
        if self._refusal:
            self._refuse()
        if event.__class__ is not OpenCLEvent:
            raise BackendError(f"{event!r} is no event of the OpenCL back end")
        mark: Mark | None = event.mark
        if mark is DESTROYED:
            raise BackendError(f"{event!r} was used after it was destroyed")
        return mark

    def _error(self, error: Any, what: str) -> Exception:
        return translate(error, f"{what} on {self.device.name.strip()!r}")
