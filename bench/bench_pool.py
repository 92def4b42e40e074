"""The pool, against PyOpenCL's, which is in C++."""

from __future__ import annotations

from collections.abc import Iterator

import lifetimes
from bench.harness import Compare
from bench.peers import pocl_queue, require
from lifetimes.pool import Pool
from lifetimes.timeline import Timeline

NBYTES = 64 << 10


def bench_take_and_give(compare: Compare) -> None:
    """pool.take, pool.give, 64 KiB, one stream"""
    tools = require("pyopencl.tools")
    theirs = tools.MemoryPool(tools.ImmediateAllocator(pocl_queue()))
    with lifetimes.open("host") as device:
        stream = Timeline(device.driver, device.driver.create_stream())
        pool = Pool(device.driver)

        def pool_take_and_give(rounds: Iterator[None]) -> None:
            for _ in rounds:
                block = pool.take(NBYTES, stream)
                pool.give(block, ((stream, stream.tick()),))

        def PyOpenCL_MemoryPool(rounds: Iterator[None]) -> None:  # noqa: N802 (its label in the table)
            for _ in rounds:
                theirs.allocate(NBYTES).release()

        compare(pool_take_and_give, PyOpenCL_MemoryPool, bar=8)
