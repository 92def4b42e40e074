"""PyOpenCL's arrays on memory of ours."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lifetimes
from lifetimes.errors import BackendError, BusyError, ClosedError, OutOfMemory
from lifetimes.interop.pyopencl import Allocator
from lifetimes_opencl import adopt
from tests.opencl.here import hold_back, open_driver, run_python

KIB = 1024


@pytest.fixture(params=[False, True], ids=["buffer", "svm"])
def svm(request: pytest.FixtureRequest) -> bool:
    """What the allocator makes of its memory."""
    return request.param


@pytest.fixture(params=["fine", "coarse"])
def setting(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any]]:
    """A device over the context of a PyOpenCL queue, and the queue."""
    from lifetimes_opencl.runtime import cl

    with open_driver() as opener:
        queue = cl.CommandQueue(opener.context)
        with lifetimes.open(adopt(queue, memory=request.param), memory_limit="1MiB") as device:
            yield device, queue


def arrays() -> Any:
    import pyopencl.array

    return pyopencl.array


def test_importing_it_imports_no_pyopencl() -> None:
    result = run_python("import sys, lifetimes.interop.pyopencl; print('pyopencl' in sys.modules)")
    assert (result.stdout, result.stderr) == ("False\n", "")


def test_arrays_compute_on_our_memory_and_ours_make_room(setting: tuple[Any, Any], svm: bool) -> None:
    device, queue = setting
    allocator = Allocator(device, queue, svm=svm)
    mine = [device.asarray(np.full(16 * KIB, number, np.float32)) for number in range(20)]
    for array in mine:
        with device.use(read=[array], write=[array]):
            pass
    a = arrays().to_device(queue, np.arange(40 * KIB, dtype=np.float32), allocator=allocator)
    b = arrays().zeros(queue, 40 * KIB, np.float32, allocator=allocator)
    for _ in range(20):
        b = b + 2 * a
    assert np.array_equal(b.get(), 40 * np.arange(40 * KIB, dtype=np.float32))
    assert device.statistics().evictions > 0
    for number, array in enumerate(mine):
        assert (array.numpy() == number).all()
    assert device.manager.owner_of(b.base_data.address + 5) == (b.base_data.lifetime.key, 5)
    device.manager.check_invariants()
    del a, b
    gc.collect()


def test_what_lives_is_counted_and_listed_and_keeps_the_device_open(setting: tuple[Any, Any], svm: bool) -> None:
    device, queue = setting
    before = device.statistics().pinned_bytes
    array = arrays().zeros(queue, 1000, np.float64, allocator=Allocator(device, queue, svm=svm, label="theirs"))
    (row,) = [row for row in lifetimes.live() if row.kind == "pyopencl"]
    assert (row.nbytes, row.label) == (8000, "theirs")
    assert device.statistics().pinned_bytes == before + 8000
    with pytest.raises(BusyError):
        device.close()
    assert array.get().sum() == 0
    view = array[100:200]
    del array
    gc.collect()
    assert device.statistics().pinned_bytes == before + 8000, "a view keeps the memory"
    del view
    gc.collect()
    assert device.statistics().pinned_bytes == before
    assert not [row for row in lifetimes.live() if row.kind == "pyopencl"]


def test_memory_is_used_again_and_by_another_stream_only_when_the_queue_is_done(
    setting: tuple[Any, Any], svm: bool
) -> None:
    device, queue = setting
    allocator = Allocator(device, queue, svm=svm)
    first = allocator(64 * KIB)
    address = first.address
    del first
    again = allocator(64 * KIB)
    assert again.address == address, "the same queue may have it at once"
    release = hold_back(device.driver, queue)
    again.release()
    again.release()
    other = Allocator(device, svm=svm)(64 * KIB)
    assert other.address != address, "another queue may not, while the first is busy"
    release()
    queue.finish()
    del again, other


def test_events_of_a_foreign_queue_do_not_pile_up(setting: tuple[Any, Any], svm: bool) -> None:
    device, queue = setting
    allocator = Allocator(device, queue, svm=svm)
    before = queue.reference_count
    for _ in range(300):
        allocator(4 * KIB)
        queue.finish()
    assert len(allocator._stream.timeline._marks) <= 2
    del allocator
    gc.collect()
    lifetimes.drain()
    queue.finish()
    assert queue.reference_count <= before + 2  # events that wait to be used again


def test_the_kind_is_what_was_asked_for(setting: tuple[Any, Any], svm: bool) -> None:
    from lifetimes_opencl.runtime import cl

    device, queue = setting
    memory = Allocator(device, queue, svm=svm)(1000)
    assert isinstance(memory, cl.SVM if svm else cl.Buffer)
    assert memory.size == 1000
    data, found = np.arange(250, dtype=np.int32), np.zeros(250, np.int32)
    cl.enqueue_copy(queue, memory, data)
    cl.enqueue_copy(queue, found, memory)
    assert np.array_equal(found, data)


def test_no_bytes_are_none_and_too_many_are_out_of_memory(setting: tuple[Any, Any], svm: bool) -> None:
    device, queue = setting
    allocator = Allocator(device, queue, svm=svm)
    assert allocator(0) is None
    assert arrays().zeros(queue, 0, np.float32, allocator=allocator).get().shape == (0,)
    with pytest.raises(OutOfMemory):
        allocator(2 << 20)
    held = allocator(900 * KIB)
    with pytest.raises(OutOfMemory):
        allocator(900 * KIB)
    assert [row.nbytes for row in lifetimes.live() if row.kind == "pyopencl"] == [900 * KIB]
    device.manager.check_invariants()
    del held


def test_devices_and_queues_that_cannot_be_used_are_refused(setting: tuple[Any, Any], svm: bool) -> None:
    from lifetimes_opencl.runtime import cl

    device, queue = setting
    with lifetimes.open("host") as host, pytest.raises(BackendError, match="no shared virtual memory"):
        Allocator(host)
    with lifetimes.open(adopt(queue, memory="buffers")) as buffers, pytest.raises(BackendError, match="no shared"):
        Allocator(buffers)
    order = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    with pytest.raises(BackendError, match="out of order"):
        Allocator(device, cl.CommandQueue(queue.context, properties=order))


def test_a_closed_device_gives_no_memory(setting: tuple[Any, Any], svm: bool) -> None:
    device, queue = setting
    allocator = Allocator(device, queue, svm=svm)
    device.close()
    with pytest.raises(ClosedError):
        allocator(100)


def test_arrays_that_live_at_exit_end_in_silence() -> None:
    result = run_python(
        """
        import numpy as np, pyopencl as cl, pyopencl.array, lifetimes, lifetimes_opencl
        from lifetimes.interop.pyopencl import Allocator
        device = lifetimes.open("opencl", memory_limit="8MiB")
        queue = cl.CommandQueue(device.driver.context)
        allocator = Allocator(device, queue)
        arrays = [pyopencl.array.zeros(queue, 100_000, np.float32, allocator=allocator) for _ in range(10)]
        total = sum(arrays[1:], arrays[0] + 1)
        print(total.get()[0])
        running = total * total  # and nobody waits for it
        """
    )
    assert (result.stdout, result.stderr, result.returncode) == ("1.0\n", "", 0)
