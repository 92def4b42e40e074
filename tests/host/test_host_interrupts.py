"""Streams of the host under Ctrl-C, signal handlers and finalizers, at any step."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from lifetimes.testing.disturb import interrupt, run_disturbed
from lifetimes_host import HostDriver
from lifetimes_host.driver import INLINE_BYTES
from lifetimes_host.marks import Mark

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


def test_ctrl_c_ends_a_wait_and_harms_nothing(driver: HostDriver) -> None:
    stream, event = driver.create_stream(), driver.create_event()
    release = held(driver, stream)
    driver.record(event, stream)
    main = threading.main_thread().ident
    assert main is not None

    def press() -> None:
        while not event.mark.waiters:  # until the wait below has begun to block
            pass
        signal.pthread_kill(main, signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    with pytest.raises(KeyboardInterrupt):
        driver.wait(event)
    presser.join(SECONDS)
    assert not driver.completed(event)
    release()
    driver.wait(event)
    assert driver.completed(event)


def test_an_interrupted_inline_command_gives_the_stream_back(driver: HostDriver) -> None:
    stream = driver.create_stream()
    with pytest.raises(KeyboardInterrupt):
        driver.call(interrupt, (), stream, short=True)
    assert stream.lane.idle()
    driver.synchronize(stream)


def interrupt_ours() -> None:
    """Ctrl-C, but not inside `threading`, which loses a thread that it is interrupted in starting."""
    if sys._getframe(2).f_code.co_filename != threading.__file__:
        raise KeyboardInterrupt


@pytest.mark.parametrize("nbytes", [100, INLINE_BYTES + 1])
def test_ctrl_c_at_any_step_of_a_copy_leaves_a_stream_that_works(nbytes: int) -> None:
    """Whatever was interrupted, what comes after it is done, in order, and every wait ends."""
    source, found = np.full(nbytes, 7, np.uint8), np.zeros(nbytes, np.uint8)

    def work(driver: HostDriver, stream: Any, event: Any, address: int) -> None:
        driver.copy_in(address, source, stream)
        driver.record(event, stream)
        driver.wait(event)

    interrupted = 0
    for step in range(10_000):
        driver = HostDriver(1 << 20)
        stream, event, address = driver.create_stream(), driver.create_event(), driver.allocate(nbytes)
        try:
            if not run_disturbed(work, driver, stream, event, address, step=step, act=interrupt_ours, after_calls=True):
                break
        except KeyboardInterrupt:
            interrupted += 1
        driver.wait(event)
        driver.copy_in(address, np.full(nbytes, 9, np.uint8), stream)
        found[:] = 0
        driver.copy_out(found, address, stream)
        driver.record(event, stream)
        driver.wait(event)
        assert (found == 9).all()
        driver.close()
    driver.close()
    assert interrupted > 12


def test_ctrl_c_at_any_step_on_a_busy_stream_leaves_events_that_end() -> None:
    """An interrupted `record` leaves the event as it was or recorded, never waiting for a mark that is in no queue."""

    def work(driver: HostDriver, stream: Any, event: Any) -> None:
        driver.call(int, (), stream)
        driver.record(event, stream)

    for step in range(10_000):
        driver = HostDriver(1 << 20)
        stream, event = driver.create_stream(), driver.create_event()
        release = held(driver, stream)
        try:
            if not run_disturbed(work, driver, stream, event, step=step, act=interrupt, after_calls=True):
                break
        except KeyboardInterrupt:
            pass
        release()
        driver.wait(event)
        driver.synchronize(stream)
        driver.close()
    release()
    driver.close()
    assert step > 8


@pytest.mark.parametrize("ask", ["wait", "completed"])
def test_a_queue_that_an_interrupt_left_asleep_is_woken_by_asking(driver: HostDriver, ask: str) -> None:
    stream, event = driver.create_stream(), driver.create_event()
    mark = Mark(stream.lane)
    stream.lane.queue.append((mark.finish, ()))  # and the interrupt came before wake()
    event.mark = mark
    if ask == "wait":
        driver.wait(event)
    while not driver.completed(event):
        pass


def test_an_interrupted_start_of_a_thread_is_made_up_for(driver: HostDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the thread had started or not, the lane goes on, and all its threads end."""
    before, start = workers(), threading.Thread.start
    presses = iter(["before", "after"])

    def press(self: threading.Thread) -> None:
        when = next(presses, "never")
        if when != "before":
            start(self)
        if when != "never":
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", press)
    stream, done = driver.create_stream(), list[int]()
    for number in range(2):
        with pytest.raises(KeyboardInterrupt):
            driver.call(done.append, (number,), stream)
    driver.call(done.append, (2,), stream)
    driver.synchronize(stream)
    assert done == [0, 1, 2]
    threads = workers() - before
    assert len(threads) == 2
    driver.close()
    assert not any(thread.is_alive() for thread in threads)


def test_a_finalizer_may_use_the_stream_that_it_interrupts(driver: HostDriver) -> None:
    """It runs anywhere inside a call; its own commands come after the interrupted one."""
    address, other = driver.allocate(4), driver.allocate(4)
    one, two = np.full(4, 1, np.uint8), np.full(4, 2, np.uint8)
    stream, event = driver.create_stream(), driver.create_event()

    def act() -> None:
        driver.copy_in(other, two, stream)
        driver.record(event, stream)
        driver.completed(event)

    for step in range(10_000):
        if not run_disturbed(driver.copy_in, address, one, stream, step=step, act=act, after_calls=True):
            break
        driver.synchronize(stream)
        assert driver.view(address, 4).tolist() == [1] * 4
        assert driver.view(other, 4).tolist() == [2] * 4
        driver.view(address, 4)[:] = driver.view(other, 4)[:] = 0
    assert step > 8
