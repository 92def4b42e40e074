"""Devices and arrays over OpenCL: eviction while kernels run, two devices at once, ends in any order."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lifetimes
from lifetimes.errors import BackendError, BrokenError, ClosedError, OutOfMemory
from lifetimes_opencl import backend
from tests.opencl.here import hold_back, open_driver, require

SOURCE = """
__kernel void axpy(float a, __global const float *x, __global float *y) {
    size_t i = get_global_id(0);
    y[i] += a * x[i];
}
"""
KIB = 1024


@pytest.fixture(params=["fine", "coarse", "buffers"])
def device(request: pytest.FixtureRequest) -> Iterator[Any]:
    driver = backend.open(require(), memory=request.param)
    with lifetimes.open(driver, memory_limit="256KiB") as device:
        yield device


def test_kernels_run_on_more_arrays_than_the_device_holds(device: Any) -> None:
    axpy = device.compile(SOURCE)["axpy"]
    xs = [device.asarray(np.full(4 * KIB, number, np.float32)) for number in range(30)]
    y = device.zeros(4 * KIB, np.float32)
    for _ in range(3):
        for x in xs:
            axpy.launch(2.0, x, y, size=4 * KIB, modes="ru")
    assert (y.numpy() == 3 * 2 * sum(range(30))).all()
    statistics = device.statistics()
    assert statistics.evictions >= 3 * 20
    assert statistics.limit == 256 * KIB
    device.manager.check_invariants()
    device.driver.check_invariants()
    assert device.driver.memory_info().total - device.driver.memory_info().free <= 256 * KIB


def test_views_are_arguments(device: Any) -> None:
    axpy = device.compile(SOURCE)["axpy"]
    x, y = device.asarray(np.arange(100, dtype=np.float32)), device.zeros(100, np.float32)
    axpy.launch(1.0, x[3:53], y[10:60], size=50, modes="ru")
    expected = np.zeros(100, np.float32)
    expected[10:60] = np.arange(3, 53)
    assert np.array_equal(y.numpy(), expected)


def test_a_working_set_that_does_not_fit_says_so_and_breaks_nothing(device: Any) -> None:
    axpy = device.compile(SOURCE)["axpy"]
    x, y = (device.zeros(40 * KIB, np.float32) for _ in range(2))
    with pytest.raises(OutOfMemory, match="held by"):
        axpy.launch(1.0, x, y, size=1, modes="ru")
    assert x.numpy().sum() == 0
    device.manager.check_invariants()


def test_what_a_kernel_in_flight_uses_outlives_its_handles(device: Any) -> None:
    stream = device.create_stream()
    axpy = device.compile(SOURCE)["axpy"]
    x, y = device.asarray(np.ones(KIB, np.float32)), device.zeros(KIB, np.float32)
    release = hold_back(device.driver, stream.handle)
    axpy.launch(3.0, x, y, size=KIB, modes="ru", stream=stream)
    work = stream.work()
    found = np.zeros(KIB, np.float32)
    with device.use(read=[y], stream=stream) as (address,):
        device.driver.copy_out(found, address, stream.handle)
    del x, y, axpy
    gc.collect()
    lifetimes.drain()
    others = [device.asarray(np.full(16 * KIB, 7, np.float32)) for _ in range(6)]  # their memory must not be ours
    for other in others[:3]:
        with device.use(read=[other]):
            pass
    release()
    work.wait()
    stream.synchronize()
    assert (found == 3).all()


def test_work_that_fails_on_the_device_breaks_what_it_wrote(device: Any) -> None:
    """The gate in front of a copy fails, and so does everything behind it."""
    stream = device.create_stream()
    axpy = device.compile(SOURCE)["axpy"]
    x, y = device.asarray(np.ones(KIB, np.float32)), device.zeros(KIB, np.float32)
    with device.use(read=[x], write=[y], stream=stream):
        pass
    stream.synchronize()
    release = hold_back(device.driver, stream.handle)
    with device.use(write=[y], stream=stream) as (address,):
        device.driver.copy_in(address, np.ones(KIB, np.float32), stream.handle)
    stream.timeline.mark()
    release(-5)
    with pytest.raises(BackendError, match="work before an event failed"):
        stream.synchronize()
    with pytest.raises(BrokenError, match="work before an event failed"):
        y.numpy()
    y.write(np.ones(KIB, np.float32))
    axpy.launch(1.0, x, y, size=KIB, modes="ru")
    assert (y.numpy() == 2).all()


def test_two_devices_of_different_back_ends_work_at_once(device: Any) -> None:
    with lifetimes.open("host", memory_limit="256KiB") as host, open_driver(memory="buffers") as driver:
        with lifetimes.open(driver, memory_limit="256KiB") as other:
            start = np.arange(16 * KIB, dtype=np.float32)
            here = [device.asarray(start + number) for number in range(8)]
            there = [array.to_device(host) for array in here]
            back = [array.to_device(other) for array in there]
            for one in (here, there, back):
                for number, array in enumerate(one):
                    assert np.array_equal(array.numpy(), start + number)
            axpy = other.compile(SOURCE)["axpy"]
            with pytest.raises(lifetimes.errors.OwnershipError):
                axpy.launch(1.0, here[0], back[0], size=1)


def test_functions_run_where_the_host_can_see_the_memory_and_are_refused_elsewhere(device: Any) -> None:
    x = device.asarray(np.arange(5.0))
    if device.driver.memory == "fine":
        device.call(lambda a: np.multiply(a, 2, out=a), x)
        assert x.numpy().tolist() == [0, 2, 4, 6, 8]
    else:
        with pytest.raises(BackendError, match="compile and launch a kernel instead"):
            device.call(len, x)


def test_a_program_that_does_not_compile_leaves_nothing(device: Any) -> None:
    before = len(lifetimes.live())
    with pytest.raises(lifetimes.errors.CompileError, match="line 2: use of undeclared identifier 'retrun'"):
        device.compile("__kernel void f(__global int *x) {\n retrun 3;\n}")
    assert len(lifetimes.live()) == before


def test_a_context_that_was_lost_is_refused_and_can_be_dropped_in_any_order(device: Any) -> None:
    kept = [device.compile(SOURCE)["axpy"], device.zeros(4, np.float32), device.zeros(4, np.float32)]
    axpy, x, y = kept
    stream = device.create_stream()
    axpy.launch(1.0, x, y, size=4, modes="ru")
    device.lose("reset by somebody else")
    for call in (x.numpy, lambda: axpy.launch(1.0, x, y, size=4), lambda: device.asarray([1]), stream.synchronize):
        with pytest.raises(ClosedError):
            call()
    while kept:
        kept.pop(0)
    gc.collect()


def test_closing_waits_for_what_is_in_flight() -> None:
    with open_driver(memory="fine") as driver:
        device, ran = lifetimes.open(driver), []
        x = device.asarray(np.arange(1000.0))
        for _ in range(20):
            device.call(lambda a: ran.append(float(a.sum())), x)
        device.close()
        assert len(ran) == 20
