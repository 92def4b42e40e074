"""Tickets: what they cost, what they promise, and whom a failure is told of."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from lifetimes.errors import BackendError
from lifetimes.locks import held_here, lock
from lifetimes.testing.disturb import run_disturbed
from lifetimes.testing.sim import SimDriver, WouldBlock
from lifetimes.timeline import MANY, Timeline, Work
from tests.sim.test_manager_interrupts import interrupt_the_library
from tests.unit.memory.scene import Gate


class Stream:
    """A stream whose time stands still, and work on it."""

    def __init__(self, *, borrowed: bool = False, driver: SimDriver | None = None) -> None:
        self.driver = SimDriver(64 << 10, manual=True) if driver is None else driver
        self.line = Timeline(self.driver, self.driver.create_stream(), borrowed=borrowed)

    def work(self) -> int:
        self.driver.call(int, (), self.line.handle)
        return self.line.tick()

    def failing(self) -> int:
        self.driver.faults.fail("call", at="completion")
        return self.work()


def test_a_ticket_records_no_event_until_somebody_asks() -> None:
    stream = Stream()
    numbers = [stream.work() for _ in range(5)]
    assert numbers == [1, 2, 3, 4, 5]
    assert stream.driver.counts["record"] == 0
    assert not stream.line.done(3)
    assert stream.driver.counts["record"] == 1
    assert not stream.line.done(5)
    assert stream.driver.counts["record"] == 1, "the event stands behind all of them already"
    stream.driver.run_until_idle()
    assert stream.line.done(5)
    assert stream.line.done(1)
    stream.line.check_invariants()


def test_a_borrowed_stream_records_at_once() -> None:
    stream = Stream(borrowed=True)
    stream.work()
    assert stream.driver.counts["record"] == 1


def test_waiting_lets_time_pass_and_is_known_afterwards() -> None:
    stream = Stream(driver=SimDriver())
    number = stream.work()
    stream.line.wait(number)
    asked = stream.driver.counts["completed"]
    assert stream.line.done(number)
    assert stream.driver.counts["completed"] == asked


def test_a_wait_that_cannot_end_changes_nothing() -> None:
    stream = Stream()
    number = stream.work()
    with pytest.raises(WouldBlock):
        stream.line.wait(number)
    stream.line.check_invariants()
    stream.driver.step()
    stream.line.wait(number)
    assert stream.line.done(number)


def test_events_are_used_again() -> None:
    stream = Stream()
    for _ in range(20):
        number = stream.work()
        assert not stream.line.done(number)
        stream.driver.step()
        assert stream.line.done(number)
    assert stream.driver.counts["create_event"] == 1
    stream.line.close()
    assert stream.driver.live_events == []


def test_another_stream_starts_after_the_ticket() -> None:
    driver = SimDriver(manual=True)
    first, second = Stream(driver=driver), Stream(driver=driver)
    order: list[str] = []
    driver.call(order.append, ("first",), first.line.handle)
    number = first.line.tick()
    second.line.wait_for(first.line, number)
    driver.call(order.append, ("second",), second.line.handle)
    driver.run_until_idle()
    assert order == ["first", "second"]
    second.line.wait_for(second.line, 99)
    second.line.wait_for(first.line, number)
    assert driver.counts["stream_wait"] == 2, "the last one did not know yet that the work is done"
    assert first.line.done(number)
    second.line.wait_for(first.line, number)
    assert driver.counts["stream_wait"] == 2


def test_a_failure_names_the_fenced_work_and_no_other() -> None:
    stream = Stream()
    before = stream.work()
    stream.line.fence()
    failed = stream.failing()
    stream.line.mark()
    after = stream.work()
    stream.driver.run_until_idle()
    assert stream.line.done(after)
    assert [stream.line.error(number) is not None for number in (before, failed, after)] == [False, True, False]
    with pytest.raises(BackendError, match="planned"):
        Work(stream.line, failed).completed()
    assert Work(stream.line, after).completed()


def test_without_a_fence_all_work_since_the_last_event_counts_as_failed() -> None:
    stream = Stream()
    first = stream.work()
    stream.line.mark()
    numbers = [stream.work(), stream.failing(), stream.work()]
    stream.driver.run_until_idle()
    assert stream.line.done(numbers[-1])
    assert stream.line.error(first) is None
    assert all(stream.line.error(number) for number in numbers)


def test_a_failure_told_between_the_work_and_its_number_is_that_of_the_number() -> None:
    """The event is recorded by somebody else while the use that enqueued the work is still open."""
    for asked_before_the_end in (False, True):
        stream = Stream()
        other = stream.work()
        since = stream.line.recorded
        stream.driver.faults.fail("call", at="completion")
        stream.driver.call(int, (), stream.line.handle)
        stream.line.mark()  # for ``other``: it stands behind the failing work, too
        if asked_before_the_end:
            stream.driver.run_until_idle()
            assert stream.line.done(other)
        number = stream.line.tick()
        assert stream.line.recorded != since
        stream.line.cover(number, since)
        stream.driver.run_until_idle()
        assert stream.line.done(number)
        assert stream.line.error(number) is not None


def test_covering_costs_nothing_when_nothing_failed() -> None:
    stream = Stream()
    since = stream.line.recorded
    stream.work()
    stream.line.mark()
    number = stream.work()
    stream.line.cover(number, since)
    stream.driver.run_until_idle()
    assert stream.line.done(number)
    assert stream.line.failures == []


def test_two_threads_that_record_at_once_do_not_lose_a_failure() -> None:
    """The slower one was first; its event stands behind the work that the faster one's event does not cover."""
    stream = Stream()
    first = stream.work()
    gate = Gate()
    stream.driver.faults.before("record", 1, gate.stop)
    slow = threading.Thread(target=stream.line.mark)
    slow.start()
    gate.wait()
    failed = stream.failing()
    stream.line.mark()
    stream.driver.run_until_idle()
    assert not stream.line.done(failed), "an older event is just being recorded and may tell a failure, too"
    gate.open()
    slow.join(10)
    stream.driver.run_until_idle()
    assert stream.line.done(failed)
    assert stream.line.error(failed) is not None
    assert stream.line.done(first)
    stream.line.check_invariants()


def test_a_blocking_wait_waits_for_the_thread_that_is_recording() -> None:
    stream = Stream(driver=SimDriver())
    number = stream.work()
    gate = Gate()
    stream.driver.faults.before("record", 1, gate.stop)
    slow = threading.Thread(target=stream.line.mark)
    slow.start()
    gate.wait()
    waiter = threading.Thread(target=stream.line.wait, args=(number,))
    waiter.start()
    gate.open()
    waiter.join(10)
    slow.join(10)
    assert not waiter.is_alive()
    assert stream.line.reached >= number


@pytest.mark.parametrize("kind", ["create_event", "record"])
def test_an_event_that_cannot_be_had_is_an_error_and_the_next_try_works(kind: str) -> None:
    stream = Stream()
    number = stream.work()
    stream.driver.faults.fail(kind, error=BackendError)
    with pytest.raises(BackendError, match="planned"):
        stream.line.done(number)
    stream.line.check_invariants()
    assert not stream.line.done(number)
    stream.driver.step()
    assert stream.line.done(number)
    stream.line.close()
    assert stream.driver.live_events == []


def test_a_closed_stream_counts_as_done_and_its_handle_is_not_used_again() -> None:
    """BUG-085 (pytorch/pytorch#66941): the handle belongs to another stream by now."""
    stream = Stream()
    number = stream.work()
    stream.driver.run_until_idle()
    stream.line.close()
    stream.driver.destroy_stream(stream.line.handle)
    heir = stream.driver.create_stream()
    assert heir == stream.line.handle
    stream.driver.call(int, (), heir)
    calls = dict(stream.driver.counts)
    assert stream.line.done(number)
    stream.line.wait(number)
    stream.line.mark()
    assert dict(stream.driver.counts) == calls
    assert not stream.driver.violations


def test_events_that_nobody_asks_about_are_as_many_as_there_is_work_in_flight() -> None:
    stream = Stream(borrowed=True)
    for at in range(10 * MANY):
        stream.work()
        if at % 10 == 9:
            stream.driver.run_until_idle()
    assert len(stream.driver.live_events) <= 2 * MANY
    stream.line.check_invariants()


def test_a_failure_that_no_event_told_is_learnt_at_the_close() -> None:
    stream = Stream()
    failed = stream.failing()
    stream.driver.run_until_idle()
    stream.line.close()
    assert stream.line.error(failed) is not None


def test_a_failure_is_learnt_at_the_close() -> None:
    stream = Stream()
    stream.line.fence()
    failed = stream.failing()
    stream.line.mark()
    stream.driver.run_until_idle()
    stream.line.close()
    assert stream.line.error(failed) is not None


def test_many_threads_get_the_same_answers() -> None:
    driver = SimDriver()
    stream = Stream(driver=driver)
    data = np.zeros(8, np.uint8)
    address = driver.allocate(8)
    errors: list[BaseException] = []

    def hammer() -> None:
        try:
            for _ in range(60):
                driver.copy_in(address, data, stream.line.handle)
                number = stream.line.tick()
                stream.line.done(number)
                stream.line.wait(number)
                assert stream.line.reached >= number
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=hammer) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    stream.line.check_invariants()
    stream.line.close()
    assert driver.live_events == []


@pytest.mark.thread_unsafe(reason="sets a trace function")
def test_a_failure_is_told_although_ctrl_c_strikes_who_learns_of_it() -> None:
    for step in range(500):
        driver = SimDriver()
        line = Timeline(driver, driver.create_stream())
        address = driver.allocate(8)
        driver.faults.fail("call", at="completion")
        driver.call(np.copyto, (driver.view(address, 8), np.uint8(1)), line.handle)
        number = line.tick()
        reached: list[bool] = []

        def struck(line: Timeline = line, number: int = number, step: int = step, reached: Any = reached) -> None:
            try:
                reached.append(run_disturbed(line.wait, number, step=step, act=interrupt_the_library, after_calls=True))
            except KeyboardInterrupt:
                reached.append(True)

        # Where a tracer raises at the end of an `except` block, Python keeps that exception as the thread's current one.
        thread = threading.Thread(target=struck)
        thread.start()
        thread.join(60)
        line.wait(number)
        assert line.error(number) is not None, f"step {step}"
        line.cover(number + 1, -1)  # looks at all that has failed
        if not reached[0]:
            break
    assert step > 20


def test_the_object_of_a_borrowed_stream_goes_at_the_close_and_not_with_the_last_ticket() -> None:
    """Tickets of entries and blocks are dropped under the library's lock, where no code of users may run."""

    class Queue:
        def __del__(self) -> None:
            inside.append(held_here())

    inside: list[bool] = []
    line = Timeline(SimDriver(), Queue(), borrowed=True)
    ticket = [(line, 0)]
    line.close()
    assert inside == [False]
    del line
    with lock:
        ticket.clear()
    assert inside == [False]
