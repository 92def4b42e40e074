"""The arguments of one launch, from addresses and numbers to what the runtime's kernels take.

Note [Inside a buffer].  With shared memory an address inside a block is simply an address.  Inside a buffer it needs a
sub-buffer, whose start must be aligned to what the device demands (128 bytes with PoCL, more elsewhere).  Anything else
goes through a copy of the rest of the buffer, put back after the kernel unless the parameter is const.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lifetimes.errors import BackendError
from lifetimes_opencl.blocks import Block, BufferBlock, SvmBlock
from lifetimes_opencl.parameters import LOCAL, POINTER, Parameter, pack_unknown
from lifetimes_opencl.runtime import cl, raw

if TYPE_CHECKING:
    from lifetimes_opencl.programs import OpenCLKernel
    from lifetimes_opencl.streams import OpenCLStream
    from lifetimes_opencl.table import Blocks

__all__ = ["Arguments"]


class Arguments:
    """``objects`` and ``packed`` are lists of index and value, one after the other.

    Errors: `BackendError` for a wrong number or kind of arguments.
    """

    __slots__ = ("_blocks", "_function", "_local_memory", "_placed", "misplaced", "objects", "packed")

    def __init__(self, blocks: Blocks, local_memory: int, function: OpenCLKernel, args: Sequence[Any]) -> None:
        self._blocks = blocks
        self._local_memory = local_memory  # bytes that the device has
        self._function = function
        self._placed: list[Block] = []  # where the pointers point to, but for starts of shared memory
        self.objects: list[Any] = []
        self.packed: list[Any] = []
        self.misplaced: list[Misplaced] = []
        parameters = function.parameters
        if parameters is None:
            for index, value in enumerate(args):
                self._unknown(index, value)
            return
        if len(args) != len(parameters):
            names = ", ".join(f"{each.type} {each.name}" for each in parameters)
            raise BackendError(f"{function.name}({names}) takes {len(parameters)} arguments, not {len(args)}")
        for index, parameter in enumerate(parameters):
            value = args[index]
            if parameter.kind is POINTER or parameter.kind == POINTER:
                block = blocks.get(value)
                if block.__class__ is SvmBlock:
                    self.objects += (index, block.pointer)
                else:
                    self._pointer(index, value, parameter)
            elif parameter.kind == LOCAL:
                self.objects += (index, self._local(value, parameter) if isinstance(value, int) else value)
            else:
                packed = parameter.pack(value)
                if packed.__class__ is bytes:
                    self.packed += (index, packed)
                else:
                    self.objects += (index, packed)

    def _pointer(self, index: int, value: Any, parameter: Parameter) -> None:
        if isinstance(value, (cl.MemoryObjectHolder, cl.SVMPointer, cl.LocalMemory)) or value is None:
            self.objects += (index, value)
            return
        try:
            address = value.__index__()
        except AttributeError:
            raise BackendError(
                f"the parameter {parameter.name!r} of {self._function.name!r} is a pointer and takes a device address, "
                f"not {value!r}"
            ) from None
        if not address:
            self.objects += (index, None)
            return
        block, offset = self._blocks.find(address, 0)
        self._place(index, block, offset, parameter.const)

    def _local(self, nbytes: int, parameter: Parameter) -> Any:
        """PoCL takes any size, and ends the process."""
        if not 1 <= nbytes <= self._local_memory:
            raise BackendError(
                f"the parameter {parameter.name!r} of {self._function.name!r} takes a size of local memory in bytes; the "
                f"device has {self._local_memory:,}, so it cannot be {nbytes:,}"
            )
        return cl.LocalMemory(nbytes)

    def _unknown(self, index: int, value: Any) -> None:
        """An argument for a parameter about which nothing is known."""
        if isinstance(value, int) and not isinstance(value, bool):
            block = self._blocks.enclosing(value) if value else None
            if block is not None:
                self._place(index, block, value - block.address, False)
                return
        self.objects += (index, pack_unknown(value, index))

    def _place(self, index: int, block: Block, offset: int, const: bool) -> None:
        self._placed.append(block)
        if isinstance(block, SvmBlock):
            self.objects += (index, block.at(offset))
        elif not offset:
            self.objects += (index, block.buffer)
        else:
            self.misplaced.append(Misplaced(index, block, offset, const))

    def realign(self, context: Any, alignment: int, stream: OpenCLStream) -> None:
        """Find sub-buffers or copies for the addresses inside buffers.  Note [Inside a buffer]."""
        for each in self.misplaced:
            if each.offset % alignment == 0:
                each.part = each.block.buffer.get_sub_region(each.offset, each.block.nbytes - each.offset)
                each.const = True  # nothing to put back
            elif not each.const and self._placed.count(each.block) > 1:
                raise BackendError(
                    f"two arguments of {self._function.name!r} lie in one buffer, one of them at the offset {each.offset}, "
                    f"which this device cannot pass as it is; it must be a multiple of {alignment}"
                )
            else:
                each.copy_here(context, stream)
            self.objects += (each.index, each.part)

    def put_back(self, stream: OpenCLStream) -> None:
        """After the launch: what kernels wrote to copies goes to where it belongs."""
        for each in self.misplaced:
            each.put_back(stream)


class Misplaced:
    """An argument inside a buffer: ``part`` is what the kernel is given for it."""

    __slots__ = ("block", "const", "index", "offset", "part")

    def __init__(self, index: int, block: BufferBlock, offset: int, const: bool) -> None:
        self.index = index
        self.block = block
        self.offset = offset
        self.const = const
        self.part: Any = None

    def copy_here(self, context: Any, stream: OpenCLStream) -> None:
        """Let the part be a copy of the rest of the buffer."""
        nbytes = self.block.nbytes - self.offset
        self.part = cl.Buffer(context, cl.mem_flags.READ_WRITE, nbytes)
        args = (stream.queue, self.block.buffer, self.part, nbytes, self.offset, 0, None)
        stream.enqueue(raw._enqueue_copy_buffer, args, (self.block, self.part))

    def put_back(self, stream: OpenCLStream) -> None:
        """Copy the part back, where the kernel may have changed it."""
        if self.const:
            return
        nbytes = self.block.nbytes - self.offset
        args = (stream.queue, self.part, self.block.buffer, nbytes, 0, self.offset, None)
        stream.enqueue(raw._enqueue_copy_buffer, args, (self.block, self.part))
