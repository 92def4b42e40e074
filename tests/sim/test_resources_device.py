"""Devices: two at once, closing with work in flight, and what others still hold in the end."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lifetimes
from lifetimes.errors import BackendError, BusyError, CleanupWarning, ClosedError, OwnershipError
from tests.resource_log import SOURCE, ReleaseLog, Watched, content, finished, one_of_each, settled

FORMS = pytest.mark.parametrize("form", [{}, {"contexts": True}], ids=["plain", "contexts"])


# Closing waits.


@FORMS
@pytest.mark.parametrize("work", ["launch", "call", "raw", "borrowed", "copy back"])
def test_close_waits_for_what_is_in_flight(form: dict[str, Any], work: str) -> None:
    """The driver never waits by itself; asked to, it lets everything happen.  Nothing is given back before that."""
    log, watched = ReleaseLog(), Watched(manual=True, **form)
    driver, asked = watched.driver, list[int]()
    waited_for: dict[int, Callable[[], None]] = {}
    synchronize = driver.synchronize

    def synchronizing(stream: int) -> None:
        waited_for.get(stream, int)()
        synchronize(stream)

    driver.synchronize = synchronizing
    with log:
        handles = one_of_each(driver, work if work in ("launch", "call") else "nothing")
        device, stream, array = handles["context"], handles["stream"], handles["array"]
        own: Any = None
        if work == "raw":
            device.driver.call(int, (), stream.handle)
        if work == "borrowed":
            watched.shared = True
            previous = driver.make_current() if form else None
            own = driver.create_stream()
            if form:
                driver.restore(previous)
            with device.use(read=[array], stream=device.borrow_stream(own)):
                device.driver.call(int, (), own)
        if work == "copy back":
            with device.use(write=[array]):
                device.driver.call(int, (), device.stream.handle)
            device.manager.evictor.evict_some(1)
        assert driver.pending

        def wait() -> None:
            asked.append(driver.pending)
            if work != "raw":  # of which the library knows nothing, so nothing of its own depends on it
                assert not driver.counts["free"] + driver.counts["unload"]
            driver.run_until_idle()
            if own is not None:
                previous = driver.make_current() if form else None
                driver.destroy_stream(own)
                if form:
                    driver.restore(previous)

        if work == "raw":
            waited_for[stream.handle] = wait
        else:
            driver.faults.before("wait", 1, wait)
        device.close()
        assert asked
        assert asked[0] > 0
        assert watched.closes == 1
    assert not log.problems() + watched.problems()


@FORMS
def test_close_without_waiting_comes_back_to_it(form: dict[str, Any]) -> None:
    log, watched = ReleaseLog(), Watched(manual=True, **form)
    with log:
        handles = one_of_each(watched.driver, "call")
        device = handles["context"]
        device.close(wait=False)
        assert device.closed
        assert handles["array"].closed
        assert watched.closes == 0
        with pytest.raises(ClosedError, match="device"):
            device.empty(3)
        lifetimes.drain()
        assert watched.closes == 0
        settled(watched.driver)
        assert watched.closes == 1
        device.close()
    assert not log.problems() + watched.problems()


def test_a_drop_with_work_in_flight_waits_for_nothing() -> None:
    watched = Watched(manual=True)
    handles = one_of_each(watched.driver, "call")
    waits = watched.driver.counts["wait"], watched.driver.counts["synchronize"]
    handles.clear()
    lifetimes.drain()
    assert (watched.driver.counts["wait"], watched.driver.counts["synchronize"]) == waits
    assert watched.closes == 0
    assert not finished(watched)


def test_work_that_failed_does_not_keep_the_device() -> None:
    def fail() -> None:
        raise ValueError("on the device")

    watched = Watched(manual=True)
    device = lifetimes.open(watched.driver)
    device.call(lambda view: fail(), device.zeros(3), stream=device.create_stream())
    del device
    assert not finished(watched)


def test_a_command_that_closes_its_own_device_does_not_wait_for_ever() -> None:
    """It cannot be waited for from inside.  What it closes goes when it has returned."""
    watched = Watched()
    device = lifetimes.open(watched.driver)
    closed: list[bool] = []

    def close() -> None:
        device.close(wait=False)
        closed.append(device.closed)

    device.call(close)
    watched.driver.run_until_idle()
    lifetimes.drain()
    assert closed == [True]
    assert not finished(watched)


# Pins.


@FORMS
@pytest.mark.parametrize("pin", ["use", "view use", "lifetime", "stream", "manager", "device"])
def test_close_while_pinned_is_refused_and_changes_nothing(form: dict[str, Any], pin: str) -> None:
    watched = Watched(**form)
    handles = one_of_each(watched.driver, "nothing", memory_limit="1MiB")
    device, array = handles["context"], handles["array"]
    pins: dict[str, Callable[[], Any]] = {
        "use": lambda: device.use(read=[array]),
        "view use": lambda: device.use(read=[handles["view"]]),
        "lifetime": lambda: array.use("a test"),
        "stream": handles["stream"].use,
        "manager": lambda: device.manager.use(array.key),
        "device": lambda: lifetimes.Lifetime.use(device),
    }
    with pins[pin]():
        before = lifetimes.live(), watched.driver.counts["destroy_stream"]
        for close in (device.close, lambda: device.close(wait=False), device.context.close):
            if pin == "manager" and close == device.context.close:
                continue  # which knows of no keys
            with pytest.raises(BusyError, match=f"thread {threading.get_ident()}"):
                close()
        assert [(row.key, row.state) for row in lifetimes.live()] == [(row.key, row.state) for row in before[0]]
        assert watched.driver.counts["destroy_stream"] == before[1]
        assert array.numpy()[1] == 1.0
        device.create_stream().close()
    device.close()
    handles.clear()
    assert not finished(watched)


def test_memory_used_by_its_key_outlives_a_dropped_device() -> None:
    """Nobody closes it under its user: it stays, with the driver it came from, as it does at the end of the process."""
    watched = Watched()
    device = lifetimes.open(watched.driver)
    key, manager = device.manager.add(np.arange(8.0)), device.manager
    with manager.use(key) as address:
        del device
        gc.collect()
        watched.driver.run_until_idle()
        lifetimes.drain()
        assert watched.driver.live_blocks == {address: watched.driver.live_blocks[address]}
        assert not watched.driver._closed
    assert not lifetimes.live()
    assert not watched.driver.violations


# Exceptions.


@FORMS
def test_an_exception_in_the_body_closes_everything(form: dict[str, Any]) -> None:
    log, watched = ReleaseLog(), Watched(**form)
    with log:
        with pytest.raises(ValueError, match="the body's own") as caught, lifetimes.open(watched.driver) as device:
            array = device.zeros(8)
            device.call(len, array)
            raise ValueError("the body's own")
        assert not hasattr(caught.value, "__notes__")
        assert array.closed  # though the traceback still holds both
        assert device.closed
        assert watched.closes == 1
    assert not log.problems() + watched.problems()


def test_failures_while_closing_are_notes_on_the_bodys_exception() -> None:
    watched = Watched()
    with pytest.raises(ValueError, match="the body's own") as caught, lifetimes.open(watched.driver) as device:
        device.add_finalizer(divide)
        array = device.zeros(8)
        array.add_finalizer(divide)
        raise ValueError("the body's own")
    notes = caught.value.__notes__
    assert len(notes) == 2
    assert all("while cleaning up: " in note and "ZeroDivisionError" in note for note in notes)
    assert watched.closes == 1


def divide() -> float:
    return 1 / 0


def test_failures_while_closing_are_raised_where_nothing_else_is() -> None:
    watched = Watched()
    with pytest.raises(ExceptionGroup, match="1 finalizer") as caught, lifetimes.open(watched.driver) as device:
        device.add_finalizer(divide)
    assert isinstance(caught.value.exceptions[0], ZeroDivisionError)
    assert not watched.problems()


def test_a_body_that_closes_its_own_device() -> None:
    watched = Watched(contexts=True)
    with lifetimes.open(watched.driver) as device:
        array = device.zeros(3)
        device.close()
        device.close()
        with pytest.raises(ClosedError, match="device"):
            device.zeros(3)
        with pytest.raises(ClosedError, match="array"):
            array.numpy()
    device.close()
    assert not watched.problems()


# Two devices.


def test_two_devices_at_once() -> None:
    """Of the same driver's kind and of different ones; each has its own arrays, limit and current block."""
    first, second = Watched(contexts=True), Watched()
    with (
        lifetimes.open(first.driver, memory_limit="64KiB") as a,
        lifetimes.open(second.driver, memory_limit="8KiB") as b,
    ):
        x, y = a.asarray(np.arange(1000.0)), b.asarray(np.arange(1000.0))
        assert (x.device, y.device) == (a, b)
        a.call(lambda view: np.multiply(view, 2, out=view), x)
        b.call(lambda view: np.multiply(view, 3, out=view), y)
        assert (x.numpy()[2], y.numpy()[2]) == (4.0, 6.0)
        assert a.statistics().limit == 64 << 10
        z = b.zeros(1000)
        with b.use(write=[z]):
            pass
        assert (a.statistics().evictions, b.statistics().evictions) == (0, 1)
        for mistake in (
            lambda: a.use(read=[x, y]),
            lambda: b.call(len, x),
            lambda: a.compile(SOURCE)["double"].launch(x, y, size=3),
            lambda: a.use(write=[y[1:]]),
        ):
            with pytest.raises(OwnershipError, match="belongs to"):
                mistake()
        assert a.statistics().pinned == b.statistics().pinned == 0
        a.close()
        assert y.numpy()[2] == 6.0
    assert not first.problems() + second.problems()


def test_a_back_end_that_runs_no_code_says_what_to_do() -> None:
    class Plain:
        """A driver without the abilities that are optional."""

        def __init__(self, upstream: Any) -> None:
            self._upstream = upstream

        def __getattr__(self, name: str) -> Any:
            if name in ("compile", "load", "unload", "function", "launch", "target", "view", "call"):
                raise AttributeError(name)
            return getattr(self._upstream, name)

    watched = Watched()
    plain: Any = Plain(watched.driver)
    with lifetimes.open(plain) as device:
        with pytest.raises(BackendError, match=r"Device\.call"):
            device.compile(SOURCE)
        with pytest.raises(BackendError, match="compile and launch"):
            device.call(len, device.zeros(3))
        assert device.asarray([1.0, 2.0]).numpy().tolist() == [1.0, 2.0]
    assert not watched.problems()


# Leaks.


@pytest.mark.parametrize("way", ["drop", "close", "with", "fail"])
def test_a_thousand_devices_leave_nothing(way: str) -> None:
    before = len(lifetimes.live())
    for _ in range(100):
        watched = Watched()
        try:
            if way == "with":
                with lifetimes.open(watched.driver) as device:
                    device.zeros(3).numpy()
            else:
                device = lifetimes.open(watched.driver, policy="lru" if way != "fail" else "none")
                array = device.zeros(3)
                if way == "close":
                    device.close()
                del array
        except ValueError:
            assert way == "fail"
        device = None  # type: ignore[assignment]
        assert watched.closes == 1
        assert not watched.problems()
    assert len(lifetimes.live()) == before


def test_failures_of_finalizers_are_told_when_a_device_is_dropped() -> None:
    watched = Watched()
    device = lifetimes.open(watched.driver)
    array = device.zeros(3)
    array.add_finalizer(divide)
    with pytest.warns(CleanupWarning, match=r"array #\d+ \(24 bytes\) failed: ZeroDivisionError"):
        del array
    device.add_finalizer(divide)
    gc.collect()  # what the failed finalizer's frames held
    with pytest.warns(CleanupWarning, match="device 'sim'"):
        del device
    settled(watched.driver, collect=True)
    assert not finished(watched)


def test_the_content_of_a_broken_device_is_not_taken_for_data() -> None:
    watched = Watched(manual=True)
    with lifetimes.open(watched.driver) as device:
        array = device.asarray([1.0])
        watched.driver.faults.fail("copy_in", at="completion")
        with device.use(read=[array]):
            pass
        device.call(len, array)
        with pytest.raises(lifetimes.BrokenError):
            content(watched.driver, array)
        watched.driver.run_until_idle()
