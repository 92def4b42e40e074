"""The OpenCL back end on PoCL, against PyOpenCL itself on the same context and queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np
import pytest

import lifetimes
from bench.harness import Compare
from bench.peers import pocl_queue, require
from lifetimes.interop.pyopencl import Allocator
from lifetimes.pool import Pool
from lifetimes.timeline import Timeline

NBYTES = 64 << 10
ADDED = 1.5e-6
"""What a launch may cost beside the bare enqueue, in seconds."""
SOURCE = """
__kernel void axpy(float a, __global const float *x, __global float *y, int n) {
    size_t i = get_global_id(0);
    if (i < n) y[i] += a * x[i];
}
"""


@contextmanager
def adopted() -> Iterator[tuple[Any, Any]]:
    """A driver over the context of PyOpenCL's queue, and the queue."""
    queue = pocl_queue()
    driver = require("lifetimes_opencl").adopt(queue)
    try:
        yield driver, queue
    finally:
        driver.close()


def bench_take_and_give(compare: Compare) -> None:
    """OpenCL: pool.take, pool.give, 64 KiB, one stream"""
    tools = require("pyopencl.tools")
    with adopted() as (driver, queue):
        theirs = tools.MemoryPool(tools.ImmediateAllocator(queue))
        stream, pool = Timeline(driver, driver.create_stream()), Pool(driver)

        def pool_take_and_give(rounds: Iterator[None]) -> None:
            for _ in rounds:
                block = pool.take(NBYTES, stream)
                pool.give(block, ((stream, stream.tick()),))

        def PyOpenCL_MemoryPool(rounds: Iterator[None]) -> None:  # noqa: N802 (its label in the table)
            for _ in rounds:
                theirs.allocate(NBYTES).release()

        compare(pool_take_and_give, PyOpenCL_MemoryPool, bar=8)


@pytest.mark.parametrize("queue_of", ["device", "pyopencl"])
def bench_allocator(compare: Compare, queue_of: str) -> None:
    """OpenCL: memory for an array of PyOpenCL, lifetime and all, 64 KiB, on the queue of"""
    tools = require("pyopencl.tools")
    with adopted() as (driver, queue), lifetimes.open(driver, memory_limit="64MiB") as device:
        theirs = tools.MemoryPool(tools.ImmediateAllocator(queue))
        allocator = Allocator(device, None if queue_of == "device" else queue)

        def our_Allocator(rounds: Iterator[None]) -> None:  # noqa: N802
            for _ in rounds:
                allocator(NBYTES)

        def PyOpenCL_MemoryPool(rounds: Iterator[None]) -> None:  # noqa: N802
            for _ in rounds:
                theirs.allocate(NBYTES)

        compare(our_Allocator, PyOpenCL_MemoryPool)


@pytest.mark.parametrize("nbytes", [1 << 20, 64 << 20], ids=["1 MiB", "64 MiB"])
@pytest.mark.parametrize("way", ["in", "out"])
def bench_copy(compare: Compare, way: str, nbytes: int) -> None:
    """OpenCL: a copy, waited for"""
    cl = require("pyopencl")
    with adopted() as (driver, queue):
        host = np.ones(nbytes, np.uint8)
        address, stream = driver.allocate(nbytes), driver.create_stream()
        theirs = cl.SVM(driver.view(driver.allocate(nbytes), nbytes))

        def copy_in(rounds: Iterator[None]) -> None:
            for _ in rounds:
                driver.copy_in(address, host, stream)
                driver.synchronize(stream)

        def copy_out(rounds: Iterator[None]) -> None:
            for _ in rounds:
                driver.copy_out(host, address, stream)
                driver.synchronize(stream)

        def enqueue_copy(rounds: Iterator[None]) -> None:
            for _ in rounds:
                cl.enqueue_copy(queue, *((theirs, host) if way == "in" else (host, theirs)))

        compare(copy_in if way == "in" else copy_out, enqueue_copy, bar=0.9, nbytes=nbytes)


def bench_launch(compare: Compare) -> None:
    """OpenCL: driver.launch, four arguments, against the bare call with 1.5 us more"""
    cl = require("pyopencl")
    with adopted() as (driver, _):
        stream = driver.create_stream()
        queue = stream.queue  # the bare calls go to the very same one
        module = driver.load(driver.compile(SOURCE))
        function = driver.function(module, "axpy")
        x, y = (driver.allocate(4096) for _ in range(2))
        bare = cl.Kernel(module.program, "axpy")
        bare.set_scalar_arg_dtypes([np.float32, None, None, np.int32])
        their_x, their_y = (cl.SVM(driver.view(address, 4096)) for address in (x, y))
        size = (64,)

        def driver_launch(rounds: Iterator[None]) -> None:
            for _ in rounds:
                driver.launch(function, size, (2.0, x, y, 64), stream)
            queue.finish()

        def bare_enqueue_plus(rounds: Iterator[None]) -> None:
            for _ in rounds:
                bare(queue, size, None, 2.0, their_x, their_y, 64)
                end = perf_counter() + ADDED
                while perf_counter() < end:
                    pass
            queue.finish()

        compare(driver_launch, bare_enqueue_plus, bar=1)


def bench_kernel_launch(compare: Compare) -> None:
    """OpenCL: kernel.launch on two arrays, four arguments"""
    cl = require("pyopencl")
    with adopted() as (driver, queue), lifetimes.open(driver) as device:
        kernel = device.compile(SOURCE)["axpy"]
        x, y = device.zeros(1024, np.float32), device.zeros(1024, np.float32)
        module = driver.load(driver.compile(SOURCE))
        bare = cl.Kernel(module.program, "axpy")
        bare.set_scalar_arg_dtypes([np.float32, None, None, np.int32])
        their_x, their_y = (cl.SVM(driver.view(driver.allocate(4096), 4096)) for _ in range(2))
        stream = device.stream.handle.queue

        def kernel_launch(rounds: Iterator[None]) -> None:
            for _ in rounds:
                kernel.launch(2.0, x, y, 64, size=64, modes="ru")
            stream.finish()

        def bare_enqueue(rounds: Iterator[None]) -> None:
            for _ in rounds:
                bare(queue, (64,), None, 2.0, their_x, their_y, 64)
            queue.finish()

        compare(kernel_launch, bare_enqueue)
