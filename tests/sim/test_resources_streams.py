"""Streams and events: recycled when they have finished, kept apart when they failed, borrowed without being touched."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import lifetimes
from lifetimes import Device
from lifetimes.errors import BackendError, BrokenError, BusyError, ClosedError, OwnershipError
from lifetimes.resources.identity import IdentityMap
from lifetimes.testing.disturb import run_disturbed
from tests.resource_log import SOURCE, Watched, finished, interrupt_outside


@pytest.fixture(params=[{}, {"contexts": True}], ids=["plain", "contexts"])
def watched(request: pytest.FixtureRequest) -> Iterator[Watched]:
    """A driver that never waits: time passes when the test says so.  In the end nothing may be left of it."""
    watched = Watched(manual=True, **request.param)
    yield watched
    assert not finished(watched)


@pytest.fixture
def device(watched: Watched) -> Iterator[Device]:
    device = lifetimes.open(watched.driver)
    yield device
    watched.driver.run_until_idle()
    device.close()


def work(device: Device, stream: Any, function: Callable[[], object] = int) -> None:
    """Something on a stream that the library does not know of: the user's own call."""
    device.driver.call(function, (), stream.handle)  # type: ignore[attr-defined]


def fail() -> None:
    raise ValueError("on the device")


def recorded(driver: Any, since: int = 0) -> list[Any]:
    """The raw streams that events were recorded on."""
    return [detail[1] for kind, detail in driver.log[since:] if kind == "record"]


# Recycling.


def test_a_drop_makes_no_driver_call(watched: Watched, device: Device) -> None:
    stream, event, kernel = device.create_stream(), device.create_event(), device.compile(SOURCE)["nothing"]
    array = device.empty(100)
    with device.use(write=[array[3:]], stream=stream):
        work(device, stream)
    event.record(stream)
    counts = watched.driver.counts.copy()
    del stream
    event.close()
    array.close()
    del array
    assert watched.driver.counts == counts
    del kernel  # the last of its module, which has to be unloaded
    assert watched.driver.counts["unload"] == 1


def test_a_finished_stream_is_handed_out_again(watched: Watched, device: Device) -> None:
    first = device.create_stream()
    timeline, created = first.timeline, watched.driver.counts["create_stream"]
    del first
    assert device.create_stream(label="again").timeline is timeline
    assert watched.driver.counts["create_stream"] == created


@pytest.mark.parametrize("known", [True, False], ids=["counted", "raw"])
def test_a_busy_stream_is_not_handed_out(watched: Watched, device: Device, known: bool) -> None:
    """Not even when its work is the user's own, which nobody has counted."""
    first = device.create_stream()
    timeline = first.timeline
    if known:
        device.call(int, stream=first)
    else:
        work(device, first)
    del first
    second = device.create_stream()
    assert second.timeline is not timeline
    watched.driver.run_until_idle()
    assert device.create_stream().timeline is timeline


def test_a_failed_stream_is_not_handed_out_and_goes_with_the_context(watched: Watched, device: Device) -> None:
    first = device.create_stream()
    timeline = first.timeline
    work(device, first, fail)
    watched.driver.run_until_idle()
    del first
    others = [device.create_stream() for _ in range(3)]
    assert timeline not in [other.timeline for other in others]
    assert timeline.handle in watched.driver.live_streams


def test_a_busy_event_is_not_handed_out(watched: Watched, device: Device) -> None:
    stream = device.create_stream()
    work(device, stream)
    event = stream.record()
    handle = event.value
    event.close()
    assert device.create_event().value != handle
    watched.driver.run_until_idle()
    again = [device.create_event() for _ in range(2)]
    assert handle in [event.value for event in again]


def test_an_event_that_tells_a_failure_itself_is_not_handed_out(watched: Watched, device: Device) -> None:
    """The user's own recording of it, past the library."""
    event, stream = device.create_event(), device.create_stream()
    handle = event.value
    work(device, stream, fail)
    device.driver.record(handle, stream.handle)
    watched.driver.run_until_idle()
    with pytest.raises(BackendError, match="on the device"):
        event.completed()
    event.close()
    assert handle not in [device.create_event().value for _ in range(2)]
    assert handle in watched.driver.live_events


def test_many_threads_share_one_reservoir() -> None:
    watched = Watched(contexts=True)
    device = lifetimes.open(watched.driver)
    barrier = threading.Barrier(8)
    in_use: set[object] = set()

    def run(_: int) -> None:
        barrier.wait(30)
        for _ in range(20):
            stream, event = device.create_stream(), device.create_event()
            both = {stream.timeline.key, ("event", event.value)}
            assert not both & in_use, "handed out twice"
            in_use.update(both)
            device.call(int, stream=stream)
            event.record(stream)
            in_use.difference_update(both)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(8)))
    device.close()
    assert not watched.problems()


@pytest.mark.parametrize("what", ["create_stream", "create_event", "borrow", "record"])
def test_ctrl_c_at_any_step_of_a_creation_loses_no_handle(watched: Watched, device: Device, what: str) -> None:
    """However far it got, the handle is destroyed with the context at the latest; `watched` looks."""
    creations: dict[str, Callable[[], object]] = {
        "create_stream": device.create_stream,
        "create_event": device.create_event,
        "borrow": lambda: device.borrow_stream(0x77),
        "record": device.stream.record,
    }
    kept: list[object] = []
    for step in itertools.count():
        try:
            if not run_disturbed(creations[what], step=step, act=interrupt_outside, after_calls=True):
                break
        except KeyboardInterrupt:
            pass
        if step % 2 and what.startswith("create"):
            kept.append(creations[what]())  # so that the next one is made, and not handed out again
    assert step > 20
    gc.collect()
    lifetimes.drain()
    assert len(device._known) == 0


def test_ctrl_c_at_any_step_of_a_use_leaves_nothing_pinned(watched: Watched, device: Device) -> None:
    array, other, stream = device.zeros(8), device.zeros(8), device.create_stream()

    def use() -> None:
        with device.use(read=[array[1:]], write=[other], stream=stream):
            pass

    for step in itertools.count():
        try:
            if not run_disturbed(use, step=step, act=interrupt_outside, after_calls=True):
                break
        except KeyboardInterrupt:
            pass
        assert device.statistics().pinned == 0, f"step {step}"
    assert step > 200
    gc.collect()
    lifetimes.drain()
    pins = {row.kind: row.pins for row in lifetimes.live() if row.pins}
    assert not pins
    stream.close()


# Order of memory.


def test_a_dropped_array_is_ordered_after_its_last_use_on_each_stream(watched: Watched, device: Device) -> None:
    """Allocated on one stream, used on another, dropped: free after the other, and nothing is asked of the default.

    BUG-086 (NVIDIA/cuda-python#779).
    """
    driver, s1, s2 = watched.driver, device.create_stream(), device.create_stream()
    array = device.empty(1000)
    with device.use(write=[array], stream=s1) as (address,):
        pass
    with device.use(read=[array], stream=s2):
        work(device, s2)
    start = len(driver.log)
    array.close()
    assert not device.manager.memory.purge(), "the second stream is not done"
    assert ("free", address) not in driver.log
    driver.run_until_idle()
    assert device.manager.memory.purge()
    log = driver.log[start:]
    done = next(place for place, (kind, _) in enumerate(log) if kind == "call done")
    assert log.index(("free", address)) > done
    assert device.stream.handle not in recorded(driver, start)


def test_a_closed_streams_tickets_still_hold_the_memory(watched: Watched, device: Device) -> None:
    """BUG-001 (inducer/pyopencl#447), and BUG-085 where the stream is ours: it stays until its work is done."""
    driver, stream = watched.driver, device.create_stream()
    array = device.empty(1000)
    with device.use(write=[array], stream=stream) as (address,):
        work(device, stream)
    stream.close()
    array.close()
    other = device.empty(1000)
    with device.use(write=[other]) as (elsewhere,):
        assert elsewhere != address
    driver.run_until_idle()
    third = device.empty(1000)
    with device.use(write=[third]) as (again,):
        assert again == address


def test_a_stream_that_somebody_uses_cannot_be_closed(device: Device) -> None:
    stream, array = device.create_stream(), device.empty(8)
    with device.use(write=[array], stream=stream):
        with pytest.raises(BusyError, match=r"device\.use"):
            stream.close()
        timeline = stream.timeline
        del stream
        other = device.create_stream()
        assert other.timeline is not timeline, "not handed out while the block goes on"


# Borrowed streams.


class Owner:
    """Owns a stream of the driver, as another library would."""

    def __init__(self, watched: Watched) -> None:
        watched.shared = True
        self.driver = driver = watched.driver
        self.previous = driver.make_current() if hasattr(driver, "make_current") else None
        self.handle = driver.create_stream()
        self.leave()

    def enter(self) -> None:
        if self.previous is not None:
            self.previous = self.driver.make_current()

    def leave(self) -> None:
        if self.previous is not None:
            self.driver.restore(self.previous)

    def destroy(self) -> None:
        self.enter()
        self.driver.destroy_stream(self.handle)
        self.leave()


def test_each_use_of_a_borrowed_stream_records_at_once(watched: Watched, device: Device) -> None:
    owner = Owner(watched)
    stream, array = device.borrow_stream(owner.handle, owner=owner), device.empty(8)
    uses: list[Callable[[], object]] = [
        lambda: use_and_leave(device, array, stream),
        stream.work,
        stream.record,
        lambda: device.call(int, stream=stream),
        lambda: device.call(len, array, modes="r", stream=stream),
        lambda: device.compile(SOURCE)["nothing"].launch(size=1, stream=stream),
    ]
    for use in uses:
        before = len(recorded(watched.driver))
        use()
        assert owner.handle in recorded(watched.driver)[before:]
    watched.driver.run_until_idle()
    stream.close()
    lifetimes.drain()
    owner.destroy()


def use_and_leave(device: Device, array: Any, stream: Any) -> None:
    with device.use(write=[array], stream=stream):
        pass


def test_a_dead_borrowed_handle_is_never_used_again(watched: Watched, device: Device) -> None:
    """The owner destroys the stream, the runtime gives its handle to another one, which is busy.  Nothing waits for that.

    BUG-085 (pytorch/pytorch#66941).
    """
    driver, owner = watched.driver, Owner(watched)
    stream, array = device.borrow_stream(owner.handle, owner=owner), device.empty(1000)
    with device.use(write=[array], stream=stream) as (address,):
        work(device, stream)
    driver.run_until_idle()
    stream.close()
    owner.destroy()
    other = Owner(watched)
    assert other.handle == owner.handle, "the same handle, another stream"
    other.enter()
    driver.call(int, (), other.handle)  # which goes on
    other.leave()
    start = len(driver.log)
    array.close()
    reused = device.empty(1000)
    with device.use(write=[reused]) as (again,):
        assert again == address, "not delayed by the stranger"
    device.manager.memory.purge()
    device.borrow_stream(0x77).close()
    used = [detail for _, detail in driver.log[start:] if detail == owner.handle or (isinstance(detail, tuple) and
            owner.handle in detail)]  # fmt: skip
    assert not used
    driver.run_until_idle()
    other.destroy()


def test_tickets_of_a_borrowed_stream_outlive_it(watched: Watched, device: Device) -> None:
    """Closed with its work in flight: the events that were recorded at once still tell."""
    driver, owner = watched.driver, Owner(watched)
    stream, array = device.borrow_stream(owner.handle), device.empty(1000)
    with device.use(write=[array], stream=stream) as (address,):
        work(device, stream)
    stream.close()
    array.close()
    other = device.empty(1000)
    with device.use(write=[other]) as (elsewhere,):
        assert elsewhere != address
    driver.run_until_idle()
    owner.destroy()
    third = device.empty(1000)
    with device.use(write=[third]) as (again,):
        assert again == address


def test_borrowing_for_ever_keeps_few_events(watched: Watched, device: Device) -> None:
    owner = Owner(watched)
    for _ in range(100):
        device.borrow_stream(owner.handle).work()
        watched.driver.run_until_idle()
    assert len(watched.driver.live_events) < 10
    lifetimes.drain()
    owner.destroy()


def test_a_borrowed_stream_is_never_destroyed_and_keeps_its_owner(watched: Watched, device: Device) -> None:
    owner = Owner(watched)
    handle, alive = owner.handle, weakref.ref(owner)
    stream = device.borrow_stream(handle, owner=owner)
    known = device._known
    weakref.finalize(owner, lambda: found.append(len(known)))
    found: list[int] = []
    del owner
    gc.collect()
    assert alive() is not None
    del stream
    gc.collect()
    assert alive() is None
    assert found == [0], "the entry had left the map before the owner went"
    assert handle in watched.driver.live_streams
    assert ("destroy_stream", handle) not in watched.driver.log
    previous = watched.driver.make_current() if hasattr(watched.driver, "make_current") else None
    watched.driver.destroy_stream(handle)
    if previous is not None:
        watched.driver.restore(previous)


def test_the_same_handle_gives_the_same_object(device: Device) -> None:
    stream = device.borrow_stream(0x77)
    assert device.borrow_stream(0x77) is stream
    assert device.borrow_stream(0x78) is not stream
    key = stream.key
    stream.close()
    again = device.borrow_stream(0x77)
    assert again is not stream
    assert again.key != key
    del stream, again
    assert len(device._known) == 0
    with lifetimes.open("sim") as other:
        assert other.borrow_stream(0x77) is not device.borrow_stream(0x77)


def test_the_same_object_from_threads_that_ask_at_once(device: Device) -> None:
    barrier = threading.Barrier(8)
    for handle in range(30):

        def borrow(_: int, handle: int = handle) -> Any:
            barrier.wait(30)
            return device.borrow_stream(handle)

        with ThreadPoolExecutor(8) as pool:
            streams = list(pool.map(borrow, range(8)))
        assert len({id(stream) for stream in streams}) == 1
        assert not streams[0].closed
    assert len(device._known) == 1  # the last one is still held here
    del streams


def test_of_two_that_are_made_at_once_one_is_given_up() -> None:
    """Both threads found nothing, so both have made one."""
    known, barrier, made = IdentityMap(), threading.Barrier(2), list[lifetimes.Lifetime[int]]()

    def make() -> lifetimes.Lifetime[int]:
        own = lifetimes.Lifetime.borrow(0x1)
        made.append(own)
        barrier.wait(30)
        return own

    with ThreadPoolExecutor(2) as pool:
        got = list(pool.map(lambda _: known.get_or_make(("sim", 1, "stream", 0x1), make), range(2)))
    assert got[0] is got[1]
    assert sorted(each.closed for each in made) == [False, True]
    assert len(known) == 1
    got[0].close()
    assert len(known) == 0


def test_a_handle_that_cannot_be_a_key_is_refused(device: Device) -> None:
    before = len(lifetimes.live())
    with pytest.raises(TypeError, match="unhashable"):
        device.borrow_stream([1])
    assert len(lifetimes.live()) == before


# Events, and what they tell.


def test_a_failure_is_told_to_the_event_and_to_the_arrays(watched: Watched, device: Device) -> None:
    """The first event behind the failure tells it; it must not be the user's alone."""
    device.compile(SOURCE)
    array, stream = device.asarray(np.zeros(8)), device.create_stream()
    with device.use(write=[array], stream=stream):
        work(device, stream, fail)
    event = stream.record()
    event.close()
    watched.driver.run_until_idle()
    for _ in range(2):
        with pytest.raises(BackendError, match="on the device"):
            event.completed()
        with pytest.raises(BackendError, match="on the device"):
            event.wait()
    with pytest.raises(BrokenError, match="on the device"):
        array.numpy()


def test_an_event_keeps_no_frames_of_who_asked_it(watched: Watched, device: Device) -> None:
    stream = device.create_stream()
    work(device, stream, fail)
    event = stream.record()
    watched.driver.run_until_idle()

    class Local:
        pass

    def ask() -> weakref.ref[Local]:
        local = Local()
        with pytest.raises(BackendError):
            event.wait()
        return weakref.ref(local)

    alive = ask()
    gc.collect()
    assert alive() is None


def test_an_event_is_a_task_and_stays_one_when_it_is_closed(watched: Watched, device: Device) -> None:
    stream, released = device.create_stream(), list[str]()
    work(device, stream)
    event = stream.record()
    waiting = lifetimes.Lifetime("x", released.append, "x").after(event)
    event.close()
    del waiting
    assert not event.completed()
    assert not released
    watched.driver.run_until_idle()
    lifetimes.drain()
    assert released == ["x"]
    assert event.completed()


def test_what_waits_for_an_event_of_a_device_survives_its_end(watched: Watched) -> None:
    device = lifetimes.open(watched.driver)
    released: list[str] = []
    work(device, device.stream)
    event = device.stream.record()
    waiting = lifetimes.Lifetime("x", released.append, "x", parents=[device]).after(event)
    watched.driver.faults.before("wait", 1, watched.driver.run_until_idle)
    device.close()
    assert released == ["x"]
    assert event.completed()
    event.wait()
    assert waiting.closed
    assert not watched.driver.faults.waiting


def test_an_event_that_was_never_recorded_counts_as_completed(device: Device) -> None:
    event = device.create_event()
    assert event.completed()
    event.wait()
    device.stream.wait_for(event)


def test_a_stream_waits_for_an_event_of_another(watched: Watched, device: Device) -> None:
    first, second, done = device.create_stream(), device.create_stream(), list[str]()
    work(device, first, lambda: done.append("first"))
    second.wait_for(first.record())
    work(device, second, lambda: done.append("second"))
    watched.driver.run_until_idle()
    assert done == ["first", "second"]
    assert first.idle
    assert second.idle


def test_work_of_a_stream_is_a_task(watched: Watched, device: Device) -> None:
    stream = device.create_stream()
    work(device, stream)
    pending = stream.work()
    assert not pending.completed()
    assert not stream.idle
    watched.driver.run_until_idle()
    assert pending.completed()
    stream.synchronize()
    work(device, stream, fail)
    pending = stream.work()
    watched.driver.run_until_idle()
    with pytest.raises(BackendError, match="on the device"):
        pending.wait()


def test_synchronize_tells_each_failure_once(watched: Watched, device: Device) -> None:
    """Also one that an earlier mark has told the arrays about already."""
    watched.driver.manual = False
    array, stream = device.zeros(3), device.create_stream()
    device.call(lambda view: fail(), array, stream=stream)
    device.call(int, stream=stream)
    with pytest.raises(BackendError, match="on the device"):
        stream.synchronize()
    stream.synchronize()
    del stream
    device.create_stream().synchronize()


# Mistakes.


def test_streams_and_events_of_another_device_are_refused(device: Device) -> None:
    with lifetimes.open("sim") as other:
        stream, event, array = other.create_stream(), other.create_event(), device.empty(8)
        mistakes: list[Callable[[], object]] = [
            lambda: device.use(read=[array], stream=stream),
            lambda: device.use(read=[array], stream=stream.timeline),
            lambda: device.call(int, stream=stream),
            lambda: device.stream.wait_for(event),
            lambda: device.stream.record(event),
            lambda: event.record(device.stream),
        ]
        for mistake in mistakes:
            with pytest.raises(OwnershipError, match=r"another device|different devices"):
                mistake()
        with pytest.raises(TypeError, match="stream is wanted"):
            device.use(read=[array], stream="first")


def test_a_closed_stream_and_event_say_so(device: Device) -> None:
    stream, event, array = device.create_stream(), device.create_event(), device.empty(8)
    stream.close()
    mistakes: list[Callable[[], object]] = [
        lambda: stream.timeline,
        lambda: stream.handle,
        lambda: stream.idle,
        stream.record,
        stream.synchronize,
        lambda: stream.wait_for(event),
        lambda: device.use(read=[array], stream=stream),
    ]
    for mistake in mistakes:
        with pytest.raises(ClosedError, match="stream"):
            mistake()
    event.close()
    for mistake in (lambda: device.stream.record(event), lambda: device.stream.wait_for(event)):
        with pytest.raises(ClosedError, match="event"):
            mistake()
