"""Threads that are short of memory: they wait for each other's pins, in line, and never each for the other's half."""

from __future__ import annotations

import threading
import time

import pytest

from lifetimes.errors import BusyError, ClosedError, OutOfMemory
from lifetimes.manager.waiting import Waiting
from tests.unit.memory.scene import SIZE, Gate, Scene, Thread


def test_a_use_waits_for_the_pins_of_another_thread() -> None:
    scene = Scene(blocks=1)
    a, b = scene.adds(2)
    gate = Gate()

    def hold() -> None:
        with scene.manager.use(a):
            gate.stop()

    holder = Thread(hold)
    gate.wait()
    waiter = Thread(scene.on_device, b)
    while not scene.manager.waiting.line:
        assert waiter.running
    gate.open()
    assert waiter.join() == 2
    holder.join()
    scene.check()
    scene.close()


def test_it_gives_up_after_the_time_it_was_given_and_has_changed_nothing() -> None:
    scene = Scene(blocks=1, pin_timeout=0.05)
    a, b = scene.adds(2)
    gate = Gate()

    def hold() -> None:
        with scene.manager.use(a):
            gate.stop()

    holder = Thread(hold)
    gate.wait()
    start = time.monotonic()
    with pytest.raises(OutOfMemory) as caught, scene.manager.use(b):
        pass
    assert 0.04 < time.monotonic() - start < 5
    assert "waited 0.05 s" in caught.value.__notes__[0]
    assert not scene.manager.waiting.line
    gate.open()
    holder.join()
    scene.touch(b)
    scene.check()
    scene.close()


def test_only_ones_own_pins_in_the_way_fail_at_once() -> None:
    """However long the timeout is."""
    scene = Scene(blocks=2, pin_timeout=60.0)
    a, b, c = scene.adds(3)
    with scene.manager.use_many([(a, "r"), (b, "r")]):
        start = time.monotonic()
        with pytest.raises(OutOfMemory), scene.manager.use(c):
            pass
        with pytest.raises(OutOfMemory), scene.manager.use_many([(c, "r"), (a, "r")]):
            pass
        assert time.monotonic() - start < 5
    scene.close()


@pytest.mark.parametrize("nested", [False, True])
def test_two_threads_that_need_two_of_three_blocks_each_never_fail(nested: bool) -> None:
    """Hazard of the ancestors: pinned one after the other, they took a half each and failed one time in five."""
    scene = Scene(blocks=3)
    sets = [scene.adds(2), scene.adds(2, first=10)]
    barrier = threading.Barrier(2)
    rounds = 100

    def work(keys: list[int]) -> None:
        for _ in range(rounds):
            barrier.wait(20)
            with scene.manager.use_many([(key, "rw") for key in keys]):
                if nested:
                    scene.touch(keys[0])

    threads = [Thread(work, keys) for keys in sets]
    for thread in threads:
        thread.join()
    scene.check()
    assert [scene.value(key) for keys in sets for key in keys] == [1, 2, 10, 11]
    scene.close()


def test_the_line_is_first_come_first_served() -> None:
    scene = Scene(blocks=2)
    held, *keys = scene.adds(5)
    big = scene.add(None, nbytes=2 * SIZE)
    gate, order = Gate(), []

    def hold() -> None:
        with scene.manager.use(held):
            gate.stop()

    def work(key: int) -> None:
        with scene.manager.use(key, "w"):
            order.append(key)

    holder = Thread(hold)
    gate.wait()
    waiters = [Thread(work, big)]
    while len(scene.manager.waiting.line) < 1:
        pass
    for at, key in enumerate(keys[:3], 2):  # small ones that would fit, and must not overtake the big one
        waiters.append(Thread(work, key))
        while len(scene.manager.waiting.line) < at:
            pass
    gate.open()
    for waiter in waiters:
        waiter.join()
    holder.join()
    assert order[0] == big
    scene.check()
    scene.close()


def test_what_is_resident_is_used_while_others_stand_in_line() -> None:
    scene = Scene(blocks=1)
    a, b = scene.adds(2)
    gate = Gate()

    def hold() -> None:
        with scene.manager.use(a):
            gate.stop()

    holder = Thread(hold)
    gate.wait()
    waiter = Thread(scene.touch, b)
    while not scene.manager.waiting.line:
        pass
    scene.write(a, 5)
    gate.open()
    holder.join()
    waiter.join()
    assert scene.value(a) == 5
    scene.close()


def test_a_thread_that_holds_pins_does_not_wait_for_its_turn() -> None:
    """The first in line waits for just these pins."""
    scene = Scene(blocks=2)
    a, b, c = scene.adds(3)
    big = scene.add(None, nbytes=2 * SIZE)
    gate = Gate()

    def hold() -> None:
        with scene.manager.use(a):
            gate.stop()
            with scene.manager.use(b):  # the second block is free
                pass

    def take_all() -> None:
        with scene.manager.use(big, "w"):
            pass

    holder = Thread(hold)
    gate.wait()
    first = Thread(take_all)
    while not scene.manager.waiting.line:
        pass
    gate.open()
    holder.join()
    first.join()
    scene.touch(c)
    scene.check()
    scene.close()


def test_an_array_that_another_thread_brings_is_waited_for() -> None:
    scene = Scene()
    key = scene.add(1)
    gate = Gate()
    scene.driver.faults.before("copy_in", 1, gate.stop)
    first, second = Thread(scene.touch, key), None
    gate.wait()
    second = Thread(scene.on_device, key)
    reader = Thread(scene.value, key)
    gate.open()
    first.join()
    assert second.join() == reader.join() == 1
    assert scene.driver.counts["copy_in"] == 1
    scene.check()
    scene.close()


def test_coming_back_into_an_array_that_this_thread_is_moving_is_refused() -> None:
    scene = Scene()
    key = scene.add(1)
    errors: list[BaseException] = []

    def come_back() -> None:
        for call in (lambda: scene.touch(key), lambda: scene.value(key), scene.manager.close):
            try:
                call()
            except BaseException as error:
                errors.append(error)
        assert scene.manager.evict(key) is False
        assert scene.manager.prefetch(key) is False

    scene.driver.faults.before("copy_in", 1, come_back)
    scene.touch(key)
    assert [type(error) for error in errors] == [BusyError] * 3
    assert all("this very thread" in str(error) or "in use" in str(error) for error in errors)
    scene.check()
    assert scene.value(key) == 1
    scene.close()


def test_a_waiting_thread_is_told_when_the_manager_is_closed() -> None:
    scene = Scene(blocks=1)
    a, b = scene.adds(2)
    use = scene.manager.use(a)
    use.__enter__()
    waiter = Thread(scene.touch, b)
    while not scene.manager.waiting.line:
        pass

    def leave_and_close() -> None:
        use.__exit__(None, None, None)
        while True:
            try:
                scene.manager.close()
                return
            except BusyError:
                pass

    leave_and_close()
    try:
        waiter.join()
    except ClosedError:
        pass
    assert scene.driver.live_blocks == {}


def test_an_interrupt_while_waiting_leaves_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(blocks=1)
    a, b = scene.adds(2)
    gate = Gate()

    def hold() -> None:
        with scene.manager.use(a):
            gate.stop()

    holder = Thread(hold)
    gate.wait()

    def interrupted(waiting: Waiting, seen: int, deadline: float | None = None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Waiting, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        scene.touch(b)
    monkeypatch.undo()
    assert not scene.manager.waiting.line
    gate.open()
    holder.join()
    scene.touch(b)
    scene.check()
    scene.close()
