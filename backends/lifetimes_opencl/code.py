"""The driver's calls about code: compile, load, launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lifetimes.errors import BackendError
from lifetimes_opencl.arguments import Arguments
from lifetimes_opencl.base import DriverBase
from lifetimes_opencl.programs import OpenCLKernel, OpenCLModule, compile_source, load_binary
from lifetimes_opencl.runtime import cl, raw
from lifetimes_opencl.streams import OpenCLStream

__all__ = ["CodeCalls"]


class CodeCalls(DriverBase):
    """Programs in OpenCL C."""

    target = "opencl"

    def compile(self, source: str, options: str = "") -> bytes:
        """A loadable binary; ``options`` go to the compiler.  Errors: `CompileError` with the line, source and log."""
        if self._refusal:
            self._refuse()
        return compile_source(self.context, self.device, source, options)

    def load(self, binary: bytes) -> OpenCLModule:
        """A module from what `compile` gave, or from a bare binary of the same runtime.  Errors: `BackendError`."""
        if self._refusal:
            self._refuse()
        return load_binary(self.context, self.device, binary)

    def unload(self, module: OpenCLModule) -> None:
        """Its kernels cannot be launched any more.  Twice is fine."""
        if self._refusal:
            self._refuse()
        module.unload()

    def function(self, module: OpenCLModule, name: str) -> OpenCLKernel:
        """The kernel of that name.  Errors: `BackendError` that lists the names there are."""
        if self._refusal:
            self._refuse()
        kernel = module.kernels.get(name)
        if kernel is None:
            known = ", ".join(sorted(module.kernels)) or "none at all"
            raise BackendError(f"the module has no kernel {name!r}; it has {known}")
        return kernel

    def launch(self, function: OpenCLKernel, size: Sequence[int], args: Sequence[object], stream: Any) -> None:
        """Enqueue a kernel over ``size`` items (one to three dimensions; nothing is done for none).

        Pointers are addresses (0 is NULL), also inside blocks; scalars are converted to the type that the program declares,
        and local memory is given by its size in bytes.
        Errors: `BackendError` for arguments that do not fit, by name.
        """
        checked = self._stream(stream)
        plan = function.plan
        try:
            kernel = function.take()
            try:
                used = None
                if plan is not None and len(args) == plan.count:
                    used = plan.fill(kernel, self.blocks.pointers, args)
                if used is None:
                    self._launch_the_long_way(function, kernel, size, args, checked)
                elif 0 not in size:
                    enqueued = (checked.queue, kernel, size, None, None, None, False, False)
                    checked.enqueue(raw.enqueue_nd_range_kernel, enqueued, used)
            finally:
                function.spare.append(kernel)
        except cl.Error as error:
            raise self._error(error, f"launching {function.name!r} over {tuple(size)} items") from error

    def _launch_the_long_way(
        self, function: OpenCLKernel, kernel: Any, size: Sequence[int], args: Sequence[object], stream: OpenCLStream
    ) -> None:
        arguments = Arguments(self.blocks, self.local_memory, function, args)
        if 0 in size:
            return
        if arguments.misplaced:
            arguments.realign(self.context, self.buffer_alignment, stream)
        kernel._set_arg_multi(tuple(arguments.objects))
        kernel._set_arg_buf_multi(tuple(arguments.packed))
        enqueued = (stream.queue, kernel, size, None, None, None, False, False)
        stream.enqueue(raw.enqueue_nd_range_kernel, enqueued, (arguments.objects, arguments.misplaced))
        arguments.put_back(stream)
