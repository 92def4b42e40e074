"""Ctrl-C, or another thread, at each step of each call: nothing is lost, nothing is done twice, nothing hangs."""

from __future__ import annotations

import gc
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from lifetimes.errors import BackendError
from lifetimes.testing.disturb import interrupt, run_disturbed
from tests.opencl.here import hold_back, wait_for

SECONDS = 20.0
SOURCE = "__kernel void add(__global int *x, int n) { x[get_global_id(0)] += n; }"


def interrupted_at_each_step(prepare: Callable[[], Any], call: Callable[[Any], Any]) -> Iterator[tuple[Any, list[Any]]]:
    """What was prepared, and in a list what the call returned, if it did, for an interrupt at one step after the other."""
    for step in range(500):
        prepared = prepare()
        returned: list[Any] = []

        def run(prepared: Any = prepared, returned: list[Any] = returned) -> None:
            returned.append(call(prepared))

        try:
            if not run_disturbed(run, step=step, act=interrupt, after_calls=True):
                return
        except KeyboardInterrupt:
            if not returned and innermost() in ("run", "<lambda>"):
                continue  # before or behind the call: whoever calls it sees to that (`Lifetime.acquire`)
        yield prepared, returned
    raise AssertionError("the call has more steps than that")


def innermost() -> str:
    """The function that the exception in flight interrupted."""
    frames = traceback.extract_tb(sys.exc_info()[2])
    return [frame.name for frame in frames if not frame.filename.endswith("disturb.py")][-1]


def test_allocate(driver: Any) -> None:
    for used, returned in interrupted_at_each_step(lambda: driver.blocks.used, lambda _: driver.allocate(512)):
        for address in returned:
            driver.free(address)
        assert driver.blocks.used == used
        driver.check_invariants()
        assert driver.blocks.pointers.keys() == driver.blocks._blocks.keys()


def test_free(driver: Any) -> None:
    for address, _ in interrupted_at_each_step(lambda: driver.allocate(512), driver.free):
        if driver.blocks.get(address) is not None:
            driver.free(address)
        driver.check_invariants()
        assert address not in driver.blocks.pointers


def test_create_stream(driver: Any) -> None:
    for known, returned in interrupted_at_each_step(lambda: set(driver._streams), lambda _: driver.create_stream()):
        for stream in returned:
            driver.destroy_stream(stream)
        assert driver._streams == known


@pytest.mark.parametrize("way", ["in", "out", "launch", "inside"])
def test_what_is_enqueued_is_held_or_is_not_enqueued(driver: Any, way: str) -> None:
    from lifetimes_opencl.runtime import cl

    stream, address, data = driver.create_stream(), driver.allocate(4096), np.zeros(1024, np.int32)
    module = driver.load(driver.compile(SOURCE))
    function = driver.function(module, "add")
    function.spare.extend(cl.Kernel(module.program, "add") for _ in range(300))  # no step of PyOpenCL's is disturbed
    calls: dict[str, Callable[[Any], object]] = {
        "in": lambda _: driver.copy_in(address, data, stream),
        "out": lambda _: driver.copy_out(data, address, stream),
        "launch": lambda _: driver.launch(function, (64,), (address, 1), stream),
        "inside": lambda _: driver.launch(function, (64,), (address + 4, 1), stream),
    }
    for _ in interrupted_at_each_step(lambda: None, calls[way]):
        driver.synchronize(stream)
        assert not stream.pending


def fail() -> None:
    raise ValueError("told once")


@pytest.mark.parametrize("call", ["record", "record again", "destroy_event"])
def test_a_failure_is_told_exactly_once(shared: Any, call: str) -> None:
    stream = shared.create_stream()

    def prepare() -> Any:
        event = shared.create_event()
        shared.call(fail, (), stream)
        if call != "record":
            shared.record(event, stream)
        return event

    def times_told(*events: Any) -> int:
        told = 0
        for event in events:
            try:
                shared.wait(event)
            except BackendError:
                told += 1
        return told

    act = shared.destroy_event if call == "destroy_event" else lambda event: shared.record(event, stream)
    for event, _ in interrupted_at_each_step(prepare, act):
        further = [shared.create_event() for _ in range(2)]
        first = 0 if "destroyed" in repr(event) else times_told(event)
        for each in further:
            shared.record(each, stream)
        assert first + times_told(*further) == 1
    with suppress(BackendError):
        wait_for(shared, stream)  # of the last one


def test_a_function_is_run_in_its_place_or_not_at_all(shared: Any) -> None:
    """And in no case does what stands behind it wait for ever, or its thread end."""
    for (stream, ran), returned in interrupted_at_each_step(
        lambda: (shared.create_stream(), []), lambda prepared: shared.call(prepared[1].append, (1,), prepared[0])
    ):
        behind: list[int] = []
        shared.call(lambda ran=ran, behind=behind: behind.append(len(ran)), (), stream)
        waiting = threading.Thread(target=wait_for, args=(shared, stream), daemon=True)
        waiting.start()
        waiting.join(SECONDS)
        assert not waiting.is_alive(), "what stands behind it waits for ever"
        assert behind == [len(ran)], "it ran late"
        assert len(ran) <= 1
        assert ran or not returned
        shared.destroy_stream(stream)


@pytest.mark.parametrize("way", ["copy", "function"])
def test_a_queue_that_another_thread_thinks_idle_is_not_forgotten_in_use(shared: Any, way: str) -> None:
    """Another thread looks between the moment when the stream of a queue is found and the one when it is used."""
    from lifetimes_opencl.runtime import cl

    queue, address = cl.CommandQueue(shared.context), shared.allocate(1000)

    def look() -> None:
        shared.check_stream(cl.CommandQueue(shared.context))  # a new one: those that are idle are forgotten

    for step in range(500):
        source = np.full(1000, step % 251, np.uint8)
        alive = weakref.ref(source)
        shared.destroy_stream(queue)
        release = hold_back(shared, queue)
        shared.check_stream(queue)  # known, and idle as far as anybody can see
        if way == "copy":
            more = run_disturbed(shared.copy_in, address, source, queue, step=step, act=look, after_calls=True)
            del source
            gc.collect()
            assert alive() is not None, "the source of a copy on its way was let go"
            release()
            shared.synchronize(queue)
        else:
            more = run_disturbed(shared.call, fail, (), queue, step=step, act=look, after_calls=True)
            release()
            with pytest.raises(BackendError, match="told once"):
                wait_for(shared, queue)
        if not more:
            return
    raise AssertionError("the call has more steps than that")
