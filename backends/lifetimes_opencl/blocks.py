"""Blocks of device memory: shared virtual memory, which has real addresses, and buffers, which have none.

A block is held by what uses it: a copy on its way, and with shared memory every view of it.  Giving it back means to
forget it, and the runtime frees the memory when the last of them has gone.

Note [No queue].  Shared memory is allocated without a queue.  Bound to one, PoCL 3.0 frees it as a command of that queue
and corrupts its heap.  The free is then an ordinary call, which must not come while work uses the memory.

Note [Fine and coarse].  The host may look into fine-grained memory whenever no work is on it; coarse-grained memory must
be mapped first, and PoCL's maps leak.  So devices that are processors and offer fine-grained memory are given that.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

from lifetimes._typing import ByteView, HostArray
from lifetimes.errors import BackendError
from lifetimes_opencl.runtime import cl

__all__ = ["ALIGNMENT", "Block", "BufferBlock", "SvmBlock", "host_pointer"]

ALIGNMENT: Final = 256
SVM_ALIGNMENT: Final = 128
"""The most that the standard lets one ask for: the size of its largest type."""
BYTE: Final = np.dtype(np.uint8)


class _Memory:
    """What NumPy makes an array of: ``nbytes`` at ``address``, and the owner that the array keeps alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        self.__array_interface__ = {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": (address, False)}
        self.owner = owner


class SvmBlock:
    """Shared virtual memory.  ``pointer`` is what the runtime's calls take for its start, made once."""

    __slots__ = ("address", "array", "foreign", "nbytes", "pointer")

    def __init__(self, address: int, nbytes: int, owner: object, *, foreign: bool = False) -> None:
        self.address = address
        self.nbytes = nbytes
        self.foreign = foreign
        self.array: ByteView = np.asarray(_Memory(address, nbytes, owner))
        self.pointer = cl.SVM(self.array)

    @classmethod
    def allocate(cls, context: Any, nbytes: int, flags: int) -> SvmBlock:
        """Errors: ``pyopencl.Error``."""
        raw_nbytes = nbytes + ALIGNMENT - SVM_ALIGNMENT
        allocation = cl.SVMAllocation(context, raw_nbytes, SVM_ALIGNMENT, flags)  # Note [No queue]
        return cls(allocation.svm_ptr + -allocation.svm_ptr % ALIGNMENT, nbytes, allocation)

    def at(self, offset: int) -> Any:
        """What the runtime's calls take for an address inside."""
        return self.pointer if not offset else cl.SVM(self.array[offset:])


class BufferBlock:
    """A buffer under an address that only this back end understands (see `Blocks.invent`)."""

    __slots__ = ("address", "buffer", "foreign", "nbytes")

    def __init__(self, address: int, nbytes: int, buffer: Any, *, foreign: bool = False) -> None:
        self.address = address
        self.nbytes = nbytes
        self.buffer = buffer
        self.foreign = foreign


Block: TypeAlias = SvmBlock | BufferBlock

_EVERYTHING: Final[ByteView] = np.asarray(_Memory(1, 2**62, None))
"""The address space from 1 on.  A slice is an array at an address, in a tenth of the time that making one takes."""


def host_pointer(array: HostArray) -> tuple[Any, object]:
    """What a copy of shared memory takes for a C-contiguous host array, and what must live as long.

    PyOpenCL wants arrays to be writable and their type to be one that buffers know, also where it only reads.
    """
    try:
        return cl.SVM(array), None
    except (ValueError, BufferError):
        flat = array.reshape(-1).view(BYTE)
    if flat.flags.writeable:
        return cl.SVM(flat), None
    start = flat.__array_interface__["data"][0] - 1
    return cl.SVM(_EVERYTHING[start : start + flat.nbytes]), flat


def flat_bytes(array: HostArray) -> ByteView:
    """A C-contiguous host array as its bytes, for buffers."""
    return array if array.dtype is BYTE and array.ndim == 1 else array.reshape(-1).view(BYTE)


def checked_source(source: HostArray) -> HostArray:
    """Errors: `BackendError` for an array that is not C-contiguous."""
    if not source.flags.c_contiguous:
        raise BackendError("copy_in needs a C-contiguous array; np.ascontiguousarray makes one")
    return source


def checked_destination(destination: HostArray) -> HostArray:
    """Errors: `BackendError` for an array that is not C-contiguous or not writable."""
    flags = destination.flags
    if not flags.c_contiguous or not flags.writeable:
        raise BackendError("copy_out needs a C-contiguous and writable array; np.empty makes one")
    return destination
