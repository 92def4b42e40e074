"""Launches of microseconds: the short way does what the long way does, and leaves to it what it cannot do."""

from __future__ import annotations

import gc
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import lifetimes
from lifetimes import instrument
from lifetimes.adaptors import Logged
from lifetimes.entry import DIRTY
from lifetimes.locks import held_here, lock
from lifetimes.manager.letting_go import let_go
from lifetimes.origins import record_at_least
from lifetimes.resources.short import ShortWork
from lifetimes.testing.disturb import interrupt, run_disturbed
from lifetimes_host.driver import HostDriver

ONES = np.ones(3)
STRIDE = 1 if os.environ.get("LIFETIMES_NIGHTLY") else 7
"""Every step of a call is interrupted at night; one in so many otherwise."""


@pytest.fixture
def device() -> Iterator[lifetimes.Device]:
    with lifetimes.open("host", memory_limit="64MiB") as opened:
        yield opened
        opened.manager.check_invariants()
        lifetimes.reaper.check_invariants()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """For each try of the short way, whether it did it.  Nobody watches: what is watched goes the long way."""
    least = record_at_least("off")
    tries: list[bool] = []
    run = ShortWork.run

    def noted(self: ShortWork, *args: Any) -> Any:
        results = run(self, *args)
        tries.append(results is not None)
        return results

    monkeypatch.setattr(ShortWork, "run", noted)
    yield tries
    record_at_least(*least)


def plus(device: lifetimes.Device) -> tuple[Any, lifetimes.Array]:
    """A function that has been called, and its argument: everything is on the device, and a block is in the pool."""
    function = lifetimes.jit(lambda x, a: x * a + 1)
    x = device.asarray(ONES)
    for _ in range(3):
        function(x, 2.0)
    return function, x


def test_the_short_way_is_taken_and_right(device: lifetimes.Device, short: list[bool]) -> None:
    function, x = plus(device)
    short.clear()
    y = function(x, 1.0)
    spare = function(x, 1.0)
    del spare
    for turn in range(2, 50):
        y = function(y, 1.0)
        assert short[-1]
        if not turn % 10:
            np.testing.assert_array_equal(y.numpy(), ONES * (turn + 1))
    two = lifetimes.jit(lambda x, y: (x + y, np.sum(x * y)))
    for _ in range(3):
        both, total = two(x, y)
    assert short[-1]
    assert (both.numpy().tolist(), float(total.numpy())) == ([51.0] * 3, 150.0)
    views = device.asarray(np.arange(12.0).reshape(3, 4))
    reverse = lifetimes.jit(lambda x: x + 0)
    for _ in range(3):
        result = reverse(views[1:, ::-2])
    assert short[-1]
    assert result.numpy().tolist() == [[7.0, 5.0], [11.0, 9.0]]


def test_the_books_are_those_of_the_long_way(device: lifetimes.Device, short: list[bool]) -> None:
    """Arrays, bytes, policy and pool, after results that live, die, are evicted and read."""
    function, x = plus(device)
    kept = []
    for turn in range(40):
        before = device.statistics()
        result = function(x, float(turn))
        after = device.statistics()
        assert after.arrays == before.arrays + 1
        assert after.dirty_bytes == before.dirty_bytes + 24
        assert after.total_bytes == before.total_bytes + 24
        assert sum(after.rungs.values()) == sum(before.rungs.values()) + 1
        device.manager.check_invariants()
        if turn % 3 == 0:
            kept.append((result, turn))
        if turn % 7 == 0:
            assert result.evict()
        del result
        device.manager.check_invariants()
    assert short.count(True) > 20
    for result, turn in kept:
        np.testing.assert_array_equal(result.numpy(), ONES * turn + 1)
    assert len({each.key for each, _ in kept}) == len(kept)
    blocks = {device.manager.owner_of(address)[0] for address in _addresses(device, [each for each, _ in kept])}  # type: ignore[index]
    assert blocks == {each.key for each, _ in kept}


def test_each_use_is_counted_once(device: lifetimes.Device, short: list[bool]) -> None:
    """Whichever way it goes, and also when the short way is tried in vain."""
    function, x = plus(device)
    out = device.empty(3)
    for _ in range(2):
        function.into(out, x, 2.0)
        function(x, 2.0)
    begun, release = threading.Event(), threading.Event()

    def wait(*arrays: Any) -> None:
        begun.set()
        assert release.wait(30)

    def uses(*steps: Callable[[], Any]) -> int:
        before = device.statistics()
        for step in steps:
            step()
        after = device.statistics()
        return after.hits + after.misses - before.hits - before.misses

    short.clear()
    assert uses(lambda: function(x, 2.0), lambda: function.into(out, x, 2.0)) == 4
    assert short == [True, True]
    driver: Any = device.driver
    driver.call(wait, (), device.stream.handle)
    assert begun.wait(30)
    short.clear()
    assert uses(lambda: function(x, 2.0), lambda: function.into(out, x, 2.0)) == 4
    assert not any(short)
    release.set()
    assert out.numpy().tolist() == [3.0] * 3


def fail(a: Any) -> None:
    raise RuntimeError("this fails")


def _addresses(device: lifetimes.Device, arrays: list[lifetimes.Array]) -> tuple[int, ...]:
    with device.use(read=arrays) as addresses:
        return addresses


def test_into_an_array_of_its_own(device: lifetimes.Device, short: list[bool]) -> None:
    function, x = plus(device)
    out = device.empty(3)
    for factor in (2.0, 3.0, 4.0):
        function.into(out, x, factor)
    assert short[-1]
    assert out.numpy().tolist() == [5.0] * 3
    function.into(x, x, 2.0)  # an argument: the long way knows whether it can be done in place
    assert x.numpy().tolist() == [3.0] * 3
    function.into(out[::-1], x, 2.0)
    assert out.numpy().tolist() == [7.0] * 3
    reverse = lifetimes.jit(lambda x: x[::-1] + 0)
    counted = device.asarray(np.arange(100.0))
    for _ in range(3):
        reverse.into(counted, counted)
    assert counted.numpy().tolist() == list(range(99, -1, -1))


def test_what_has_more_to_do_goes_the_long_way(device: lifetimes.Device, short: list[bool]) -> None:
    function, x = plus(device)
    result = function(x, 2.0)
    assert short[-1]

    def refused(y: lifetimes.Array = x) -> None:
        short.clear()
        assert function(y, 2.0).numpy().tolist() == [3.0] * 3
        assert set(short) == {False}
        function(y, 2.0)

    assert x.evict()
    refused()
    refused(device.asarray(ONES))
    heard: list[str] = []
    with instrument.listening(lambda name, key, details: heard.append(name)):
        refused()
    assert "create" in heard
    assert "release" in heard
    stream = device.create_stream()
    begun, release = threading.Event(), threading.Event()

    def write(a: Any) -> None:
        begun.set()
        assert release.wait(30)
        a[...] = 5.0

    device.call(write, x, modes="w", stream=stream)  # on another stream, and not done
    assert begun.wait(30)
    short.clear()
    waits = function(x, 2.0)
    assert set(short) == {False}
    release.set()
    assert waits.numpy().tolist() == [11.0] * 3
    assert result.numpy().tolist() == [3.0] * 3


def test_a_busy_stream_keeps_its_order(device: lifetimes.Device, short: list[bool]) -> None:
    function, x = plus(device)
    release = threading.Event()

    def write(a: Any) -> None:
        assert release.wait(30)
        a[...] = 5.0

    device.call(write, x, modes="w")
    result = function(x, 2.0)
    again = function(result, 2.0)
    assert short[-2:] == [False, False]
    release.set()
    assert again.numpy().tolist() == [23.0] * 3


def test_what_reads_the_result_of_a_failed_call_fails(device: lifetimes.Device, short: list[bool]) -> None:
    """Short or long, at once or through other arrays; and a failure elsewhere is nobody else's."""
    function, x = plus(device)
    other = function(x, 2.0)
    long = lifetimes.jit(lambda x: np.sin(x) + 1)
    large = device.asarray(np.ones(200_000))
    long(large)

    device.call(fail, x)
    first = function(x, 2.0)
    second = function(first, 2.0)
    fine = function(other, 2.0)
    device.call(fail, large)
    third = long(large)
    for each in (x, first, second, large, third):
        with pytest.raises(lifetimes.BrokenError, match="this fails"):
            each.numpy()
    assert fine.numpy().tolist() == [7.0] * 3
    with pytest.raises(lifetimes.BrokenError, match="this fails"):
        function(first, 2.0)


def test_a_failure_that_nobody_has_asked_about(device: lifetimes.Device, short: list[bool]) -> None:
    """The stream has nothing to do any more, and the event behind the call knows what happened."""
    function, x = plus(device)
    device.call(fail, x)
    device.driver.synchronize(device.stream.handle)
    with pytest.raises(lifetimes.BrokenError, match="this fails"):
        function(x, 2.0).numpy()


@pytest.mark.parametrize("behind", [False, True])
def test_a_failure_on_another_stream(device: lifetimes.Device, short: list[bool], behind: bool) -> None:
    """The device's own stream has nothing to do, or has waited for what failed; nobody has asked how that went."""
    function, x = plus(device)
    stream, begun, release = device.create_stream(), threading.Event(), threading.Event()

    def fail_later(a: Any) -> None:
        begun.set()
        assert release.wait(30)
        fail(a)

    device.call(fail_later, x, stream=stream)
    assert begun.wait(30)
    if behind:
        with device.use(read=[x], write=[x]):
            pass
        release.set()
        for handle in (stream.handle, device.stream.handle):
            device.driver.synchronize(handle)
        with pytest.raises(lifetimes.BrokenError, match="this fails"):
            function(x, 2.0).numpy()
    else:
        result = function(x, 2.0)
        release.set()
        with pytest.raises(lifetimes.BrokenError, match="this fails"):
            result.numpy()
    assert not any(short[-2:])
    fine = device.asarray(ONES)
    assert function(fine, 2.0).numpy().tolist() == [3.0] * 3


def test_what_another_stream_still_reads_is_not_written(device: lifetimes.Device, short: list[bool]) -> None:
    """Neither into, nor by taking the memory of an array that is dropped meanwhile."""
    function, x = plus(device)
    out, dropped = device.empty(3), function(x, 2.0)
    function.into(out, x, 2.0)
    stream, begun, release = device.create_stream(), threading.Event(), threading.Event()
    found: list[Any] = []

    def read(a: Any, b: Any) -> None:
        begun.set()
        assert release.wait(30)
        found.append((a.tolist(), b.tolist()))

    device.call(read, out, dropped, modes="rr", stream=stream)
    assert begun.wait(30)
    del dropped
    short.clear()
    kept = [function(x, 5.0) for _ in range(3)]
    function.into(out, x, 5.0)
    assert not short[-1]
    release.set()
    stream.synchronize()
    assert found == [([3.0] * 3, [3.0] * 3)]
    assert [each.numpy().tolist() for each in (*kept, out)] == [[6.0] * 3] * 4


def test_an_argument_that_was_closed(device: lifetimes.Device, short: list[bool]) -> None:
    function, x = plus(device)
    view = x[:]
    function(view, 2.0)
    view.close()
    for closed in (view, x):
        closed.close()
        with pytest.raises(lifetimes.ClosedError):
            function(closed, 2.0)
    out, y = device.empty(3), device.asarray(ONES)
    function.into(out, y, 2.0)
    out.close()
    with pytest.raises(lifetimes.ClosedError):
        function.into(out, y, 2.0)


def test_a_lost_device_is_refused(device: lifetimes.Device) -> None:
    function, x = plus(device)
    device.lose("reset")
    with pytest.raises(lifetimes.ClosedError):
        function(x, 2.0)


def test_inside_the_lock_it_is_refused(device: lifetimes.Device, short: list[bool]) -> None:
    """As whatever interrupts the library on its own thread is: a signal handler, a finalizer in a collection."""
    function, x = plus(device)
    short.clear()
    with lock, pytest.raises(lifetimes.BusyError):
        function(x, 2.0)
    assert set(short) == {False}
    assert not held_here()
    assert function(x, 2.0).numpy().tolist() == [3.0] * 3


def test_what_is_logged_is_logged_without_the_lock(short: list[bool]) -> None:
    held: list[bool] = []
    lines: list[str] = []

    def log(line: str) -> None:
        held.append(held_here())
        lines.append(line)

    with lifetimes.open(Logged(HostDriver(1 << 26), log)) as device:
        function, x = plus(device)
        lines.clear()
        assert function(x, 2.0).numpy().tolist() == [3.0] * 3
    assert any(line.startswith("call(") for line in lines)
    assert not any(held)
    assert not any(short)


def test_nothing_is_alive_afterwards(device: lifetimes.Device) -> None:
    function, x = plus(device)
    gc.collect()
    before = len(lifetimes.live())
    results = [function(x, 2.0) for _ in range(100)]
    assert len(lifetimes.live()) == before + 100
    del results
    assert len(lifetimes.live()) == before
    assert device.statistics().arrays == 1


def test_when_the_pool_has_no_block_one_is_made(device: lifetimes.Device, short: list[bool]) -> None:
    function, x = plus(device)
    kept = [function(x, float(turn)) for turn in range(20)]
    assert False in short
    for turn, each in enumerate(kept):
        assert each.numpy().tolist() == [turn + 1.0] * 3


@pytest.mark.parametrize("count", [2, 8])
def test_many_threads(device: lifetimes.Device, short: list[bool], count: int) -> None:
    function, x = plus(device)
    wrong: list[float] = []

    def work(factor: float) -> None:
        for _ in range(300):
            y = function(function(x, factor), factor)
            if y.numpy().tolist() != [(factor + 1) * factor + 1] * 3:
                wrong.append(factor)

    threads = [threading.Thread(target=work, args=(float(number),)) for number in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong
    assert True in short


def test_an_interrupt_at_any_step(device: lifetimes.Device) -> None:
    """Ctrl-C in a call, and while its result is dropped: nothing is lost, pinned or counted twice, and the next call works."""
    function, x = plus(device)
    out = device.empty(3)
    function.into(out, x, 2.0)

    def call() -> None:
        function(x, 2.0)
        function.into(out, x, 3.0)

    arrays = device.statistics().arrays
    struck = 0
    for step in range(0, 2000, STRIDE):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lifetimes.CleanupWarning)
            try:
                reached = run_disturbed(call, step=step, act=interrupt, after_calls=True)
                for _ in range(100):  # one that struck a finalizer comes again
                    pass
            except KeyboardInterrupt:
                struck += 1
                reached = True
        gc.collect()  # the trace function and the frames it has seen refer to each other
        lifetimes.drain()
        device.manager.check_invariants()
        lifetimes.reaper.check_invariants()
        assert device.statistics().arrays == arrays, f"at step {step}"
        assert not device.manager.pinned
        assert function(x, 2.0).numpy().tolist() == [3.0] * 3
        function.into(out, x, 2.0)
        if not reached:
            break
    else:
        raise AssertionError("the call never ends")
    assert struck > 60 // STRIDE


def test_an_interrupt_while_storage_is_let_go(device: lifetimes.Device) -> None:
    function, x = plus(device)
    struck = 0
    for step in range(200):
        result = function(x, 2.0)
        assert device.manager.entry(result.key).state == DIRTY
        try:
            reached = run_disturbed(let_go, device.manager, result.key, step=step, act=interrupt, after_calls=True)
        except KeyboardInterrupt:
            struck += 1
            reached = True
        device.manager.check_invariants()
        result.close()  # lets go of it, if it is still there
        device.manager.check_invariants()
        assert device.statistics().arrays == 1
        if not reached:
            break
    else:
        raise AssertionError("it never ends")
    assert struck > 10
