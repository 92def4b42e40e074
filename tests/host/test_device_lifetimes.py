"""Devices of the host: real memory, real threads.  Orders of release, closing with work in flight, current devices."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import itertools
import sys
import threading
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

import lifetimes
from lifetimes import Device
from lifetimes.errors import BusyError, ClosedError
from lifetimes_host import HostDriver
from tests.resource_log import ReleaseLog

KINDS = ("context", "stream", "event", "array", "view")
SECONDS = 30.0
LIMIT = 1 << 20
LARGE = 100_000  # bytes: more than a copy that runs inline


class Gate:
    """Work on a stream that ends when the test says so."""

    def __init__(self) -> None:
        self.started, self.opened, self.ended = threading.Event(), threading.Event(), threading.Event()

    def __call__(self, *views: Any) -> None:
        self.started.set()
        assert self.opened.wait(SECONDS)
        for view in views:
            view[...] = 7
        self.ended.set()


def one_of_each(driver: HostDriver, gate: Gate | None = None) -> dict[str, Any]:
    """A device and one resource of each kind; with a gate, work that waits for it on the stream."""
    device = lifetimes.open(driver)
    stream = device.create_stream()
    array = device.asarray(np.arange(LARGE / 8))
    view = array[1:5]
    if gate is not None:
        device.call(gate, view, stream=stream)
    else:
        device.call(len, array, modes="r", stream=stream).wait()
    event = stream.record()
    return {"context": device, "stream": stream, "event": event, "array": array, "view": view}


def gone(driver: HostDriver) -> bool:
    """Whether the driver was closed, with all its memory given back before that."""
    return driver._refusal == "is closed" and not driver._streams and driver._memory.used == driver._memory.count == 0


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "in flight"])
def test_every_order_of_dropping(busy: bool) -> None:
    """BUG-011 (JuliaGPU/OpenCL.jl#279)."""
    for order in itertools.permutations(KINDS):
        driver, log, gate = HostDriver(LIMIT), ReleaseLog(), Gate() if busy else None
        with log:
            handles = one_of_each(driver, gate)
            for kind in order:
                if kind == "view" and len(handles) == 1 and gate is None:
                    assert handles["view"].numpy().tolist() == [1, 2, 3, 4]
                del handles[kind]
            if gate is not None:
                assert not gone(driver), "the memory is in use"
                gate.opened.set()
                assert gate.ended.wait(SECONDS)
                finish(driver)
        assert gone(driver), order
        assert not log.problems(), order


def finish(driver: HostDriver) -> None:
    """Wait for the streams, which have been told to end, and let a safe point see that they have."""
    for stream in list(driver._streams):
        driver.synchronize(stream)
    lifetimes.drain()


@pytest.mark.parametrize("wait", [True, False])
def test_every_order_of_closing(wait: bool) -> None:
    for order in itertools.permutations(KINDS):
        driver, log = HostDriver(LIMIT), ReleaseLog()
        with log:
            handles = one_of_each(driver)
            for kind in order:
                handles[kind].close(wait=wait)
            finish(driver) if not gone(driver) else None
        assert gone(driver), order
        assert not log.problems(), order
        assert all(handle.closed for handle in handles.values())


class Knot:
    def __init__(self, thing: object) -> None:
        self.thing = thing
        self.next: object = self


@pytest.mark.parametrize("frozen", [False, True], ids=["gc", "frozen"])
def test_in_a_cycle(frozen: bool) -> None:
    for turn in range(len(KINDS)):
        driver, log = HostDriver(LIMIT), ReleaseLog()
        with log:
            handles = one_of_each(driver)
            knots = [Knot(handles.pop(kind)) for kind in KINDS[turn:] + KINDS[:turn]]
            for knot, other in zip(knots, knots[1:] + knots[:1], strict=True):
                knot.next = other
            del knot, other, knots
            if frozen:
                gc.freeze()
                gc.collect()
                assert not gone(driver)
                gc.unfreeze()
            gc.collect()
            lifetimes.drain()
        assert gone(driver)
        assert not log.problems()


def in_a_closure(handles: dict[str, Any]) -> Callable[[], None]:
    kept: list[object] = [lambda: handles]
    return kept.clear


def in_a_module(handles: dict[str, Any]) -> Callable[[], None]:
    module = types.ModuleType("holds_host_resources")
    vars(module).update(handles)
    sys.modules[module.__name__] = module

    def let_go() -> None:
        del sys.modules["holds_host_resources"]

    return let_go


def in_a_traceback(handles: dict[str, Any]) -> Callable[[], None]:
    def fail(**kept: object) -> None:
        raise ValueError("kept")

    errors: list[BaseException] = []
    try:
        fail(**handles)
    except ValueError as error:
        errors.append(error)
    return errors.clear


@pytest.mark.parametrize("hold", [in_a_closure, in_a_module, in_a_traceback])
def test_whoever_holds_them(hold: Callable[[dict[str, Any]], Callable[[], None]]) -> None:
    driver, log = HostDriver(LIMIT), ReleaseLog()
    with log:
        let_go = hold(one_of_each(driver))
        gc.collect()
        assert not gone(driver)
        let_go()
        gc.collect()
        lifetimes.drain()
    assert gone(driver)
    assert not log.problems()


# Closing with work in flight.


def when_closing(device: Device, gate: Gate) -> threading.Thread:
    """Open the gate as soon as somebody has begun to close the device."""

    def run() -> None:
        assert gate.started.wait(SECONDS)
        asked = threading.Event()
        while not device.closed:
            asked.wait(0.001)
        gate.opened.set()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("way", ["close", "with", "exception"])
@pytest.mark.parametrize("where", ["default", "own"])
def test_close_waits_for_the_workers(way: str, where: str) -> None:
    driver, gate = HostDriver(LIMIT), Gate()
    device = lifetimes.open(driver)
    array = device.zeros(LARGE // 8)
    stream = device.create_stream() if where == "own" else None
    device.call(gate, array, stream=stream)
    thread = when_closing(device, gate)
    if way == "close":
        device.close()
    elif way == "with":
        with device:
            pass
    else:
        with pytest.raises(ZeroDivisionError), device:
            _ = 1 / 0
    assert gate.ended.is_set(), "closed before the work had ended"
    assert gone(driver)
    thread.join(SECONDS)
    assert array.closed


def test_a_drop_with_a_busy_worker_waits_for_nothing() -> None:
    driver, gate = HostDriver(LIMIT), Gate()
    device = lifetimes.open(driver)
    device.call(gate, device.zeros(LARGE // 8))
    assert gate.started.wait(SECONDS)
    del device
    lifetimes.drain()
    assert not gone(driver)
    assert [row.kind for row in lifetimes.live()] == ["context", "stream", "device"]
    gate.opened.set()
    finish(driver)
    assert gone(driver)


def test_close_without_waiting_is_finished_at_a_safe_point() -> None:
    driver, gate = HostDriver(LIMIT), Gate()
    device = lifetimes.open(driver)
    array = device.zeros(LARGE // 8)
    device.call(gate, array)
    device.close(wait=False)
    assert device.closed
    assert array.closed
    assert not gone(driver)
    with pytest.raises(ClosedError, match="device"):
        device.zeros(3)
    gate.opened.set()
    finish(driver)
    assert gone(driver)
    device.close()


def test_a_command_that_closes_its_own_device() -> None:
    driver, enqueued, done = HostDriver(LIMIT), threading.Event(), threading.Event()
    device = lifetimes.open(driver)

    def close() -> None:
        assert enqueued.wait(SECONDS)
        device.close(wait=False)
        assert not gone(driver), "the command itself is still at it"
        done.set()

    device.call(close)
    enqueued.set()
    assert done.wait(SECONDS)
    finish(driver)
    assert gone(driver)
    assert device.closed


def test_close_while_another_thread_uses_an_array() -> None:
    """Refused with the thread's number, and nothing is different afterwards."""
    driver = HostDriver(LIMIT)
    device = lifetimes.open(driver)
    array, inside, leave = device.asarray(np.arange(8.0)), threading.Event(), threading.Event()

    def use() -> int:
        with device.use(read=[array[2:]]):
            inside.set()
            assert leave.wait(SECONDS)
        return threading.get_ident()

    with ThreadPoolExecutor(1) as pool:
        using = pool.submit(use)
        assert inside.wait(SECONDS)
        before = [(row.key, row.state) for row in lifetimes.live()]
        with pytest.raises(BusyError, match=r"in use by thread \d+") as caught:
            device.close()
        with pytest.raises(BusyError), device:
            pass
        assert [(row.key, row.state) for row in lifetimes.live()] == before
        assert array.numpy()[1] == 1.0
        leave.set()
        assert str(using.result()) in str(caught.value)
    device.close()
    device.close()
    assert gone(driver)


def test_a_lost_device_lets_its_workers_go() -> None:
    """Nothing of it is asked or closed any more, and when it dies its threads end (the fixture of all tests looks)."""
    gate = Gate()
    device = lifetimes.open("host", memory_limit="1MiB")
    array = device.zeros(LARGE // 8)
    device.call(gate, array)
    assert gate.started.wait(SECONDS)
    device.lose("reset")
    with pytest.raises(ClosedError, match=r"context closed.*reset"):
        array.numpy()
    device.close()
    gate.opened.set()
    assert gate.ended.wait(SECONDS)
    assert array.closed
    del device, array
    gc.collect()


# Threads and tasks.


def test_each_thread_has_its_own_current_device() -> None:
    """BUG-088 (cupy/cupy#5006): nested, with exceptions, in a generator closed early."""
    shared = lifetimes.open("host", memory_limit="1MiB")
    barrier = threading.Barrier(4)

    def suspended() -> Iterator[Device]:
        with shared:
            yield lifetimes.current_device()

    def run(_: int) -> None:
        for _ in range(10):
            with lifetimes.open("host", memory_limit="1MiB") as own:
                barrier.wait(SECONDS)
                with shared:
                    generator = suspended()
                    assert next(generator) is shared
                    with pytest.raises(ZeroDivisionError), own, shared, own:
                        assert lifetimes.current_device() is own
                        raise ZeroDivisionError
                    generator.close()  # type: ignore[attr-defined]
                    assert lifetimes.current_device() is shared
                    barrier.wait(SECONDS)
                assert lifetimes.current_device() is own
            assert own.closed

    with shared:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(run, range(4)))
        assert lifetimes.current_device() is shared
        assert not shared.closed
    assert shared.closed


def test_each_task_has_its_own_current_device() -> None:
    async def work(turns: list[asyncio.Event], mine: int) -> None:
        with lifetimes.open("host", memory_limit="1MiB") as device:
            turns[mine].set()
            await turns[1 - mine].wait()
            assert lifetimes.current_device() is device
            await asyncio.sleep(0)
            assert lifetimes.current_device() is device

    async def main() -> None:
        turns = [asyncio.Event(), asyncio.Event()]
        with lifetimes.open("sim") as outer:
            await asyncio.gather(work(turns, 0), work(turns, 1))
            assert lifetimes.current_device() is outer

    asyncio.run(main())


def test_a_copied_context_keeps_the_current_device() -> None:
    with lifetimes.open("sim") as device:
        copied = contextvars.copy_context()
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(copied.run, lifetimes.current_device).result() is device
    other = copied.run(lifetimes.current_device)  # which is closed by now, so it is nobody's
    assert other.label == "host:0"
    other.close()


def test_threads_work_on_one_device() -> None:
    driver = HostDriver(LIMIT)
    with lifetimes.open(driver, memory_limit="256KiB") as device:
        barrier = threading.Barrier(6)

        def run(number: int) -> None:
            barrier.wait(SECONDS)
            stream = device.create_stream()
            for step in range(10):
                array, target = device.asarray(np.full(4000, float(number))), device.empty(4000)
                multiply = partial(lambda factor, a, b: np.multiply(a, factor, out=b), step)
                device.call(multiply, array, target, modes="rw", stream=stream)
                assert target[::-7].numpy()[0] == float(number) * step

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(run, range(6)))
        device.manager.check_invariants()
        gc.collect()  # an out-of-memory that was got over may have left frames in a cycle
        assert device.statistics().pinned == device.statistics().arrays == 0
    assert gone(driver)
