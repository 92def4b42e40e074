"""Virtual time: what completes when, what a wait does, and what manual mode refuses."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from lifetimes.errors import BackendError, ClosedError
from lifetimes.testing.sim import SimDriver, WouldBlock

SECONDS = 20.0


@pytest.fixture
def driver() -> SimDriver:
    return SimDriver(4096, manual=True)


def nothing() -> None:
    """A command."""


def test_time_passes_by_steps_only(driver: SimDriver) -> None:
    stream, event = driver.create_stream(), driver.create_event()
    for _ in range(3):
        driver.call(nothing, (), stream)
    driver.record(event, stream)
    assert (driver.now, driver.pending, driver.completed(event)) == (0.0, 3, False)
    assert (driver.step(), driver.now, driver.completed(event)) == (1, 1.0, False)
    assert (driver.step(5), driver.now, driver.completed(event)) == (2, 3.0, True)
    assert (driver.step(), driver.now) == (0, 3.0)


def test_steps_go_in_the_order_of_ends_across_streams(driver: SimDriver) -> None:
    order, durations = list[str](), iter([5.0, 2.0, 2.0, 7.0])
    driver.latency = lambda kind, nbytes: next(durations)
    first, second, third = (driver.create_stream() for _ in range(3))
    for name, stream in (("first", first), ("second a", second), ("second b", second), ("third", third)):
        driver.call(order.append, (name,), stream)
    times = []
    while driver.step():
        times.append(driver.now)
    assert order == ["second a", "second b", "first", "third"]
    assert times == [2.0, 4.0, 5.0, 7.0]


def test_a_command_starts_when_it_is_enqueued_or_when_its_turn_comes(driver: SimDriver) -> None:
    early, late = driver.create_stream(), driver.create_stream()
    driver.call(nothing, (), early)
    driver.run_until_idle()
    driver.call(nothing, (), late)
    driver.run_until_idle()
    assert driver.now == 2.0, "the second was enqueued at time 1, not before"


def test_a_waiting_stream_starts_after_the_event(driver: SimDriver) -> None:
    driver.latency = lambda kind, nbytes: 10.0 if kind == "copy_in" else 1.0
    first, second = driver.create_stream(), driver.create_stream()
    event, address, order = driver.create_event(), driver.allocate(8), list[str]()
    driver.copy_in(address, np.zeros(8, np.uint8), first)
    driver.record(event, first)
    driver.call(order.append, ("before",), second)
    driver.stream_wait(second, event)
    driver.call(order.append, ("after",), second)
    driver.step()
    assert (order, driver.now) == (["before"], 1.0)
    driver.step()
    assert (order, driver.now) == (["before"], 10.0)
    driver.step()
    assert (order, driver.now) == (["before", "after"], 11.0)


def test_manual_mode_refuses_to_wait_and_changes_nothing(driver: SimDriver) -> None:
    stream, event = driver.create_stream(), driver.create_event()
    driver.wait(event)
    driver.synchronize(stream)
    driver.call(nothing, (), stream)
    driver.record(event, stream)
    for wait in (lambda: driver.wait(event), lambda: driver.synchronize(stream)):
        with pytest.raises(WouldBlock, match="step"):
            wait()
        assert (driver.now, driver.pending) == (0.0, 1)
    driver.run_until_idle()
    driver.wait(event)
    driver.synchronize(stream)


def test_would_block_is_no_error_of_a_driver() -> None:
    """Code that handles errors of drivers must not swallow it."""
    assert not issubclass(WouldBlock, (BackendError, MemoryError, OSError))


def test_a_wait_lets_just_enough_time_pass() -> None:
    driver = SimDriver()
    first, second = driver.create_stream(), driver.create_stream()
    event = driver.create_event()
    driver.call(nothing, (), first)
    driver.record(event, first)
    driver.call(nothing, (), first)
    driver.call(nothing, (), second)
    driver.wait(event)
    assert driver.now == 1.0
    driver.synchronize(first)
    assert (driver.now, driver.pending) == (2.0, 0)


def test_asking_lets_no_time_pass() -> None:
    driver = SimDriver()
    stream, event = driver.create_stream(), driver.create_event()
    driver.call(nothing, (), stream)
    driver.record(event, stream)
    assert not any(driver.completed(event) for _ in range(10))
    assert (driver.now, driver.pending) == (0.0, 1)


@pytest.mark.parametrize("manual", [False, True])
def test_without_latency_work_is_done_at_once(manual: bool) -> None:
    driver = SimDriver(latency=0, manual=manual)
    stream, event, done = driver.create_stream(), driver.create_event(), list[int]()
    driver.call(done.append, (1,), stream)
    driver.record(event, stream)
    assert done == [1]
    assert driver.completed(event)
    driver.wait(event)


def test_without_latency_work_still_keeps_its_order() -> None:
    driver = SimDriver(latency=lambda kind, nbytes: 1.0 if kind == "copy_in" else 0.0, manual=True)
    stream, done, address = driver.create_stream(), list[int](), driver.allocate(4)
    driver.copy_in(address, np.zeros(4, np.uint8), stream)
    driver.call(done.append, (1,), stream)
    assert done == []
    driver.step(2)
    assert done == [1]


def test_latency_is_told_the_kind_and_the_bytes() -> None:
    asked = list[tuple[str, int]]()

    def latency(kind: str, nbytes: int) -> float:
        asked.append((kind, nbytes))
        return 1.0

    driver = SimDriver(latency=latency)
    stream, address = driver.create_stream(), driver.allocate(100)
    driver.copy_in(address, np.zeros(80, np.uint8), stream)
    driver.copy_out(np.zeros(20, np.uint8), address, stream)
    driver.copy(address, address + 50, 50, stream)
    driver.call(nothing, (), stream)
    assert asked == [("copy_in", 80), ("copy_out", 20), ("copy", 50), ("call", 0)]


def test_the_log_tells_calls_and_completions_in_order(driver: SimDriver) -> None:
    stream, event, address = driver.create_stream(), driver.create_event(), driver.allocate(8)
    driver.copy_in(address, np.zeros(8, np.uint8), stream)
    driver.record(event, stream)
    driver.step()
    driver.free(address)
    assert driver.log[-4:] == [
        ("copy_in", (address, 8, stream)),
        ("record", (event, stream)),
        ("copy_in done", (address, 8, stream)),
        ("free", address),
    ]


def test_a_completed_command_holds_nothing(driver: SimDriver) -> None:
    stream, address = driver.create_stream(), driver.allocate(8)
    source = np.zeros(8, np.uint8)
    alive = weakref.ref(source)
    driver.copy_in(address, source, stream)
    del source
    gc.collect()
    assert alive() is not None
    driver.step()
    assert alive() is None


def test_functions_of_commands_run_without_the_lock() -> None:
    """A function on a stream may wait for another thread that calls the driver."""
    driver = SimDriver()
    stream, seen = driver.create_stream(), list[int]()

    def ask_elsewhere() -> None:
        thread = threading.Thread(target=lambda: seen.append(driver.allocate(16)))
        thread.start()
        thread.join(SECONDS)
        assert not thread.is_alive()

    driver.call(ask_elsewhere, (), stream)
    driver.synchronize(stream)
    assert len(seen) == 1


def test_a_wait_for_work_that_another_thread_completes() -> None:
    """Two threads wait for one command: one completes it, the other sleeps until then."""
    driver, history = SimDriver(), list[str]()
    stream, event = driver.create_stream(), driver.create_event()
    entered, gate = threading.Event(), threading.Event()

    def slow() -> None:
        entered.set()
        gate.wait(SECONDS)
        history.append("done")

    driver.call(slow, (), stream)
    driver.record(event, stream)

    def wait() -> None:
        driver.wait(event)
        history.append("waited")

    threads = [threading.Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert entered.wait(SECONDS)
    gate.set()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()
    assert history == ["done", "waited", "waited"]


def test_a_wait_that_can_never_end_raises() -> None:
    driver = SimDriver()
    stream, event, after = driver.create_stream(), driver.create_event(), driver.create_event()

    def wait_for_what_comes_after_me() -> None:
        driver.record(event, stream)
        driver.wait(event)

    driver.call(wait_for_what_comes_after_me, (), stream)
    driver.record(after, stream)
    with pytest.raises(BackendError, match="waits for itself"):
        driver.wait(after)


def test_a_planned_reset_ends_a_wait(driver: SimDriver) -> None:
    driver.manual = False
    stream = driver.create_stream()
    driver.call(driver.close, (), stream)
    with pytest.raises((BackendError, ClosedError)):
        driver.synchronize(stream)
        driver.synchronize(stream)


def test_a_command_may_reset_the_device_that_runs_it() -> None:
    driver: Any = SimDriver(contexts=True)
    driver.make_current()
    stream = driver.create_stream()
    driver.call(driver.destroy_context, (), stream)
    driver.call(nothing, (), stream)
    driver.run_until_idle()
    assert driver.pending == 0
    driver.recreate_context()
    stream = driver.create_stream()
    driver.call(nothing, (), stream)
    driver.synchronize(stream)
    driver.check_invariants()
    driver.restore(0)
    driver.close()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_inside_a_command_is_the_waiters(kind: type[BaseException]) -> None:
    driver = SimDriver()
    stream = driver.create_stream()

    def interrupt() -> None:
        raise kind

    driver.call(interrupt, (), stream)
    with pytest.raises(kind):
        driver.synchronize(stream)
    driver.check_invariants()
    driver.synchronize(stream)
    assert driver.pending == 0


def test_an_event_recorded_behind_a_failed_command(driver: SimDriver) -> None:
    stream, event = driver.create_stream(), driver.create_event()
    driver.call(list[int]().pop, (), stream)
    driver.call(dict[str, int]().__getitem__, ("key",), stream)
    driver.record(event, stream)
    driver.run_until_idle()
    with pytest.raises(BackendError, match="pop from empty list") as caught:
        driver.completed(event)
    assert any("KeyError" in note for note in caught.value.__notes__)
