"""Memory: what means that there is none left, what is held by copies, and what belongs to somebody else."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from lifetimes.errors import BackendError, OutOfMemory, OwnershipError
from tests.opencl.here import hold_back, open_driver, wait_for


def pattern(nbytes: int, seed: int = 0) -> Any:
    return ((np.arange(nbytes) + seed) % 251).astype(np.uint8)


def read(driver: Any, address: int, nbytes: int) -> Any:
    stream, found = driver.create_stream(), np.zeros(nbytes, np.uint8)
    driver.copy_out(found, address, stream)
    driver.destroy_stream(stream)
    return found


# Out of memory.


class FromTheRuntime(Exception):
    """As far as `translate` looks, an error of PyOpenCL."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.routine = "clSomething"


@pytest.mark.parametrize(
    ("code", "name", "allocating", "elsewhere"),
    [
        (-4, "MEM_OBJECT_ALLOCATION_FAILURE", OutOfMemory, OutOfMemory),
        (-5, "OUT_OF_RESOURCES", OutOfMemory, BackendError),
        (-61, "INVALID_BUFFER_SIZE", OutOfMemory, BackendError),
        (-6, "OUT_OF_HOST_MEMORY", BackendError, BackendError),
        (-34, "INVALID_CONTEXT", BackendError, BackendError),
        (-30, "INVALID_VALUE", BackendError, BackendError),
        (-54, "INVALID_WORK_GROUP_SIZE", BackendError, BackendError),
        (-9999, "unknown code -9999", BackendError, BackendError),
    ],
)
def test_exactly_the_published_codes_mean_out_of_memory(
    code: int, name: str, allocating: type[Exception], elsewhere: type[Exception], shared: Any
) -> None:
    from lifetimes_opencl.failures import translate

    assert (code in shared.out_of_memory_codes) == (allocating is OutOfMemory)
    for kind, flag in ((allocating, True), (elsewhere, False)):
        error = translate(FromTheRuntime(code), "doing something", allocating=flag)
        assert type(error) is kind
        assert str(error).startswith(f"doing something: clSomething failed with {name} ({code})")


def test_what_the_runtime_answers_to_too_much_is_out_of_memory(driver: Any) -> None:
    """PoCL says OUT_OF_RESOURCES for shared memory and INVALID_BUFFER_SIZE for buffers; here it is asked."""
    driver.blocks.limit = driver.blocks.largest = 1 << 62  # so that our own limit does not answer first
    with pytest.raises(OutOfMemory, match=r"OUT_OF_RESOURCES|INVALID_BUFFER_SIZE"):
        driver.allocate(1 << 61)
    assert driver.blocks.used == 0


def test_device_memory_runs_out_at_the_limit() -> None:
    with open_driver(limit=1 << 20) as driver:
        assert driver.memory_info().total == driver.max_allocation == 1 << 20
        address = driver.allocate(3 << 18)
        with pytest.raises(OutOfMemory, match="524,288 bytes do not fit: 786,432 bytes are in use of the 1,048,576"):
            driver.allocate(1 << 19)
        driver.free(address)
        driver.free(driver.allocate(1 << 20))


def test_the_largest_allocation_can_be_had(driver: Any) -> None:
    driver.free(driver.allocate(driver.max_allocation))


@pytest.mark.parametrize("size", [0, -1])
def test_a_size_below_one_is_refused(driver: Any, size: int) -> None:
    with pytest.raises(BackendError, match="at least 1 byte"):
        driver.allocate(size)


def test_an_interrupt_in_an_allocation_leaves_nothing_behind(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(block: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(driver.blocks, "insert", interrupt)
    with pytest.raises(KeyboardInterrupt):
        driver.allocate(1000)
    assert driver.blocks.used == 0


# Addresses.


def test_addresses_that_are_nobodys_are_refused(driver: Any) -> None:
    stream, data = driver.create_stream(), pattern(10)
    address = driver.allocate(100)
    for wrong, what in ((1234, "lies in no block"), (address + 100, "lies in no block"), (address + 91, "run past")):
        with pytest.raises(BackendError, match=what):
            driver.copy_in(wrong, data, stream)
    with pytest.raises(BackendError, match="no block of this device starts"):
        driver.free(address + 1)
    driver.free(address)
    with pytest.raises(BackendError, match="freed or is another's"):
        driver.free(address)


def test_an_address_inside_is_found_among_many_blocks_that_come_and_go(driver: Any) -> None:
    blocks = driver.blocks
    addresses = [driver.allocate(1000) for _ in range(200)]
    for step in range(0, 200, 3):
        assert blocks.find(addresses[step] + 7, 10)[1] == 7
        driver.free(addresses[step])
        assert blocks.enclosing(addresses[step] + 7) is None
    fresh = driver.allocate(1000)
    assert blocks.find(fresh + 999, 1)[0].address == fresh


def test_an_array_that_is_not_contiguous_or_writable_is_refused(driver: Any) -> None:
    stream, address = driver.create_stream(), driver.allocate(100)
    with pytest.raises(BackendError, match="ascontiguousarray"):
        driver.copy_in(address, np.zeros((4, 4))[:, ::2], stream)
    fixed = np.zeros(4)
    fixed.flags.writeable = False
    for wrong in (fixed, np.zeros((4, 4))[:, ::2]):
        with pytest.raises(BackendError, match=r"np\.empty"):
            driver.copy_out(wrong, address, stream)
    with pytest.raises(BackendError, match="at least 0 bytes"):
        driver.copy(address, address, -1, stream)


# What a copy holds.


def test_a_block_that_is_freed_too_early_outlives_its_copies(driver: Any) -> None:
    """The protocol forbids it; with a running copy a plain free would end the process."""
    stream, address, found = driver.create_stream(), driver.allocate(1 << 20), np.zeros(1 << 20, np.uint8)
    release = hold_back(driver, stream)
    driver.copy_in(address, pattern(1 << 20), stream)
    driver.copy_out(found, address, stream)
    driver.free(address)
    gc.collect()
    release()
    wait_for(driver, stream)
    assert np.array_equal(found, pattern(1 << 20))


def test_what_is_held_does_not_pile_up(driver: Any) -> None:
    """There is no thread that lets go; the next copy does (peers keep lists that grow: inducer/pyopencl#56)."""
    stream, address, longest = driver.create_stream(), driver.allocate(100), 0
    for _ in range(1000):
        driver.copy_in(address, pattern(100), stream)
        stream.queue.finish()  # behind the driver's back: nobody asks an event
        longest = max(longest, len(stream.pending))
    assert longest <= 2
    driver.synchronize(stream)
    assert not stream.pending


def test_an_interrupted_enqueue_leaves_no_trace_in_what_is_held(shared: Any) -> None:
    stream = shared.create_stream()

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stream.enqueue(interrupted, (1, 2), "things")
    assert not stream.pending


def test_a_view_keeps_its_memory_readable(shared: Any) -> None:
    address = shared.allocate(100)
    view = shared.view(address + 10, 50)
    view[:] = 5
    shared.free(address)
    again = shared.allocate(100)
    shared.view(again, 100)[:] = 9
    assert (view == 5).all()


@pytest.mark.parametrize("writable", [True, False])
@pytest.mark.parametrize("dtype", ["f8", "M8[s]", "U3"])
def test_sources_that_buffers_do_not_know_are_held_and_let_go_too(driver: Any, dtype: str, writable: bool) -> None:
    stream, address, source = driver.create_stream(), driver.allocate(1000), np.arange(10).astype(dtype)
    source.flags.writeable = writable
    expected, alive = source.tobytes(), weakref.ref(source)
    release = hold_back(driver, stream)
    driver.copy_in(address, source, stream)
    del source
    gc.collect()
    assert alive() is not None
    release()
    wait_for(driver, stream)
    assert alive() is None
    assert read(driver, address, len(expected)).tobytes() == expected


# Memory that somebody else owns.


def test_foreign_memory_is_adopted_and_not_freed(driver: Any) -> None:
    from lifetimes_opencl.runtime import cl

    buffer = cl.Buffer(driver.context, cl.mem_flags.READ_WRITE, 1000)
    before = buffer.reference_count
    address, stream = driver.adopt(buffer), driver.create_stream()
    driver.copy_in(address + 100, pattern(500), stream)
    assert np.array_equal(read(driver, address + 100, 500), pattern(500))
    assert driver.memory_info().free == driver.memory_info().total, "it is not ours, so it is not counted"
    with pytest.raises(BackendError, match="disown"):
        driver.free(address)
    driver.disown(address)
    with pytest.raises(BackendError, match="lies in no block"):
        driver.copy_in(address, pattern(5), stream)
    wait_for(driver, stream)
    assert buffer.reference_count == before
    mine = driver.allocate(10)
    with pytest.raises(BackendError, match="free"):
        driver.disown(mine)


def test_foreign_shared_memory_keeps_its_address(shared: Any) -> None:
    from lifetimes_opencl.runtime import cl

    theirs = cl.SVMAllocation(shared.context, 1000, 0, cl.svm_mem_flags.READ_WRITE)
    address = shared.adopt(theirs)
    assert address == theirs.svm_ptr
    mine, stream = shared.allocate(1000), shared.create_stream()
    shared.copy_in(mine, pattern(1000), stream)
    shared.copy(address, mine, 1000, stream)
    wait_for(shared, stream)
    assert np.array_equal(read(shared, address, 1000), pattern(1000))
    with pytest.raises(OwnershipError, match="known to this driver already"):
        shared.adopt(theirs)
    shared.disown(address)
    shared.check_invariants()


def test_memory_is_adopted_once(shared: Any) -> None:
    """Two addresses for the same bytes would hide that they are the same."""
    from lifetimes_opencl.runtime import cl

    buffer = cl.Buffer(shared.context, cl.mem_flags.READ_WRITE, 1000)
    address = shared.adopt(buffer)
    with pytest.raises(OwnershipError, match="known to this driver already"):
        shared.adopt(cl.Buffer.from_int_ptr(buffer.int_ptr))
    shared.disown(address)
    shared.disown(shared.adopt(buffer))
    theirs = np.zeros(3000, np.uint8)
    address = shared.adopt(cl.SVM(theirs[1000:2000]))
    for low, high in ((1000, 2000), (0, 3000), (0, 1001), (1999, 3000), (1200, 1300)):
        with pytest.raises(OwnershipError, match="known to this driver already"):
            shared.adopt(cl.SVM(theirs[low:high]))
    below, above = shared.adopt(cl.SVM(theirs[:1000])), shared.adopt(cl.SVM(theirs[2000:]))
    shared.check_invariants()
    for each in (address, below, above):
        shared.disown(each)
    with pytest.raises(TypeError, match="has no bytes"):
        shared.adopt(cl.SVM(theirs[:0]))


def test_a_buffer_and_shared_memory_can_be_copied_to_each_other(shared: Any) -> None:
    from lifetimes_opencl.runtime import cl

    buffer = shared.adopt(cl.Buffer(shared.context, cl.mem_flags.READ_WRITE, 1000))
    mine, stream = shared.allocate(1000), shared.create_stream()
    shared.copy_in(mine, pattern(1000), stream)
    shared.copy(buffer + 10, mine + 20, 900, stream)
    shared.copy(mine, buffer + 10, 900, stream)
    wait_for(shared, stream)
    assert np.array_equal(read(shared, mine, 900), pattern(1000)[20:920])


def test_memory_of_another_context_and_other_things_are_refused(shared: Any) -> None:
    from lifetimes_opencl.runtime import cl

    elsewhere = cl.Context([shared.device])
    with pytest.raises(OwnershipError, match="another context"):
        shared.adopt(cl.Buffer(elsewhere, cl.mem_flags.READ_WRITE, 16))
    with pytest.raises(TypeError, match="bytearray"):
        shared.adopt(bytearray(5))
