"""Many lives of each thing, in a process of their own: ``python -m tests.opencl.cycles KIND_OF_MEMORY CYCLES``.

Prints one JSON object: for each thing by how many bytes the process grew, and the runtime's reference counts before and
after.  In a process that has run other tests, the memory that those gave back would hide a leak.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import lifetimes
from lifetimes_opencl import adopt, backend
from tests.opencl.here import pocls

SOURCE = "__kernel void add(__global int *x, int n) { x[get_global_id(0)] += n; }"
STATM = Path("/proc/self/statm")
SLOW = ("modules", "drivers", "devices")
"""These take a tenth of the cycles."""


class Cycles:
    """Each public method is one life of something."""

    def __init__(self, memory: str) -> None:
        self.index = pocls()[0]
        self.driver: Any = backend.open(self.index, memory=memory)
        self.stream = self.driver.create_stream()
        self.binary = self.driver.compile(SOURCE)
        self.module = self.driver.load(self.binary)
        self.function = self.driver.function(self.module, "add")
        self.address, self.host = self.driver.allocate(4096), np.zeros(1024, np.uint8)
        self.event = self.driver.create_event()
        self.kept: list[Any] = []

    def streams(self) -> None:
        stream = self.driver.create_stream()
        self.driver.copy_in(self.address, self.host, stream)
        self.driver.destroy_stream(stream)

    def events(self) -> None:
        event = self.driver.create_event()
        self.driver.record(event, self.stream)
        self.driver.wait(event)
        self.driver.destroy_event(event)

    def events_recorded_again(self) -> None:
        self.driver.record(self.event, self.stream)
        self.driver.wait(self.event)

    def waits_between_streams(self) -> None:
        other, event = self.driver.create_stream(), self.driver.create_event()
        self.driver.record(event, self.stream)
        self.driver.stream_wait(other, event)
        self.driver.destroy_event(event)
        self.driver.destroy_stream(other)

    def blocks(self) -> None:
        block = self.driver.allocate(65_536)
        self.driver.copy_in(block, self.host, self.stream)
        self.driver.synchronize(self.stream)
        self.driver.free(block)

    def copies(self) -> None:
        self.driver.copy_in(self.address, self.host, self.stream)
        self.driver.copy_out(self.host, self.address, self.stream)
        self.driver.synchronize(self.stream)

    def launches(self) -> None:
        self.driver.launch(self.function, (64,), (self.address, 1), self.stream)
        self.driver.launch(self.function, (64,), (self.address + 128, 1), self.stream)
        self.driver.synchronize(self.stream)

    def functions(self) -> None:
        if self.driver.memory == "fine":
            self.driver.call(int, (), self.stream)
            self.driver.synchronize(self.stream)

    def modules(self) -> None:
        module = self.driver.load(self.binary)
        self.driver.launch(self.driver.function(module, "add"), (64,), (self.address, 1), self.stream)
        self.driver.synchronize(self.stream)
        self.driver.unload(module)

    def drivers(self) -> None:
        for driver in (backend.open(self.index, memory=self.driver.memory), adopt(self.driver.context)):
            driver.copy_in(driver.allocate(4096), self.host, driver.create_stream())
            driver.close()

    def devices(self) -> None:
        """With arrays that are evicted, kernels, and a queue of somebody else."""
        from lifetimes_opencl.runtime import cl

        queue = cl.CommandQueue(self.driver.context)
        with lifetimes.open(adopt(self.driver.context, memory=self.driver.memory), memory_limit="64KiB") as device:
            kernel = device.compile(SOURCE)["add"] if not self.kept else None
            arrays = [device.asarray(np.arange(4096, dtype=np.int32)) for _ in range(6)]
            borrowed = device.borrow_stream(queue)
            for array in arrays:
                with device.use(read=[array], write=[array], stream=borrowed):
                    pass
            if kernel is not None:
                self.kept.append(None)
                kernel.launch(arrays[0], 1, size=4096, modes="u", stream=device.create_stream())
            assert arrays[-1].numpy()[-1] == 4095
        deadline = time.monotonic() + 20
        while queue.reference_count > 1:  # PoCL's thread lets go a moment after the last command has completed
            queue.finish()
            assert time.monotonic() < deadline, f"the queue is still referred to {queue.reference_count} times"

    def planted(self) -> None:
        """A leak, to show that it is seen."""
        self.kept.append(self.driver.allocate(16_384))
        self.driver.copy_in(self.kept[-1], np.ones(16_384, np.uint8), self.stream)
        self.driver.synchronize(self.stream)

    # Measuring.

    def settle(self) -> None:
        self.driver.synchronize(self.stream)
        gc.collect()

    def references(self) -> list[int]:
        """The runtime's own counts: of the context, and of what is reused all the time."""
        block = self.driver.blocks.get(self.address)
        buffer = [block.buffer.reference_count] if hasattr(block, "buffer") else []
        return [self.driver.context.reference_count, self.stream.queue.reference_count, *buffer]

    def grow(self, cycle: Callable[[], object], count: int) -> dict[str, Any]:
        for _ in range(count):  # the first ones fill caches
            cycle()
        self.settle()
        before, references = resident(), self.references()
        for _ in range(count):
            cycle()
        self.settle()
        return {"bytes": resident() - before, "before": references, "after": self.references(), "cycles": count}


def resident() -> int:
    """The process's memory in bytes."""
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


THINGS = tuple(name for name, value in vars(Cycles).items() if callable(value) and name[0] != "_")
THINGS = THINGS[: THINGS.index("planted") + 1]


if __name__ == "__main__":
    run, number = Cycles(sys.argv[1]), int(sys.argv[2])
    found = {name: run.grow(getattr(run, name), max(20, number // 10) if name in SLOW else number) for name in THINGS}
    print(json.dumps(found))
