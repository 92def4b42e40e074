"""A pytest plugin: arrays of PyOpenCL take their memory from us, unless a test says otherwise.

``pytest -p tests.opencl.peer_plugin test_array.py`` runs PyOpenCL's own tests on it.  For each context there is a device of
ours over it, under a small memory limit, with arrays of its own that together are larger than that: they are used in turn
whenever PyOpenCL asks for memory, so that something has to be evicted all the time, and they must be unharmed in the
end.  ``PEER_LOG`` names a file for the log of allocations, ``PEER_OUTCOMES`` one for the outcomes as JSON, and
``PEER_WITHOUT`` leaves our part out.
"""

from __future__ import annotations

import csv
import gc
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lifetimes
from lifetimes import instrument
from lifetimes.interop.pyopencl import Allocator
from lifetimes_opencl import adopt
from lifetimes_opencl.runtime import cl

SMALL = 8 << 20
"""Requests up to this many bytes go to one device, larger ones to another: most tests are small, and a few need much."""
LIMITS = {True: 48 << 20, False: 512 << 20}
BALLAST = 16

outcomes: dict[str, str] = {}


class Log:
    """Allocations and frees in the columns of RMM's log."""

    COLUMNS = ("Thread", "Time", "Action", "Pointer", "Size", "Stream")

    def __init__(self, path: str) -> None:
        self.start = time.monotonic()
        self.file = Path(path).open("w", newline="")  # noqa: SIM115 (open as long as the run)
        self.writer = csv.writer(self.file, lineterminator="\n")
        self.writer.writerow(self.COLUMNS)
        self.threads: dict[int, int] = {}
        self.living: dict[int, tuple[int, int, int]] = {}  # by the key of the lifetime
        instrument.subscribe(self.hear)

    def allocated(self, key: int, pointer: int, nbytes: int, stream: int) -> None:
        self.living[key] = (pointer, nbytes, stream)
        self.write("allocate", pointer, nbytes, stream)

    def hear(self, event: str, key: int, details: Any) -> None:
        if event == "release" and key in self.living:
            self.write("free", *self.living.pop(key))

    def write(self, action: str, pointer: int, nbytes: int, stream: int) -> None:
        thread = self.threads.setdefault(threading.get_ident(), len(self.threads) + 1)
        passed = int((time.monotonic() - self.start) * 1e6)
        minutes, micros = divmod(passed, 60_000_000)
        clock = f"{minutes // 60:02}:{minutes % 60:02}:{micros // 1_000_000:02}:{micros % 1_000_000:06}"
        self.writer.writerow((thread, clock, action, f"{pointer:#x}", nbytes, stream))


class Pressed:
    """An allocator over a device of ours, with arrays in the way that must be evicted for it."""

    def __init__(self, queue: Any, small: bool, number: int, log: Log | None) -> None:
        self.device = lifetimes.open(adopt(queue), memory_limit=LIMITS[small])
        self.allocator = Allocator(self.device, queue)
        self.number = number
        self.log = log
        self.ballast = [
            self.device.asarray(np.full(LIMITS[small] * 4 // 3 // BALLAST, each, np.uint8)) for each in range(BALLAST)
        ]
        self.turn = 0
        self.calls = 0

    def __call__(self, nbytes: int) -> Any:
        array = self.ballast[self.turn]
        self.turn = (self.turn + 1) % BALLAST
        try:
            with self.device.use(read=[array], write=[array] if self.turn % 2 else []):
                pass
        except lifetimes.errors.OutOfMemory:  # PyOpenCL's arrays fill the device, and may
            pass
        memory = self.allocator(nbytes)
        self.calls += 1
        if self.log is not None and memory is not None:
            self.log.allocated(memory.lifetime.key, memory.address, nbytes, self.number)
        return memory

    def end(self) -> None:
        """Errors: AssertionError when an array of ours was harmed."""
        for number, array in enumerate(self.ballast):
            assert (array.numpy() == number).all(), f"the content of an evicted array changed: {number}"
        evictions = self.device.statistics().evictions
        assert evictions or self.calls < BALLAST, "nothing was evicted: there was no pressure"
        self.device.manager.check_invariants()
        self.ballast.clear()
        self.device.close()


class OurAllocator:
    """Puts itself in the place of the allocator that `Array` takes when it is given none."""

    def __init__(self) -> None:
        import pyopencl.array

        self.allocators: dict[tuple[int, bool], Pressed] = {}
        self.made = 0
        self.calls = 0
        path = os.environ.get("PEER_LOG")
        self.log = Log(path) if path else None
        self.original: Callable[..., None] = pyopencl.array.Array.__init__
        original, ours = self.original, self

        def init(
            self: Any, cq: Any, shape: Any, dtype: Any, order: str = "C", allocator: Any = None, data: Any = None,
            *args: Any, **kwargs: Any,
        ) -> None:  # fmt: skip
            # A queue that is out of order cannot say when memory may be used again; PyOpenCL's own pools refuse it, too.
            if allocator is None and data is None and isinstance(cq, cl.CommandQueue) and not cq.properties & 1:
                allocator = partial(ours.allocate, cq)
            original(self, cq, shape, dtype, order, allocator, data, *args, **kwargs)

        setattr(pyopencl.array.Array, "__init__", init)  # noqa: B010 (mypy refuses the plain form)

    def allocate(self, queue: Any, nbytes: int) -> Any:
        """From the device over the queue's context, which lives as long as the test: pointers are used again."""
        which = queue.int_ptr, nbytes <= SMALL
        pressed = self.allocators.get(which)
        if pressed is None:
            self.made += 1
            pressed = self.allocators[which] = Pressed(queue, nbytes <= SMALL, self.made, self.log)
        return pressed(nbytes)

    def end(self, raised: bool) -> None:
        """After each test: no array is left, so the devices can be closed."""
        gc.collect()
        lifetimes.drain()
        for pressed in list(self.allocators.values()):
            self.calls += pressed.calls
            if not raised:
                pressed.end()
        self.allocators.clear()


allocators = None if os.environ.get("PEER_WITHOUT") else OurAllocator()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[Any]:
    """Each test with its own devices, closed before it counts as passed."""
    raised = True
    try:
        result = yield
        raised = False
    finally:
        if allocators is not None:
            allocators.end(raised)
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember what became of each test."""
    if report.when == "call" or report.outcome != "passed":
        outcomes[report.nodeid] = report.outcome


def pytest_sessionfinish() -> None:
    """Write the outcomes and the log."""
    path = os.environ.get("PEER_OUTCOMES")
    if path:
        with open(path, "w") as file:
            json.dump({"outcomes": outcomes, "calls": 0 if allocators is None else allocators.calls}, file)
    if allocators is not None and allocators.log is not None:
        allocators.log.file.close()
