"""Streams and events: what they tell, what fails them, and queues of somebody else."""

from __future__ import annotations

import sys
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import lifetimes
from lifetimes.errors import BackendError, BusyError, CleanupWarning, OwnershipError
from lifetimes_opencl import adopt
from tests.opencl.here import hold_back, open_driver, require, wait_for

SECONDS = 20.0


def workers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("lifetimes-opencl-stream-")}


def test_an_event_tells_its_status(driver: Any) -> None:
    stream, event = driver.create_stream(), driver.create_event()
    assert driver.status(event) == "not recorded"
    release = hold_back(driver, stream)
    driver.record(event, stream)
    assert driver.status(event) in ("queued", "submitted")
    release()
    driver.wait(event)
    assert driver.status(event) == "completed"


def test_an_event_tells_its_times(driver: Any) -> None:
    stream, first, last = driver.create_stream(), driver.create_event(), driver.create_event()
    with pytest.raises(BackendError, match="record it first"):
        driver.times(first)
    address, data = driver.allocate(8 << 20), np.zeros(8 << 20, np.uint8)
    driver.record(first, stream)
    driver.copy_in(address, data, stream)
    release = hold_back(driver, stream)
    driver.record(last, stream)
    with pytest.raises(BackendError, match="the times of an event that is"):
        driver.times(last)
    release()
    driver.wait(last)
    times = driver.times(last)
    assert times.queued <= times.submitted <= times.started <= times.ended
    assert 1e-5 < driver.elapsed(first, last) < 60


def test_work_that_fails_on_the_device_is_told_by_the_event_behind_it(driver: Any) -> None:
    stream, before, failed = driver.create_stream(), driver.create_event(), driver.create_event()
    address = driver.allocate(100)
    driver.record(before, stream)
    driver.wait(before)
    release = hold_back(driver, stream)
    driver.copy_in(address, np.zeros(100, np.uint8), stream)
    driver.record(failed, stream)
    release(-5)
    for ask in (driver.wait, driver.completed, driver.wait):
        with pytest.raises(BackendError, match=r"work before an event failed .* \(-\d+\)"):
            ask(failed)
    assert driver.status(failed) == "failed"
    assert driver.completed(before) is True
    driver.synchronize(stream)  # tells nothing
    assert not stream.pending, "what the failed copy needed is let go"
    wait_for(driver, stream)  # and the stream goes on
    driver.copy_in(address, np.full(100, 7, np.uint8), stream)
    wait_for(driver, stream)


def test_handles_of_other_kinds_and_dead_ones_are_refused(driver: Any) -> None:
    stream, event = driver.create_stream(), driver.create_event()
    driver.destroy_stream(stream)
    driver.destroy_event(event)
    with pytest.raises(BackendError, match="was destroyed"):
        driver.synchronize(stream)
    with pytest.raises(BackendError, match="after it was destroyed"):
        driver.wait(event)
    for wrong in (None, 5, "stream", event):
        with pytest.raises(BackendError, match="no stream"):
            driver.synchronize(wrong)
    with pytest.raises(BackendError, match="no event"):
        driver.wait(stream)


# Functions on streams.


def test_a_function_cannot_wait_for_its_own_stream(shared: Any) -> None:
    stream, inside, event = shared.create_stream(), [], shared.create_event()
    recorded = threading.Event()

    def wait() -> None:
        assert recorded.wait(SECONDS)
        for waiting in (lambda: shared.synchronize(stream), lambda: shared.wait(event)):
            try:
                waiting()
            except BusyError as error:
                inside.append(str(error))

    shared.call(wait, (), stream)
    shared.record(event, stream)
    recorded.set()
    shared.wait(event)
    assert len(inside) == 2
    assert all("inside a function" in each for each in inside)


def test_functions_of_many_threads_on_one_stream_run_in_some_order_and_all(shared: Any) -> None:
    """Marker and barrier of a function stand together in the queue, or two threads would wait for each other."""
    ran: list[tuple[int, int]] = []
    stream, barrier = shared.create_stream(), threading.Barrier(8)

    def body(number: int) -> None:
        barrier.wait(SECONDS)
        for round_ in range(40):
            shared.call(ran.append, ((number, round_),), stream)

    threads = [threading.Thread(target=body, args=(number,), daemon=True) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()
    wait_for(shared, stream)
    assert len(ran) == 320
    for number in range(8):
        assert [each for each in ran if each[0] == number] == [(number, round_) for round_ in range(40)]


def test_code_that_interrupts_a_call_cannot_call_on_the_same_stream(shared: Any) -> None:
    stream = shared.create_stream()
    with stream.calls_lock(), pytest.raises(BusyError, match="interrupted"):
        shared.call(int, (), stream)
    wait_for(shared, stream)


def test_outcomes_of_functions_do_not_pile_up_when_nobody_records_an_event(shared: Any) -> None:
    stream, longest = shared.create_stream(), 0
    for _ in range(500):
        shared.call(int, (), stream)
        stream.queue.finish()  # behind the driver's back
        longest = max(longest, len(stream.outcomes))
    assert longest <= 65
    shared.call(int, ("no number",), stream)
    for _ in range(100):
        shared.call(int, (), stream)
    shared.synchronize(stream)
    assert len(stream.outcomes) == 1
    with pytest.raises(BackendError, match="no number"):
        wait_for(shared, stream)


def test_a_stream_without_functions_has_no_thread_and_one_with_them_ends_it(shared: Any) -> None:
    before, stream = workers(), shared.create_stream()
    wait_for(shared, stream)
    assert workers() == before
    shared.call(int, (), stream)
    (worker,) = workers() - before
    shared.destroy_stream(stream)
    worker.join(SECONDS)
    assert not worker.is_alive()


def test_a_function_may_close_its_driver() -> None:
    with open_driver(memory="fine") as driver:
        before, closed, stream = workers(), threading.Event(), driver.create_stream()

        def close() -> None:
            driver.close()
            closed.set()

        driver.call(close, (), stream)
        assert closed.wait(SECONDS)
        for worker in workers() - before:
            worker.join(SECONDS)
            assert not worker.is_alive()


def test_close_does_what_is_queued_first() -> None:
    found, last, ran = np.zeros(8 << 20, np.uint8), np.zeros(8 << 20, np.uint8), list[int]()
    with open_driver(memory="fine") as driver:
        stream, address = driver.create_stream(), driver.allocate(8 << 20)
        driver.call(threading.Event().wait, (0.05,), stream)
        driver.copy_in(address, np.full(8 << 20, 9, np.uint8), stream)
        driver.copy_out(found, address, stream)
        for number in range(50):
            driver.call(ran.append, (number,), stream)
        for _ in range(20):
            driver.copy_in(address, found, stream)
        driver.copy_out(last, address, stream)
        driver.close()
        assert (found == 9).all()
        assert (last == 9).all()
        assert ran == list(range(50))
        assert not stream.pending


def test_a_failure_that_no_event_told_is_a_warning_at_the_end() -> None:
    with open_driver(memory="fine") as driver:
        driver.call(int, ("no number",), driver.create_stream())
        with pytest.warns(CleanupWarning, match="no number"):
            driver.close()


def test_a_function_that_does_not_end_is_left_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    from lifetimes_opencl import driver as driver_module

    monkeypatch.setattr(driver_module, "CLOSE_SECONDS", 0.01)
    before, gate = workers(), threading.Event()
    with open_driver(memory="fine") as driver:
        for _ in range(2):
            driver.call(gate.wait, (SECONDS,), driver.create_stream())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            driver.close()
    assert [(each.category, "2 OpenCL streams" in str(each.message)) for each in caught] == [(CleanupWarning, True)]
    gate.set()
    for worker in workers() - before:
        worker.join(SECONDS)


# Queues and contexts of somebody else.


def test_a_foreign_queue_is_a_stream_and_is_not_destroyed(driver: Any) -> None:
    from lifetimes_opencl.runtime import cl

    queue = cl.CommandQueue(driver.context)
    before, held = queue.reference_count, sys.getrefcount(queue)
    event, address, found = driver.create_event(), driver.allocate(100), np.zeros(100, np.uint8)
    driver.copy_in(address, np.full(100, 3, np.uint8), queue)
    driver.copy_out(found, address, queue)
    driver.record(event, queue)
    driver.wait(event)
    assert (found == 3).all()
    with pytest.raises(BackendError, match="PROFILING_INFO_NOT_AVAILABLE"):
        driver.times(event)
    driver.destroy_event(event)
    driver.destroy_stream(queue)
    driver.free(address)  # a buffer of PoCL holds the last event on it, and that its queue
    queue.finish()  # it lives
    assert queue.reference_count == before
    assert sys.getrefcount(queue) == held, "and nothing here holds it any more"


def test_what_a_foreign_queue_still_needs_is_held(driver: Any) -> None:
    from lifetimes_opencl.runtime import cl

    queue, address, found = cl.CommandQueue(driver.context), driver.allocate(1000), np.zeros(1000, np.uint8)
    release = hold_back(driver, queue)
    driver.copy_in(address, np.full(1000, 4, np.uint8), queue)
    driver.copy_out(found, address, queue)
    others = [cl.CommandQueue(driver.context) for _ in range(3)]
    for other in others:  # looking at another queue must not forget this one
        driver.synchronize(other)
    release()
    driver.synchronize(queue)
    assert (found == 4).all()


def test_functions_on_a_foreign_queue_leave_no_thread_behind(shared: Any) -> None:
    from lifetimes_opencl.runtime import cl

    before, queue = workers(), cl.CommandQueue(shared.context)
    held, ran, gate = sys.getrefcount(queue), list[int](), threading.Event()
    event = shared.create_event()
    shared.call(gate.wait, (SECONDS,), queue)
    shared.call(ran.append, (1,), queue)
    shared.record(event, queue)
    (worker,) = workers() - before
    other = shared.create_event()
    shared.record(other, queue)
    shared.destroy_event(other)  # looks whether the queue can be forgotten, which it cannot
    gate.set()
    shared.wait(event)
    shared.destroy_event(event)
    worker.join(SECONDS)
    assert not worker.is_alive()
    assert ran == [1]
    shared.call(ran.append, (2,), queue)
    shared.synchronize(queue)
    assert ran == [1, 2]
    shared.destroy_stream(queue)
    assert sys.getrefcount(queue) == held


def test_a_queue_of_another_context_and_one_out_of_order_are_refused(driver: Any) -> None:
    from lifetimes_opencl.runtime import cl

    with pytest.raises(OwnershipError, match="another context"):
        driver.synchronize(cl.CommandQueue(cl.Context([driver.device])))
    shuffled = cl.CommandQueue(driver.context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
    with pytest.raises(BackendError, match="out of order"):
        driver.synchronize(shuffled)


def test_a_device_borrows_a_queue() -> None:
    from lifetimes_opencl.runtime import cl

    with open_driver() as driver, lifetimes.open(driver) as device:
        queue = cl.CommandQueue(driver.context)
        before = queue.reference_count
        stream = device.borrow_stream(queue)
        assert device.borrow_stream(queue) is stream
        x = device.asarray(np.arange(100))
        device.call(lambda a: np.multiply(a, 2, out=a), x, stream=stream)
        assert (x.numpy() == 2 * np.arange(100)).all()
        stream.close()
        device.close()
        assert queue.reference_count == before
        queue.finish()


def test_a_context_of_somebody_else_is_used_and_outlives_us() -> None:
    from lifetimes_opencl.runtime import cl

    require()
    index = require()
    from lifetimes_opencl import probing

    found = probing.working()[index]
    context = cl.Context([cl.get_platforms()[found.platform_index].get_devices()[found.device_index]])
    before = context.reference_count
    with lifetimes.open(adopt(context)) as device:
        assert device.asarray([1, 2, 3]).numpy().sum() == 6
    assert context.reference_count == before
    queue = cl.CommandQueue(context)
    with lifetimes.open(adopt(queue)) as device:
        assert device.driver.context == context  # type: ignore[attr-defined]
    queue.finish()
    with pytest.raises(TypeError, match="int"):
        adopt(5)


def test_a_context_that_its_owner_has_released_goes_on_to_work_here() -> None:
    """The driver has a reference of its own."""
    with open_driver() as first:
        theirs = adopt(first.context)
        first.close()
        with lifetimes.open(theirs) as device:
            assert device.asarray([1, 2, 3]).numpy().sum() == 6
