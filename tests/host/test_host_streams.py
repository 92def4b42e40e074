"""Streams of the host: what runs where, what is held, what fails, what is interrupted."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any

import numpy as np
import pytest

from lifetimes.errors import BackendError, BusyError, CleanupWarning
from lifetimes_host import HostDriver
from lifetimes_host.driver import INLINE_BYTES
from lifetimes_host.lanes import Lane

SECONDS = 20.0


@pytest.fixture
def driver() -> Iterator[HostDriver]:
    driver = HostDriver(64 << 20)
    yield driver
    driver.check_invariants()
    driver.close()


def workers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("lifetimes-host-stream-")}


def held(driver: HostDriver, stream: Any) -> Callable[[], None]:
    """Keep the stream's worker busy; returns once it is."""
    busy, gate = threading.Event(), threading.Event()

    def hold() -> None:
        busy.set()
        gate.wait(SECONDS)

    driver.call(hold, (), stream)
    assert busy.wait(SECONDS)
    return gate.set


# What runs where.
def test_short_copies_on_an_idle_stream_start_no_thread(driver: HostDriver) -> None:
    before = workers()
    stream, event = driver.create_stream(), driver.create_event()
    address, data = driver.allocate(2 * INLINE_BYTES), np.ones(INLINE_BYTES, np.uint8)
    driver.copy_in(address, data, stream)
    driver.copy(address + INLINE_BYTES, address, INLINE_BYTES, stream)
    driver.copy_out(data, address, stream)
    driver.record(event, stream)
    assert driver.completed(event)
    driver.synchronize(stream)
    assert workers() == before


def test_a_longer_copy_goes_to_a_named_daemon_thread(driver: HostDriver) -> None:
    before = workers()
    stream = driver.create_stream()
    address = driver.allocate(INLINE_BYTES + 1)
    for _ in range(3):
        driver.copy_in(address, np.ones(INLINE_BYTES + 1, np.uint8), stream)
    driver.synchronize(stream)
    (worker,) = workers() - before
    assert worker.daemon
    assert worker.name.rpartition("-")[2].isdigit()


def test_a_call_runs_on_the_worker_unless_it_is_short_and_the_stream_idle(driver: HostDriver) -> None:
    stream, where = driver.create_stream(), list[int]()
    note = lambda: where.append(get_ident())  # noqa: E731
    driver.call(note, (), stream, short=True)
    driver.call(note, (), stream)
    driver.synchronize(stream)
    release = held(driver, stream)
    driver.call(note, (), stream, short=True)
    assert len(where) == 2, "it waits for its turn"
    release()
    driver.synchronize(stream)
    here, worker, late = where
    assert here == get_ident()
    assert worker == late != here


def test_a_short_command_does_not_overtake(driver: HostDriver) -> None:
    stream, order = driver.create_stream(), list[object]()
    release = held(driver, stream)
    driver.call(order.append, ("queued",), stream)
    driver.call(order.append, ("short",), stream, short=True)
    release()
    driver.synchronize(stream)
    driver.call(order.append, ("inline",), stream, short=True)
    assert order == ["queued", "short", "inline"]


def test_commands_that_come_during_an_inline_command_run_after_it(driver: HostDriver) -> None:
    stream, order = driver.create_stream(), list[object]()

    def inline() -> None:
        thread = threading.Thread(target=lambda: driver.call(order.append, ("other",), stream, short=True))
        thread.start()
        thread.join(SECONDS)
        assert not thread.is_alive(), "the other thread did not wait"
        driver.call(order.append, ("nested",), stream, short=True)
        order.append("inline")

    driver.call(inline, (), stream, short=True)
    driver.synchronize(stream)
    assert order == ["inline", "other", "nested"]


def test_a_worker_that_came_too_early_is_woken_again(driver: HostDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds an inline command at work and goes to sleep; what was left in the queue still runs, unasked."""
    stream, done, tries = driver.create_stream(), threading.Event(), threading.Semaphore(0)
    run_queued = Lane.run_queued

    def told(lane: Lane) -> None:
        run_queued(lane)
        tries.release()

    monkeypatch.setattr(Lane, "run_queued", told)

    def inline() -> None:
        driver.call(done.set, (), stream)
        assert all(tries.acquire(timeout=SECONDS) for _ in ("at its start", "when woken"))
        assert not done.is_set()

    driver.call(inline, (), stream, short=True)
    assert done.wait(SECONDS)


def test_without_a_new_thread_the_caller_does_the_work(driver: HostDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the exit of the interpreter, or when the system has no thread left."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    stream, event = driver.create_stream(), driver.create_event()
    address, found = driver.allocate(1 << 20), np.zeros(1 << 20, np.uint8)
    driver.copy_in(address, np.full(1 << 20, 3, np.uint8), stream)
    driver.copy_out(found, address, stream)
    driver.record(event, stream)
    driver.wait(event)
    assert found.all()


# What is held.
def test_a_resting_worker_holds_nothing(driver: HostDriver) -> None:
    """The last command's arguments are gone once it is done, with no further command to push them out."""

    class Thing:
        pass

    stream, done = driver.create_stream(), threading.Event()
    thing = Thing()
    alive = weakref.ref(thing, lambda _: done.set())
    driver.call(lambda thing: None, (thing,), stream)
    del thing
    assert done.wait(SECONDS)
    assert alive() is None


def test_a_dropped_stream_still_does_its_work_and_ends_its_thread() -> None:
    driver = HostDriver(1 << 20)
    before = workers()
    stream, order = driver.create_stream(), list[object]()
    release = held(driver, stream)
    (worker,) = workers() - before
    driver.call(order.append, (1,), stream)
    driver.destroy_stream(stream)
    release()
    worker.join(SECONDS)
    assert not worker.is_alive()
    assert order == [1]
    driver.close()


# What fails.
def test_an_inline_failure_is_told_by_the_event_too(driver: HostDriver) -> None:
    stream, event = driver.create_stream(), driver.create_event()
    driver.call(int, ("no number",), stream, short=True)
    driver.record(event, stream)
    with pytest.raises(BackendError, match="no number"):
        driver.completed(event)
    driver.record(event, stream)
    assert driver.completed(event)


def test_every_failure_before_an_event_is_told(driver: HostDriver) -> None:
    stream, event = driver.create_stream(), driver.create_event()
    for word in ("one", "two", "three"):
        driver.call(int, (word,), stream)
    driver.record(event, stream)
    with pytest.raises(BackendError, match="'one'") as caught:
        driver.wait(event)
    notes = "\n".join(caught.value.__notes__)
    assert "'two'" in notes
    assert "'three'" in notes
    assert "Traceback" in notes


def test_a_worker_survives_system_exit(driver: HostDriver) -> None:
    stream, event = driver.create_stream(), driver.create_event()

    def leave() -> None:
        raise SystemExit(3)

    driver.call(leave, (), stream)
    driver.record(event, stream)
    with pytest.raises(BackendError, match="SystemExit: 3"):
        driver.wait(event)
    driver.call(lambda: None, (), stream)
    driver.synchronize(stream)


@pytest.mark.parametrize("end", ["destroy_stream", "close"])
def test_a_failure_that_no_event_told_is_a_warning_at_the_end(end: str) -> None:
    driver = HostDriver(1 << 20)
    stream = driver.create_stream()
    driver.call(int, ("no number",), stream)
    driver.synchronize(stream)
    with pytest.warns(CleanupWarning, match="no number"):
        driver.destroy_stream(stream) if end == "destroy_stream" else driver.close()
    driver.close()


def test_waiting_for_oneself_is_refused(driver: HostDriver) -> None:
    """A command that waits for an event behind itself would wait for ever, inline and on the worker."""
    stream, event, mine = driver.create_stream(), driver.create_event(), driver.create_event()
    errors: list[BaseException] = []

    def wait_for_myself() -> None:
        driver.record(mine, stream)
        for wait in (lambda: driver.wait(mine), lambda: driver.synchronize(stream)):
            try:
                wait()
            except BusyError as error:
                errors.append(error)

    for short in (True, False):
        driver.call(wait_for_myself, (), stream, short=short)
        driver.record(event, stream)
        driver.wait(event)
    assert len(errors) == 4


def test_dead_and_foreign_handles_are_refused(driver: HostDriver) -> None:
    stream, event = driver.create_stream(), driver.create_event()
    driver.destroy_event(event)
    driver.destroy_stream(stream)
    live, address = driver.create_stream(), driver.allocate(16)
    data = np.zeros(16, np.uint8)
    calls: list[Callable[[], object]] = [
        lambda: driver.copy_in(address, data, stream),
        lambda: driver.copy_out(data, address, stream),
        lambda: driver.copy(address, address + 8, 8, stream),
        lambda: driver.call(int, (), stream),
        lambda: driver.record(driver.create_event(), stream),
        lambda: driver.synchronize(stream),
        lambda: driver.destroy_stream(stream),
        lambda: driver.copy_in(address, data, None),  # type: ignore[arg-type]
        lambda: driver.synchronize(7),  # type: ignore[arg-type]
        lambda: driver.record(event, live),
        lambda: driver.completed(event),
        lambda: driver.wait(event),
        lambda: driver.stream_wait(live, event),
        lambda: driver.destroy_event(event),
        lambda: driver.completed(None),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(BackendError, match=r"destroyed|is no (stream|event)"):
            call()


def test_nothing_refers_back_to_a_dropped_driver() -> None:
    """It dies by its count of references, with no help of the collector."""
    gc.disable()
    try:
        driver = HostDriver(1 << 20)
        stream, event = driver.create_stream(), driver.create_event()
        driver.copy_in(driver.allocate(100_000), np.zeros(100_000, np.uint8), stream)
        driver.record(event, stream)
        driver.wait(event)
        alive = weakref.ref(driver)
        del driver
        assert alive() is None
    finally:
        gc.enable()
