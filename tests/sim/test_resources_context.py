"""Contexts: made current for each call and given back on any thread; and what is left of a device when they die."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import lifetimes
from lifetimes.errors import BackendError, CleanupWarning, ClosedError, OutOfMemory
from lifetimes.resources.guard import GuardedDriver
from lifetimes.testing.disturb import interrupt, run_disturbed
from lifetimes.testing.sim import ContextSimDriver, SimDriver, current_context
from tests.resource_log import KINDS, ReleaseLog, Watched, one_of_each, settled


def context_driver(**options: Any) -> ContextSimDriver:
    driver = SimDriver(contexts=True, **options)
    assert isinstance(driver, ContextSimDriver)
    return driver


@pytest.fixture
def foreign() -> Iterator[ContextSimDriver]:
    """Another device, whose context somebody makes current."""
    driver = context_driver()
    yield driver
    driver.close()


def on_a_thread(run: Callable[[], object]) -> None:
    """Run to the end on a thread of its own; what it raises is raised here."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(run).result(60)


# Current, and back.


@pytest.mark.parametrize("where", ["nothing current", "another current", "worker", "collector"])
@pytest.mark.parametrize("what", [("kernel", "module"), KINDS])
def test_a_drop_runs_in_its_own_context(what: tuple[str, ...], where: str, foreign: ContextSimDriver) -> None:
    """BUG-014 (NVIDIA/cuda-python#2497): the driver accepts a call under its own context only."""
    watched = Watched(contexts=True)
    handles = one_of_each(watched.driver, "nothing")
    dropped = [[handles.pop(kind) for kind in what]]
    if where == "collector":
        dropped.append(dropped)  # a list that holds itself goes only with a collection
    previous = foreign.make_current() if where == "another current" else None
    before, calls = current_context(), watched.driver.counts["unload"]

    def drop(dropped: list[Any]) -> None:
        mine = current_context()
        dropped.clear()
        lifetimes.drain()
        assert current_context() == mine

    if where == "worker":
        on_a_thread(lambda: drop(dropped))
    elif where == "collector":
        del dropped
        gc.collect()
        lifetimes.drain()
    else:
        drop(dropped)
    assert current_context() == before
    assert watched.driver.counts["unload"] == calls + 1
    if previous is not None:
        foreign.restore(previous)
    handles.clear()
    assert not watched.problems()


def test_a_failed_unload_is_told_and_the_rest_goes() -> None:
    """BUG-014: a failure is not taken for success."""
    log, watched = ReleaseLog(), Watched(contexts=True)
    with log:
        handles = one_of_each(watched.driver, "nothing")
        watched.driver.faults.fail("unload")
        del handles["kernel"]
        with pytest.warns(CleanupWarning, match="planned fault in unload"):
            del handles["module"]
        handles.clear()
        settled(watched.driver, collect=True)  # the failure's traceback may have held something
    assert not log.problems()
    assert len(watched.left) == 1  # the module that the driver would not unload
    assert not watched.driver.violations


@pytest.mark.parametrize("step", ["make_current", "allocate", "restore"])
def test_a_failing_call_leaves_the_callers_context(step: str, foreign: ContextSimDriver) -> None:
    driver = context_driver()
    guarded = GuardedDriver(driver)
    previous = foreign.make_current()
    driver.faults.fail(step, error=BackendError)
    with pytest.raises(BackendError, match="planned fault"):
        guarded.allocate(64)
    if step != "restore":  # what the runtime refuses to restore, nobody can
        assert current_context() == foreign.context
    foreign.restore(previous)
    driver.close()


def test_ctrl_c_at_any_step_of_a_call_leaves_the_callers_context(foreign: ContextSimDriver) -> None:
    driver = context_driver()
    guarded = GuardedDriver(driver)
    previous = foreign.make_current()
    struck = 0
    for step in itertools.count():
        try:
            if not run_disturbed(guarded.memory_info, step=step, act=interrupt, after_calls=True):
                break
        except KeyboardInterrupt:
            struck += 1
        assert current_context() == foreign.context, f"an interrupt at step {step}"
    assert struck > 20
    foreign.restore(previous)
    driver.close()


def test_threads_with_different_contexts_end_where_they_began() -> None:
    """One device used by four threads, nested, with exceptions, in a generator closed early.

    BUG-088 (cupy/cupy#5006).
    """
    others = [context_driver() for _ in range(4)]
    shared = context_driver()
    barrier = threading.Barrier(len(others))
    with lifetimes.open(shared) as device:

        def suspended() -> Generator[int]:
            with device, device.use(write=[device.empty(8)]) as (address,):
                yield address

        def run(own: ContextSimDriver) -> None:
            previous = own.make_current()
            assert lifetimes.current_device() is not device
            for _ in range(20):
                barrier.wait(30)
                generator = suspended()
                assert next(generator)
                with device:
                    with pytest.raises(ZeroDivisionError), device:
                        device.zeros(8).numpy()
                        _ = 1 / 0
                    assert lifetimes.current_device() is device
                    generator.close()
                    assert lifetimes.current_device() is device
                assert current_context() == own.context
            assert lifetimes.current_device() is shared_host
            own.restore(previous)
            assert current_context() == 0

        shared_host = default_device()
        with ThreadPoolExecutor(len(others)) as pool:
            list(pool.map(run, others))
        assert lifetimes.current_device() is device
        assert not device.closed
        shared_host.close()
    assert device.closed
    for other in others:
        other.close()
    assert not shared.violations


def default_device() -> lifetimes.Device:
    """What a thread gets that is in no block."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lifetimes.current_device).result()


# After the context died.


def lost(work: str = "launch", **options: Any) -> tuple[ContextSimDriver, dict[str, Any]]:
    """One of each, and then the context is gone."""
    driver = context_driver()
    handles = one_of_each(driver, work, **options)
    driver.destroy_context()
    driver.violations.clear()  # that there was work in flight is the destroyer's fault
    handles["context"].lose("reset")
    return driver, handles


@pytest.mark.parametrize("work", ["launch", "call", "nothing"])
@pytest.mark.parametrize("how", ["drop", "close", "close and wait"])
def test_late_resources_make_no_driver_call(how: str, work: str) -> None:
    """BUG-034 (JuliaGPU/CUDA.jl#2346): dropping and closing do nothing to the driver, and the counts come right."""
    for turn in range(len(KINDS)):
        order = KINDS[turn:] + KINDS[:turn]
        log = ReleaseLog()
        with log:
            driver, handles = lost(work)
            manager = handles["context"].manager
            counts = driver.counts.copy()
            for kind in order:
                handle = handles.pop(kind)
                if how != "drop":
                    handle.close(wait=how == "close and wait")
                del handle
            lifetimes.drain()
        assert driver.counts == counts, order
        assert not driver.violations + log.problems()
        manager.check_invariants()
        statistics = manager.statistics()
        assert (statistics.arrays, statistics.reserved_bytes, statistics.held_bytes) == (0, 0, 0)


USES: dict[str, Callable[[dict[str, Any]], object]] = {
    "asarray": lambda of: of["context"].asarray([1]),
    "empty": lambda of: of["context"].empty(3),
    "create_stream": lambda of: of["context"].create_stream(),
    "create_event": lambda of: of["context"].create_event(),
    "borrow_stream": lambda of: of["context"].borrow_stream(7),
    "compile": lambda of: of["context"].compile(""),
    "call": lambda of: of["context"].call(int),
    "use": lambda of: of["context"].use(read=[of["array"]]).__enter__(),
    "numpy": lambda of: of["array"].numpy(),
    "write": lambda of: of["array"].write(0),
    "evict": lambda of: of["array"].evict(),
    "to_device": lambda of: of["array"].to_device(lifetimes.current_device()),
    "view numpy": lambda of: of["view"].numpy(),
    "kernel": lambda of: of["module"]["double"],
    "launch": lambda of: of["kernel"].launch(of["view"], of["array"], size=4),
    "idle": lambda of: of["stream"].idle,
    "work": lambda of: of["stream"].work(),
    "record": lambda of: of["stream"].record(),
    "record event": lambda of: of["event"].record(of["stream"]),
    "synchronize": lambda of: of["stream"].synchronize(),
    "wait_for": lambda of: of["stream"].wait_for(of["event"]),
    "completed": lambda of: of["event"].completed(),
    "wait": lambda of: of["event"].wait(),
    "allocate": lambda of: of["context"].driver.allocate(16),
    "step": lambda of: of["context"].driver.step(),  # what this driver has beyond the protocol
    "manager": lambda of: of["context"].manager.add(16),
}


@pytest.mark.parametrize("use", USES)
def test_using_what_was_lost_says_so(use: str) -> None:
    """BUG-034: "context closed", and no driver call."""
    driver, handles = lost()
    counts = driver.counts.copy()
    with lifetimes.open("host"), pytest.raises(ClosedError, match="closed"):
        USES[use](handles)
    assert driver.counts == counts
    handles.clear()


def test_a_context_lost_in_the_middle_of_a_use() -> None:
    """It is a fact, so nobody can refuse it; the block ends without a call, and then everything goes."""
    driver = context_driver()
    handles = one_of_each(driver)
    device, array = handles["context"], handles["array"]
    with array.use(), device.use(read=[array]), device.manager.use(array.key):
        driver.destroy_context()
        driver.violations.clear()
        device.lose()
        counts = driver.counts.copy()
        with pytest.raises(ClosedError, match="context closed"):
            array.numpy()
        with pytest.raises(lifetimes.BusyError):
            device.close()
    device.close()
    assert driver.counts == counts
    assert all(handle.closed for handle in handles.values())


def test_losing_twice_and_losing_what_is_closed() -> None:
    driver, handles = lost()
    handles["context"].lose("again")
    handles["context"].close()
    handles["context"].lose("and again")
    assert not handles["context"].context.alive
    assert not driver.violations


def test_work_that_a_lifetime_waited_for_was_lost_with_the_context() -> None:
    driver = context_driver()
    handles = one_of_each(driver)
    released: list[str] = []
    waiting = lifetimes.Lifetime("x", released.append, "x").after(handles["event"])
    driver.destroy_context()
    handles["context"].lose("reset")
    with pytest.warns(CleanupWarning, match="work that .* was waiting for failed"):
        del waiting
    assert released == ["x"]
    handles.clear()


def test_a_new_context_with_the_same_raw_handle_is_another_one() -> None:
    """BUG-034: nothing of the old one is handed out by the new one, and the old ones stay dead."""
    driver = context_driver()
    handles = one_of_each(driver, "nothing", memory_limit="1MiB")
    old = handles["context"]
    pooled = old.empty(1000)
    with old.use(write=[pooled]) as (address,):
        pass
    del pooled
    assert old.statistics().held_blocks
    raw = driver.context
    before = old.borrow_stream(0x77)
    driver.destroy_context()
    driver.recreate_context()
    old.lose("reset")
    assert driver.context == raw

    new = lifetimes.open(driver)
    assert new.context.generation != old.context.generation
    assert new.borrow_stream(0x77) is not before
    allocations = driver.counts["allocate"]
    array = new.empty(1000)
    with new.use(write=[array]) as (again,):
        assert again == address, "the driver gives out the old address"
        assert driver.counts["allocate"] == allocations + 1, "and it is the driver's, not the old pool's"
    new.call(lambda view: view.fill(3.0), array, modes="w").wait()
    with pytest.raises(ClosedError, match="context closed"):
        handles["array"].numpy()
    counts = driver.counts.copy()
    handles.clear()
    old.close()
    del old, before
    lifetimes.drain()
    assert driver.counts == counts
    assert array.numpy()[0] == 3.0
    array.close()
    new.close()
    assert not driver.violations


# The end of a context.


def test_each_step_of_the_end_is_taken_whatever_fails() -> None:
    watched = Watched(contexts=True)
    handles = one_of_each(watched.driver, "nothing")
    spare = [handles["context"].create_event() for _ in range(3)]
    for kind in ("synchronize", "destroy_event", "destroy_stream"):
        watched.driver.faults.fail(kind, 2 if kind == "synchronize" else 1)
    with pytest.raises(ExceptionGroup) as caught:
        handles["context"].close()
    names = repr(caught.value.exceptions)
    assert all(name in names for name in ("synchronize", "destroy_event", "destroy_stream")), names
    assert watched.closes == 1
    assert len(watched.left) == 2  # one stream and one event that the driver would not destroy
    assert all(event.closed for event in spare)
    assert not watched.driver.violations


def test_ctrl_c_in_one_step_of_the_end_does_not_lose_the_others() -> None:
    watched = Watched()
    device = lifetimes.open(watched.driver)
    events = [device.create_event() for _ in range(3)]
    watched.driver.faults.before("destroy_event", 1, interrupt)
    with pytest.raises(KeyboardInterrupt):
        device.close()
    assert watched.closes == 1
    assert len(watched.left) == 1
    del events


# Memory for what is created.


@pytest.mark.parametrize("held_by", ["pool", "clean array", "dirty array"])
@pytest.mark.parametrize("what", ["stream", "event", "module"])
def test_a_creation_is_tried_again_after_memory_was_given_back(what: str, held_by: str) -> None:
    watched = Watched(contexts=True)
    driver = watched.driver
    device = lifetimes.open(driver)
    creations: dict[str, Callable[[], Any]] = {
        "stream": device.create_stream,
        "event": device.create_event,
        "module": lambda: device.compile(""),
    }
    array = device.asarray(np.arange(100.0))
    with device.use(read=[array]):
        pass
    if held_by == "dirty array":
        device.call(lambda view: np.add(view, 1, out=view), array).wait()
    if held_by == "pool":
        array.close()
    call = "load" if what == "module" else f"create_{what}"
    driver.faults.fail(call, error=OutOfMemory)
    frees = driver.counts["free"]
    made = creations[what]()
    assert driver.counts["free"] == frees + 1
    assert driver.in_use == 0
    made.close()
    if held_by != "pool":
        assert array.numpy()[2] == (3.0 if held_by == "dirty array" else 2.0)
    device.close()
    assert not watched.problems()


def test_a_creation_that_keeps_failing_says_so_and_leaves_nothing() -> None:
    watched = Watched()
    device = lifetimes.open(watched.driver)
    before = len(lifetimes.live())
    for call, create in (
        ("create_stream", device.create_stream),
        ("create_event", device.create_event),
        ("load", lambda: device.compile("")),
    ):
        watched.driver.faults.fail(call, error=OutOfMemory, times=2)
        with pytest.raises(OutOfMemory):
            create()
        assert len(lifetimes.live()) == before
        create().close()
    device.close()
    assert not watched.problems()


def test_only_out_of_memory_is_tried_again() -> None:
    watched = Watched()
    device = lifetimes.open(watched.driver)
    watched.driver.faults.fail("create_stream")
    with pytest.raises(BackendError, match="planned fault"):
        device.create_stream()
    device.close()
    assert not watched.problems()


def test_making_room_that_needs_an_event_itself_does_not_go_round_in_circles() -> None:
    """The array that has to go was written on another stream, so its copy back records an event, which fails too."""
    watched = Watched()
    driver = watched.driver
    device = lifetimes.open(driver)
    arrays, stream = [device.empty(8) for _ in range(50)], device.create_stream()
    with device.use(write=arrays, stream=stream):
        pass
    driver.faults.fail("create_event", error=OutOfMemory, times=None)
    tries = driver.counts["create_event"]
    with pytest.warns(CleanupWarning, match="stays on the device"), pytest.raises(OutOfMemory):
        device.create_event()
    assert driver.counts["create_event"] - tries < 10
    driver.faults.clear()
    device.create_event().close()
    device.close()
    assert not watched.problems()
