"""Closing an array: once, whoever closes it how often, and its views with it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import lifetimes
from lifetimes import Device, instrument
from lifetimes.errors import BusyError, ClosedError
from tests.resource_log import ReleaseLog, Watched, content, finished, settled

THREADS = 16


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched(manual=True)
    yield watched
    assert not finished(watched)


@pytest.fixture
def device(watched: Watched) -> Iterator[Device]:
    device = lifetimes.open(watched.driver)
    yield device
    watched.driver.run_until_idle()
    device.close()


class Releases:
    """How often each lifetime was released, and how often the manager forgot an entry."""

    def __init__(self, device: Device) -> None:
        self.log = ReleaseLog()
        self.device = device
        self.forgotten: list[int] = []

    def __enter__(self) -> Releases:
        manager = self.device.manager
        finish = manager.finish_release

        def counting(entry: Any) -> None:
            self.forgotten.append(entry.key)
            finish(entry)

        manager.finish_release = counting  # type: ignore[method-assign]
        instrument.subscribe(self.log)
        return self

    def __exit__(self, *exc_info: object) -> None:
        instrument.unsubscribe(self.log)
        del self.device.manager.finish_release


def test_close_twice_drop_the_views_collect(device: Device) -> None:
    """BUG-080 (JuliaGPU/AMDGPU.jl#353)."""
    with Releases(device) as releases:
        array = device.asarray(np.arange(8.0))
        views = [array[1:], array.T, array[::2]]
        array.close()
        array.close()
        assert all(view.closed for view in views)
        with pytest.raises(ClosedError, match="closed"):
            views[0].numpy()
        key = array.key
        del views
        array.close()
        del array
        gc.collect()
        lifetimes.drain()
    assert releases.forgotten == [key]
    assert not releases.log.problems()


@pytest.mark.parametrize("wait", [True, False])
def test_many_threads_close_at_once(device: Device, wait: bool) -> None:
    """BUG-080: one release, and nobody fails."""
    barrier = threading.Barrier(THREADS)
    for _ in range(10):
        with Releases(device) as releases:
            array = device.asarray(np.arange(8.0))
            views = [array[1:], array.T, array[::2]]
            things = [array, *views]

            def close(number: int, things: Any = things) -> None:
                barrier.wait(30)
                things[number % len(things)].close(wait=wait)

            with ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(close, range(THREADS)))
            lifetimes.drain()
        assert releases.forgotten == [array.key]
        assert not releases.log.problems()
        assert all(thing.closed for thing in things)
        device.manager.check_invariants()


def test_many_threads_close_the_device_and_its_arrays_at_once() -> None:
    barrier = threading.Barrier(THREADS)
    for _ in range(10):
        watched, log = Watched(contexts=True), ReleaseLog()
        with log:
            device = lifetimes.open(watched.driver)
            array = device.asarray(np.arange(8.0))
            device.call(lambda view: view.fill(1), array, stream=device.create_stream())
            things = [device, array, array[1:], device.context]

            def close(number: int, things: Any = things) -> None:
                barrier.wait(30)
                things[number % len(things)].close()

            with ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(close, range(THREADS)))
            settled(watched.driver)
        assert not log.problems() + watched.problems()


def test_closing_inside_a_finalizer(device: Device) -> None:
    """The array's own finalizer closes it again, and its base, and a stranger's."""
    with Releases(device) as releases:
        array, other = device.zeros(8), device.zeros(8)
        view, keys, done = array[1:], [], list[str]()
        keys += [array.key, other.key]
        handles = {"view": view, "array": array, "other": other}

        def close_all() -> None:
            done.append("finalizer")
            for handle in handles.values():
                handle.close()

        array_finalizer = close_all
        cell_holder = lifetimes.Lifetime("watch", array_finalizer, parents=[view])
        array.close()
        lifetimes.drain()
        assert done == ["finalizer"]
        assert all(handle.closed for handle in handles.values())
        assert cell_holder.closed
    assert sorted(releases.forgotten) == sorted(keys)
    assert not releases.log.problems()


def test_closing_a_device_from_a_finalizer_of_its_array() -> None:
    watched, log = Watched(), ReleaseLog()
    with log:
        device = lifetimes.open(watched.driver)
        array = device.zeros(8)
        array.add_finalizer(device.context.close)
        array.close()
        lifetimes.drain()
        assert device.closed
    assert not log.problems() + watched.problems()


def test_threads_that_use_and_one_that_closes(device: Device) -> None:
    """Each use either works or says that the array is closed; the closer is refused while somebody reads."""
    watched_driver: Any = device.driver.upstream  # type: ignore[attr-defined]
    watched_driver.manual = False
    barrier = threading.Barrier(5)
    for _ in range(20):
        array = device.asarray(np.arange(64.0))
        seen: list[object] = []

        def read(array: Any = array, seen: Any = seen) -> None:
            barrier.wait(30)
            for _ in range(10):
                try:
                    assert array[3:].numpy()[0] == 3.0
                except ClosedError:
                    seen.append("closed")
                    return

        def close(array: Any = array) -> None:
            barrier.wait(30)
            while not array.closed:
                try:
                    array.close()
                except BusyError:
                    continue

        with ThreadPoolExecutor(5) as pool:
            futures = [pool.submit(read) for _ in range(4)] + [pool.submit(close)]
            for future in futures:
                future.result(60)
        assert array.closed
        device.manager.check_invariants()
    assert device.statistics().arrays == 0


# Work in flight on what is closed.


def test_a_temporary_that_is_copied_from_lives_on(watched: Watched, device: Device) -> None:
    """A call on an array that nothing else refers to: its memory is neither freed nor reused before the step.

    BUG-017 (JuliaGPU/CUDA.jl#3087).
    """
    driver, seen = watched.driver, list[float]()
    device.call(lambda view: seen.append(float(view[5])), device.asarray(np.arange(1000.0)), modes="r")
    gc.collect()
    with device.use(write=[device.empty(1000)], stream=device.create_stream()):
        device.manager.memory.purge()
    assert driver.counts["free"] == 0
    driver.run_until_idle()
    assert seen == [5.0]
    assert device.manager.memory.purge()
    assert driver.counts["free"] == 2


def test_memory_used_on_two_streams_waits_for_both(watched: Watched, device: Device) -> None:
    """BUG-001 (inducer/pyopencl#447, pytorch/pytorch#181191, cupy/cupy#8068)."""
    driver = watched.driver
    first, second = device.create_stream(), device.create_stream()
    array = device.empty(1000)
    with device.use(write=[array], stream=first) as (address,):
        driver.call(int, (), first.handle)
    with device.use(read=[array], stream=second):
        driver.call(int, (), second.handle)
    array.close()
    for _ in range(2):
        other = device.empty(1000)
        with device.use(write=[other], stream=first) as (elsewhere,):
            assert elsewhere != address, "the second stream is not done"
        driver.step()
    again = device.empty(1000)
    with device.use(write=[again], stream=first) as (reused,):
        assert reused == address


# Two devices.


def test_to_device_copies_between_back_ends() -> None:
    here, there = Watched(), lifetimes.open("host")
    with lifetimes.open(here.driver) as device, there:
        array = device.asarray(np.arange(12.0).reshape(3, 4), label="x")
        moved = array[1:, ::-2].to_device(there)
        assert moved.device is there
        assert moved.numpy().tolist() == [[7, 5], [11, 9]]
        assert moved.label == "x"
        assert array.to_device(device) is array
        moved.write(0)
        assert array.numpy()[1, 3] == 7.0, "a copy"
        back = moved.to_device(device)
        assert back.numpy().tolist() == [[0, 0], [0, 0]]
        moved.close()
        with pytest.raises(ClosedError, match="array"):
            moved.to_device(device)
    with pytest.raises(ClosedError, match="device"):
        array.to_device(there)
    assert not here.problems()


def test_content_helper_restores_the_mode(watched: Watched, device: Device) -> None:
    array = device.asarray([1.0])
    assert content(watched.driver, array).tolist() == [1.0]
    assert watched.driver.manual
