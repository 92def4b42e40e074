"""Contexts: per thread, demanded, destroyed, and back under the same handle."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from lifetimes.backend import SupportsContext
from lifetimes.errors import BackendError, ClosedError
from lifetimes.testing.sim import ContextSimDriver, SimDriver, current_context

SECONDS = 20.0


@pytest.fixture
def driver() -> Any:
    driver: Any = SimDriver(4096, contexts=True)
    yield driver
    driver.restore(0)
    driver.close()


def test_only_a_driver_with_contexts_has_the_ability(driver: Any) -> None:
    assert isinstance(driver, ContextSimDriver)
    assert isinstance(driver, SupportsContext)
    assert not isinstance(SimDriver(), SupportsContext)
    assert not isinstance(SimDriver(contexts=False), SupportsContext)


def test_every_call_demands_the_context(driver: Any) -> None:
    other: Any = SimDriver(4096, contexts=True)
    data = np.zeros(8, np.uint8)
    driver.make_current()
    address, stream, event = driver.allocate(8), driver.create_stream(), driver.create_event()
    module = driver.load(driver.compile("def kernel(x): pass"))
    kernel = driver.function(module, "kernel")
    calls = [
        lambda: driver.allocate(8),
        lambda: driver.free(address),
        driver.memory_info,
        lambda: driver.copy_in(address, data, stream),
        lambda: driver.copy_out(data, address, stream),
        lambda: driver.copy(address, address, 0, stream),
        driver.create_stream,
        lambda: driver.destroy_stream(stream),
        driver.create_event,
        lambda: driver.destroy_event(event),
        lambda: driver.record(event, stream),
        lambda: driver.completed(event),
        lambda: driver.wait(event),
        lambda: driver.stream_wait(stream, event),
        lambda: driver.synchronize(stream),
        lambda: driver.compile(""),
        lambda: driver.load(b""),
        lambda: driver.unload(module),
        lambda: driver.function(module, "kernel"),
        lambda: driver.launch(kernel, (1,), (address,), stream),
        lambda: driver.view(address, 8),
        lambda: driver.call(int, (), stream),
    ]
    for current in (0, other.context):
        driver.restore(current)
        for call in calls:
            with pytest.raises(BackendError, match="wrong context"):
                call()
    assert len(driver.violations) == 2 * len(calls)
    assert (len(driver.live_blocks), len(driver.live_streams), len(driver.live_events)) == (1, 1, 1)
    driver.restore(0)
    other.close()


def test_what_is_current_belongs_to_the_thread(driver: Any) -> None:
    driver.make_current()
    seen = list[int]()
    thread = threading.Thread(target=lambda: seen.append(current_context()))
    thread.start()
    thread.join(SECONDS)
    assert seen == [0]
    assert current_context() == driver.context


def test_a_new_context_comes_back_under_the_handle_of_the_old(driver: Any) -> None:
    """Only a count of generations tells them apart (JuliaGPU/CUDA.jl#2346)."""
    handle, generation = driver.context, driver.generation
    driver.make_current()
    address, stream = driver.allocate(64), driver.create_stream()
    driver.copy_in(address, np.ones(64, np.uint8), stream)
    driver.destroy_context()
    assert (driver.live_blocks, driver.live_streams, driver.pending, driver.violations) == ({}, [], 0, [])
    driver.recreate_context()
    assert driver.context == handle
    assert driver.generation == generation + 1
    assert driver.allocate(64) == address, "the address comes back too: a late free would hit a stranger"
    assert driver.create_stream() == stream


def test_after_the_context_is_destroyed_every_call_is_a_violation(driver: Any) -> None:
    driver.make_current()
    address = driver.allocate(64)
    driver.destroy_context()
    for late in (lambda: driver.free(address), lambda: driver.allocate(1), driver.make_current):
        with pytest.raises(BackendError, match="after the context was destroyed"):
            late()
    assert len(driver.violations) == 3
    with pytest.raises(BackendError, match="already"):
        driver.destroy_context()
    driver.recreate_context()
    with pytest.raises(BackendError, match="has not been destroyed"):
        driver.recreate_context()


def test_restore_takes_a_handle_that_has_died(driver: Any) -> None:
    other: Any = SimDriver(4096, contexts=True)
    other.make_current()
    dead = driver.make_current()
    other.close()
    driver.restore(dead)
    assert current_context() == dead
    with pytest.raises(BackendError):
        driver.allocate(1)
    with pytest.raises(ClosedError):
        other.make_current()


def test_handles_are_new_each_time_if_asked() -> None:
    driver: Any = SimDriver(contexts=True, reuse_handles=False)
    before = driver.context
    driver.destroy_context()
    driver.recreate_context()
    assert driver.context != before
    driver.close()
