"""The calls of a simulated driver about code: modules, kernels, and Python functions on a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from lifetimes.testing.sim.code import Kernel, Module, compile_source, load_binary
from lifetimes.testing.sim.copies import MemoryCalls
from lifetimes.testing.sim.handles import HandleTable
from lifetimes.testing.sim.memory import Block
from lifetimes.testing.sim.timeline import Command

__all__ = ["CodeCalls"]


class CodeCalls(MemoryCalls):
    """Compile, load, launch; call."""

    target = "python"

    def __init__(self, *args: Any, reuse_handles: bool, **options: Any) -> None:
        super().__init__(*args, reuse_handles=reuse_handles, **options)
        self._modules: HandleTable[Module] = HandleTable("module", 0x3000, reuse=reuse_handles)
        self._kernels: HandleTable[Kernel] = HandleTable("kernel", 0x4000, reuse=reuse_handles)

    def compile(self, source: str) -> bytes:
        """Check Python source.  Errors: `CompileError` with line, log and source."""
        self._enter("compile")
        return compile_source(source)

    def load(self, binary: bytes) -> int:
        """Run a binary's definitions; a module handle.  Errors: `BackendError` if they raise."""
        self._enter("load")
        module = load_binary(binary)
        with self._lock:
            handle = self._modules.add(module)
            self.log.append(("load", handle))
            return handle

    def unload(self, module: int) -> None:
        """Give a module back with its kernels.  A violation: one of them is in flight."""
        self._enter("unload")
        with self._lock:
            code = self._find(self._modules, module)
            if code.pending:
                raise self._violation(f"the module {module:#x} was unloaded with {code.pending} kernels in flight")
            for kernel in code.kernels:
                self._kernels.remove(kernel)
            self._modules.remove(module)
            self.log.append(("unload", module))

    def function(self, module: int, name: str) -> int:
        """A kernel handle, which dies with its module.  Errors: `BackendError` that lists the names there are."""
        self._enter("function")
        with self._lock:
            code = self._find(self._modules, module)
            handle = self._kernels.add(Kernel(name, code))
            code.kernels.add(handle)
            return handle

    def launch(self, function: int, size: Sequence[int], args: Sequence[object], stream: int) -> None:
        """Run the kernel when its turn comes: an address becomes the bytes from there to the end of its block."""
        late = self._enter("launch")
        duration = self._duration("launch", 0)
        with self._lock:
            lane = self._find(self._streams, stream)
            kernel = self._find(self._kernels, function)
            self.log.append(("launch", (kernel.name, tuple(args), stream)))
            blocks: list[Block] = []
            values = [self._argument(arg, blocks) for arg in args]
            reads = [value for value in values if isinstance(value, np.ndarray)]
            effect = partial(kernel, tuple(size), values)
            command = Command("launch", kernel.name, effect, duration=duration, blocks=blocks, reads=reads,
                              error=late, owner=kernel.module)  # fmt: skip
            self._time.enqueue(lane, command)
        self._time.run_instant(lane)

    def _argument(self, value: object, blocks: list[Block]) -> object:
        if not isinstance(value, int) or isinstance(value, bool) or not self._memory.issued(value):
            return value
        block, offset = self._around(value, 0)
        blocks.append(block)
        return block.data[offset:]

    def call(self, function: Callable[..., object], args: Sequence[object], stream: int) -> None:
        """Run ``function(*args)`` when its turn comes; what it raises fails the stream's next event."""
        late = self._enter("call")
        duration = self._duration("call", 0)
        with self._lock:
            lane = self._find(self._streams, stream)
            what = getattr(function, "__name__", repr(function))
            self.log.append(("call", (what, stream)))
            reads = [each for each in args if isinstance(each, np.ndarray)]
            command = Command("call", what, partial(function, *args), duration=duration, reads=reads, error=late)
            self._time.enqueue(lane, command)
        self._time.run_instant(lane)

    @property
    def live_modules(self) -> list[int]:
        """Handles of the modules there are."""
        return list(self._modules.live())
