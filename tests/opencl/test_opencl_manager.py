"""The memory manager over OpenCL, in random programs, with NumPy as the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import lifetimes
from lifetimes_opencl import backend
from tests.opencl.here import require

SOURCE = """
__kernel void add_one(__global uchar *x) { x[get_global_id(0)] += 1; }
__kernel void copy(__global const uchar *x, __global uchar *y) { y[get_global_id(0)] = x[get_global_id(0)]; }
"""
LIMIT = 64 * 1024


class ManagerOverOpenCL(RuleBasedStateMachine):
    """Arrays come, are changed by kernels on two streams, evicted, read, overwritten, and go."""

    memory = "fine"

    def __init__(self) -> None:
        super().__init__()
        self.device = lifetimes.open(backend.open(require(), memory=self.memory), memory_limit=LIMIT)
        module = self.device.compile(SOURCE)
        self.add_one, self.copy = module["add_one"], module["copy"]
        self.streams = [self.device.stream, self.device.create_stream()]
        self.arrays: list[tuple[Any, Any]] = []  # ours, and what it must show

    @rule(nbytes=st.sampled_from([1, 255, 4096, 5000, 12_000, 30_000]), seed=st.integers(0, 250))
    def add(self, nbytes: int, seed: int) -> None:
        content = ((np.arange(nbytes) + seed) % 251).astype(np.uint8)
        self.arrays.append((self.device.asarray(content), content))

    @precondition(lambda self: self.arrays)
    @rule(data=st.data(), stream=st.integers(0, 1))
    def change(self, data: st.DataObject, stream: int) -> None:
        array, content = data.draw(st.sampled_from(self.arrays))
        self.add_one.launch(array, size=array.size, modes="u", stream=self.streams[stream])
        content += 1

    @precondition(lambda self: self.arrays)
    @rule(data=st.data(), stream=st.integers(0, 1), offset=st.integers(0, 300))
    def change_a_view(self, data: st.DataObject, stream: int, offset: int) -> None:
        array, content = data.draw(st.sampled_from(self.arrays))
        view = array[offset:]
        if view.size:
            self.add_one.launch(view, size=view.size, modes="u", stream=self.streams[stream])
            content[offset:] += 1

    @precondition(lambda self: self.arrays)
    @rule(data=st.data(), stream=st.integers(0, 1))
    def copy_one_to_another(self, data: st.DataObject, stream: int) -> None:
        array, content = data.draw(st.sampled_from(self.arrays))
        other, changed = data.draw(st.sampled_from(self.arrays))
        if other is not array:
            size = min(array.size, other.size)
            whole = size == other.size
            self.copy.launch(array, other, size=size, modes="rw" if whole else "ru", stream=self.streams[stream])
            changed[:size] = content[:size]

    @precondition(lambda self: self.arrays)
    @rule(data=st.data())
    def evict(self, data: st.DataObject) -> None:
        array, _ = data.draw(st.sampled_from(self.arrays))
        assert array.evict()

    @precondition(lambda self: self.arrays)
    @rule(data=st.data(), seed=st.integers(0, 250))
    def write(self, data: st.DataObject, seed: int) -> None:
        array, content = data.draw(st.sampled_from(self.arrays))
        content[:] = seed
        array.write(content)

    @precondition(lambda self: self.arrays)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        array, content = data.draw(st.sampled_from(self.arrays))
        assert np.array_equal(array.numpy(), content)

    @precondition(lambda self: len(self.arrays) > 4)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.arrays) - 1))
        del self.arrays[place]  # perhaps with its kernels still running

    @invariant()
    def holds_its_invariants(self) -> None:
        self.device.manager.check_invariants()
        self.device.driver.check_invariants()  # type: ignore[attr-defined]
        info = self.device.driver.memory_info()
        assert info is not None
        assert info.total - info.free <= LIMIT

    def teardown(self) -> None:
        try:
            for array, content in self.arrays:
                assert np.array_equal(array.numpy(), content)
        finally:
            self.arrays.clear()
            del self.add_one, self.copy, self.streams
            self.device.close()


class ManagerOverBuffers(ManagerOverOpenCL):
    memory = "buffers"


for _machine in (ManagerOverOpenCL, ManagerOverBuffers):
    _machine.TestCase.settings = settings(max_examples=12, stateful_step_count=30, deadline=None)

TestManagerOverOpenCL = ManagerOverOpenCL.TestCase
TestManagerOverBuffers = ManagerOverBuffers.TestCase
