"""Modules and kernels: loaded as long as anything of them is held or in flight, and not longer."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lifetimes
from lifetimes import Device
from lifetimes.errors import (
    BackendError,
    BrokenError,
    BusyError,
    ClosedError,
    CompileError,
    OutOfMemory,
    OwnershipError,
)
from lifetimes.resources.in_flight import LastLaunches
from lifetimes.testing.disturb import run_disturbed
from tests.resource_log import SOURCE, ReleaseLog, Watched, content, finished, interrupt_outside


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


# A module stays while a kernel of it is in flight.


@pytest.mark.parametrize("order", list(itertools.permutations(["module", "kernel", "stream", "array"])))
@pytest.mark.parametrize("streams", [1, 3])
def test_a_module_stays_until_its_launches_have_finished(
    watched: Watched, device: Device, streams: int, order: tuple[str, ...]
) -> None:
    driver = watched.driver
    handles: dict[str, Any] = {"module": device.compile(SOURCE)}
    handles["kernel"] = handles["module"]["double"]
    handles["stream"] = [device.create_stream() for _ in range(streams)]
    handles["array"] = device.asarray(np.arange(8.0))
    for stream in handles["stream"]:
        handles["kernel"].launch(handles["array"], handles["array"], size=8, modes="rw", stream=stream)
    stream = None
    for kind in order:
        del handles[kind]
    for _ in range(streams):  # each is one command, and the copy up is another
        lifetimes.drain()
        assert driver.counts["unload"] == 0
        assert len(driver.live_modules) == 1
        while driver.step() and not driver.log[-1][0].startswith("launch done"):
            pass
    driver.run_until_idle()
    lifetimes.drain()
    assert driver.counts["unload"] == 1
    done = [place for place, (kind, _) in enumerate(driver.log) if kind == "launch done"]
    assert len(done) == streams
    assert max(done) < next(place for place, (kind, _) in enumerate(driver.log) if kind == "unload")


def test_the_context_goes_after_the_kernel_and_its_module(watched: Watched) -> None:
    """BUG-077 (libocca/occa#58): drop the device, then the module, then the kernel."""
    log = ReleaseLog()
    with log:
        device = lifetimes.open(watched.driver)
        module = device.compile(SOURCE)
        kernel = module["nothing"]
        del device
        gc.collect()
        kernel.launch(size=1)
        del module
        gc.collect()
        watched.driver.run_until_idle()
        assert watched.driver.counts["unload"] == watched.closes == 0
        del kernel
        lifetimes.drain()
    assert [log.kinds[key] for key in log.released] == ["kernel", "module", "device", "stream", "context"]
    assert watched.closes == 1


@pytest.mark.parametrize("wait", [True, False])
def test_closing_the_device_closes_the_children_first(watched: Watched, wait: bool) -> None:
    """BUG-077: and waits for what is in flight, or comes back to it."""
    device = lifetimes.open(watched.driver)
    module = device.compile(SOURCE)
    kernel = module["nothing"]
    kernel.launch(size=1)
    watched.driver.faults.before("wait", 1, watched.driver.run_until_idle)
    device.close(wait=wait)
    assert kernel.closed
    assert module.closed
    assert watched.closes == wait
    watched.driver.run_until_idle()
    lifetimes.drain()
    assert watched.closes == 1
    with pytest.raises(ClosedError, match="kernel"):
        kernel.launch(size=1)
    with pytest.raises(ClosedError, match="module"):
        module["nothing"]


def test_one_off_kernels_are_unloaded(watched: Watched, device: Device) -> None:
    """A thousand of them, each launched and dropped while it is in flight.  BUG-095 (triton-lang/triton#9444)."""
    driver = watched.driver
    for number in range(1000):
        device.compile(f"def add_{number}(): pass")[f"add_{number}"].launch(size=1)
        driver.step()
        assert driver.counts["load"] - driver.counts["unload"] <= 3
    driver.run_until_idle()
    lifetimes.drain()
    assert driver.counts["load"] == driver.counts["unload"] == 1000
    assert not driver.live_modules


def test_a_kernel_that_is_being_launched_cannot_be_closed(watched: Watched, device: Device) -> None:
    module = device.compile(SOURCE)
    kernel = module["nothing"]
    refused: list[str] = []

    def close() -> None:
        for each in (kernel, module):
            with pytest.raises(BusyError, match="launch"):
                each.close()
            refused.append(each.kind)

    watched.driver.faults.before("launch", 1, close)
    kernel.launch(size=1)
    assert refused == ["kernel", "module"]


def test_ctrl_c_at_any_step_of_a_launch(watched: Watched, device: Device) -> None:
    """However far it got: nothing stays pinned, and the module goes after whatever was enqueued."""
    array = device.asarray(np.arange(8.0))
    struck = 0
    for step in itertools.count():
        kernel = device.compile(SOURCE)["double"]
        try:
            if not run_disturbed(launch, kernel, array, step=step, act=interrupt_outside, after_calls=True):
                break
        except KeyboardInterrupt:
            struck += 1
        kernel.close()
        lifetimes.drain()
        watched.driver.run_until_idle()
        lifetimes.drain()
        assert not watched.driver.live_modules, f"step {step}"
        assert not watched.driver.violations, f"step {step}"
        assert device.statistics().pinned == 0, f"step {step}"
        array[:].close()
    assert struck > 100
    kernel.close()


def launch(kernel: Any, array: Any) -> None:
    kernel.launch(array, array, size=8, modes="rw")


def test_of_two_launches_on_a_stream_the_later_is_remembered() -> None:
    """Whichever thread comes to say so first."""
    driver = Watched().driver
    with lifetimes.open(driver) as device:
        launches, timeline = LastLaunches(), device.stream.timeline
        driver.manual = True
        for _ in range(2):
            driver.call(int, (), timeline.handle)
            timeline.tick()
            timeline.mark()
        launches.add(timeline, 2)
        launches.add(timeline, 1)
        timeline.done(1)
        driver.step()
        assert not launches.completed()
        driver.run_until_idle()
        assert launches.completed()


def test_a_kernel_forgets_streams_that_have_finished(watched: Watched, device: Device) -> None:
    kernel = device.compile(SOURCE)["nothing"]
    for handle in range(50):
        kernel.launch(size=0, stream=device.borrow_stream(device.stream.handle, owner=handle))
        device._known._known.clear()  # a new object each time
        watched.driver.run_until_idle()
    assert len(kernel._launches.last) < 20


# Arguments.


def test_a_bound_argument_lives_until_its_launch_has_finished(watched: Watched, device: Device) -> None:
    """A temporary array, bound and launched; its memory is its own until then.  BUG-079 (inducer/pyopencl#487)."""
    driver, target = watched.driver, device.empty(8)
    kernel = device.compile(SOURCE)["double"]

    def make() -> Any:
        return device.asarray(np.arange(8.0))

    array = make()
    gone = [weakref.ref(array), array.key]
    bound = kernel.bind(array, target, modes="rw")
    del array
    gc.collect()
    assert gone[0]() is not None
    bound.launch(8)
    second = make()
    bound.rebind(second, target)
    gc.collect()
    assert gone[0]() is None, "rebinding lets go of the first"
    with device.use(write=[device.empty(8)]):
        pass  # another array, which must not get the memory that the kernel will read
    driver.run_until_idle()
    assert content(driver, target).tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]
    second = weakref.ref(second)
    del bound, kernel
    driver.run_until_idle()
    gc.collect()
    assert second() is None


def test_a_temporary_array_is_launched_on(watched: Watched, device: Device) -> None:
    """Nothing but the launch refers to it.  BUG-017 (JuliaGPU/CUDA.jl#3087)."""
    driver, target = watched.driver, device.empty(8)
    device.compile(SOURCE)["double"].launch(device.asarray(np.arange(8.0)), target, size=8, modes="rw")
    gc.collect()
    frees = driver.counts["free"]
    device.manager.memory.purge()
    assert driver.counts["free"] == frees
    driver.run_until_idle()
    assert content(driver, target)[7] == 14.0
    assert device.manager.memory.purge()
    assert driver.counts["free"] == frees + 1


def test_a_kernel_holds_nothing_of_its_arguments(watched: Watched, device: Device) -> None:
    kernel, array = device.compile(SOURCE)["double"], device.asarray(np.arange(8.0))
    kernel.launch(array, array, size=8)
    alive = weakref.ref(array)
    del array
    gc.collect()
    assert alive() is None
    watched.driver.run_until_idle()


def test_a_size_of_nothing_is_no_launch(watched: Watched, device: Device) -> None:
    """BUG-059 (libocca/occa#712)."""
    kernel, array = device.compile(SOURCE)["double"], device.empty((3, 0))
    for size in (0, (3, 0), (0, 0, 0)):
        work = kernel.launch(array, array, size=size)
        watched.driver.run_until_idle()
        assert work.completed()
    assert watched.driver.counts["launch"] == 0


@pytest.mark.parametrize(
    ("size", "error"),
    [(-1, ValueError), ((2, -2), ValueError), (1.0, TypeError), (True, TypeError), ("3", TypeError), (None, TypeError)],
)
def test_a_bad_size_is_refused(watched: Watched, device: Device, size: Any, error: type[Exception]) -> None:
    kernel, array = device.compile(SOURCE)["double"], device.empty(8)
    with pytest.raises(error, match="size"):
        kernel.launch(array, array, size=size)
    assert watched.driver.counts["launch"] == 0
    assert device.statistics().pinned == 0


def test_sizes_may_be_integers_of_numpy(watched: Watched, device: Device) -> None:
    kernel = device.compile("def f(size): assert size == (3, 2), size")["f"]
    size: Any = (np.int64(3), 2)
    work = kernel.launch(size=size)
    watched.driver.run_until_idle()
    assert work.completed()


def test_wrong_arguments_fail_the_work_and_break_what_it_writes(watched: Watched, device: Device) -> None:
    kernel, array = device.compile(SOURCE)["double"], device.asarray(np.zeros(8))
    work = kernel.launch(array, size=8, modes="u")  # one too few
    watched.driver.run_until_idle()
    with pytest.raises(BackendError, match="target"):
        work.completed()
    with pytest.raises(BrokenError):
        array.numpy()


def test_mistakes_in_a_launch_leave_nothing_pinned(watched: Watched, device: Device) -> None:
    kernel, array, closed = device.compile(SOURCE)["double"], device.empty(8), device.empty(8)
    closed.close()
    with lifetimes.open("sim") as other:
        foreign = other.empty(8)
        mistakes: list[tuple[type[Exception], Callable[[], object]]] = [
            (OwnershipError, lambda: kernel.launch(array, foreign, size=8)),
            (OwnershipError, lambda: kernel.launch(array, array, size=8, stream=other.stream)),
            (ClosedError, lambda: kernel.launch(array, closed, size=8)),
            (ValueError, lambda: kernel.launch(array, array, size=8, modes="r")),
            (ValueError, lambda: kernel.launch(array, array, size=8, modes="rx")),
            (ValueError, lambda: kernel.launch(array, array.broadcast_to((3, 8)), size=8)),
        ]
        for error, mistake in mistakes:
            with pytest.raises(error):
                mistake()
            assert device.statistics().pinned == 0
    assert watched.driver.counts["launch"] == 0
    array.close()


# Making them.


def test_a_kernel_that_there_is_not(device: Device) -> None:
    module = device.compile(SOURCE)
    before = len(lifetimes.live())
    with pytest.raises(BackendError, match="double, nothing"):
        module["triple"]
    assert len(lifetimes.live()) == before
    module.close()  # nothing of it is left pinned


def test_a_program_that_does_not_compile_shows_source_and_log(device: Device) -> None:
    before = len(lifetimes.live())
    with pytest.raises(CompileError, match="def f\\(: pass") as caught:
        device.compile("x = 1\ndef f(: pass")
    assert "line 2" in str(caught.value)
    assert "log of the compiler" in caught.value.__notes__[0]
    assert len(lifetimes.live()) == before


def test_a_program_is_text(device: Device) -> None:
    for source in (b"def f(): pass", 3, None):
        with pytest.raises(TypeError, match="a program is text"):
            device.compile(source)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [BackendError, OutOfMemory, KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("call", ["compile", "load", "function"])
def test_a_failure_while_one_is_made_leaves_nothing(
    watched: Watched, device: Device, call: str, error: type[BaseException]
) -> None:
    before, loads = len(lifetimes.live()), watched.driver.counts["load"]
    watched.driver.faults.fail(call, error=error, times=2)
    with pytest.raises(error) as caught:
        device.compile(SOURCE)["double"]
    if call == "function":
        del caught  # its frames hold the module
    lifetimes.drain()
    assert len(lifetimes.live()) == before
    assert not watched.driver.live_modules
    watched.driver.faults.clear()
    assert watched.driver.counts["unload"] <= watched.driver.counts["load"] - loads


def test_ctrl_c_at_any_step_of_compiling_leaves_nothing(watched: Watched, device: Device) -> None:
    before = len(lifetimes.live())
    for step in itertools.count():
        try:
            if not run_disturbed(device.compile, SOURCE, step=step, act=interrupt_outside, after_calls=True):
                break
        except KeyboardInterrupt:
            pass
        gc.collect(1)  # whoever interrupts holds the frames in a cycle
        lifetimes.drain()
        assert len(lifetimes.live()) == before, f"step {step}"
        assert not watched.driver.live_modules, f"step {step}"
    assert step > 50


def test_threads_launch_one_kernel() -> None:
    watched = Watched(contexts=True)
    device = lifetimes.open(watched.driver)
    kernel = device.compile(SOURCE)["double"]
    barrier, failed = threading.Barrier(4), list[BaseException]()

    def run() -> None:
        try:
            stream = device.create_stream()
            barrier.wait(30)
            for number in range(20):
                array, target = device.asarray(np.full(8, float(number))), device.empty(8)
                kernel.launch(array, target, size=8, modes="rw", stream=stream)
                assert target.numpy()[3] == 2.0 * number
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    device.close()
    assert not watched.problems()
