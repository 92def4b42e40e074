"""The group about order: streams, events, waiting, and who holds what until when."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from lifetimes.backend import Driver
from lifetimes.testing.conformance.backend.base import DriverSuite, pattern

__all__ = ["OrderConformance"]

SHORT, LONG = 100, 1_000_000


class OrderConformance(DriverSuite):
    """What streams and events promise."""

    @pytest.mark.parametrize("sizes", [(SHORT, SHORT), (LONG, LONG), (LONG, SHORT), (SHORT, LONG)])
    def test_a_stream_keeps_its_order(self, driver: Driver, stream: Any, sizes: tuple[int, int]) -> None:
        """Short commands too must not overtake long ones: whatever is written last is there last."""
        first, second = sizes
        size = max(sizes)
        address = self.allocate(driver, size)
        before, after = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
        for round_ in range(5):
            driver.copy_in(address, pattern(size, round_), stream)
            driver.copy_in(address, pattern(first, 50 + round_), stream)
            driver.copy_out(before[:first], address, stream)
            driver.copy_in(address, pattern(second, 100 + round_), stream)
            driver.copy_out(after[:second], address, stream)
            self.wait_for(driver, stream)
            assert np.array_equal(before[:first], pattern(first, 50 + round_))
            assert np.array_equal(after[:second], pattern(second, 100 + round_))

    def test_an_event_that_was_never_recorded_is_complete(self, driver: Driver, stream: Any) -> None:
        event = driver.create_event()
        assert driver.completed(event) is True
        driver.wait(event)
        driver.stream_wait(stream, event)
        self.wait_for(driver, stream)
        driver.destroy_event(event)

    def test_an_event_on_an_idle_stream_completes(self, driver: Driver, stream: Any) -> None:
        event = driver.create_event()
        driver.record(event, stream)
        driver.wait(event)
        assert driver.completed(event) is True
        driver.destroy_event(event)

    def test_an_event_completes_after_the_work_before_it(self, driver: Driver, stream: Any) -> None:
        """`completed` says so without blocking, and without making anything happen."""
        address, event = self.allocate(driver, SHORT), driver.create_event()
        found = np.zeros(SHORT, np.uint8)
        release = self.hold(driver, stream)
        driver.copy_in(address, pattern(SHORT), stream)
        driver.copy_out(found, address, stream)
        driver.record(event, stream)
        assert [driver.completed(event) for _ in range(3)] == [False] * 3
        release()
        driver.wait(event)
        assert driver.completed(event) is True
        assert np.array_equal(found, pattern(SHORT))
        driver.destroy_event(event)

    def test_a_wait_ends_when_the_work_has_ended(self, driver: Driver, stream: Any) -> None:
        if self.virtual_time:
            pytest.skip("in virtual time the wait itself lets the work end")
        event, history = driver.create_event(), []
        release = self.hold(driver, stream)
        driver.record(event, stream)
        started = threading.Event()

        def wait() -> None:
            with self.current(driver):
                started.set()
                driver.wait(event)
                history.append("waited")

        waiters = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
        for waiter in waiters:
            waiter.start()
            started.wait()
        history.append("released")
        release()
        for waiter in waiters:
            waiter.join(10)
            assert not waiter.is_alive()
        assert history == ["released", "waited", "waited", "waited"]
        driver.destroy_event(event)

    def test_synchronize_waits_for_everything(self, driver: Driver, stream: Any) -> None:
        address, found = self.allocate(driver, LONG), np.zeros(LONG, np.uint8)
        driver.copy_in(address, pattern(LONG), stream)
        driver.copy_out(found, address, stream)
        driver.synchronize(stream)
        assert np.array_equal(found, pattern(LONG))
        driver.synchronize(stream)

    def test_recording_again_resets_an_event(self, driver: Driver, stream: Any) -> None:
        event = driver.create_event()
        driver.record(event, stream)
        driver.wait(event)
        release = self.hold(driver, stream)
        driver.record(event, stream)
        assert driver.completed(event) is False
        release()
        driver.wait(event)
        assert driver.completed(event) is True
        driver.destroy_event(event)

    def test_a_held_stream_holds_no_other(self, driver: Driver) -> None:
        if self.virtual_time:
            pytest.skip("in virtual time only the length of the work decides which stream is ahead")
        with self.streams(driver, 2) as (held, free):
            address, found = self.allocate(driver, LONG), np.zeros(LONG, np.uint8)
            event = driver.create_event()
            release = self.hold(driver, held)
            driver.record(event, held)
            driver.copy_in(address, pattern(LONG), free)
            driver.synchronize(free)
            assert driver.completed(event) is False
            driver.copy_out(found, address, free)
            release()
            driver.synchronize(free)
            driver.wait(event)
            assert np.array_equal(found, pattern(LONG))
            driver.destroy_event(event)

    @pytest.mark.parametrize("nbytes", [SHORT, LONG])
    def test_a_stream_waits_for_an_event_of_another(self, driver: Driver, nbytes: int) -> None:
        with self.streams(driver, 2) as (first, second):
            source, target = self.allocate(driver, nbytes), self.allocate(driver, nbytes)
            written, copied = driver.create_event(), driver.create_event()
            release = self.hold(driver, first)
            driver.copy_in(source, pattern(nbytes), first)
            driver.record(written, first)
            driver.stream_wait(second, written)
            driver.copy(target, source, nbytes, second)
            driver.record(copied, second)
            assert driver.completed(copied) is False, "neither the host nor the copy went ahead"
            release()
            driver.wait(copied)
            assert driver.completed(written) is True
            assert np.array_equal(self.peek(driver, target, nbytes), pattern(nbytes))
            driver.destroy_event(written)
            driver.destroy_event(copied)

    def test_a_stream_waits_for_the_recording_of_that_moment(self, driver: Driver) -> None:
        with self.streams(driver, 3) as (first, second, third):
            event, after = driver.create_event(), driver.create_event()
            release = self.hold(driver, first)
            driver.record(event, first)
            driver.stream_wait(second, event)
            driver.record(event, third)
            driver.record(after, second)
            assert driver.completed(after) is False
            release()
            driver.wait(after)
            driver.wait(event)
            driver.destroy_event(event)
            driver.destroy_event(after)

    def test_a_stream_that_waits_for_itself_goes_on(self, driver: Driver, stream: Any) -> None:
        event = driver.create_event()
        release = self.hold(driver, stream)
        driver.record(event, stream)
        driver.stream_wait(stream, event)
        release()
        self.wait_for(driver, stream)
        driver.destroy_event(event)

    def test_streams_that_wait_in_turns_do_not_lock_up(self, driver: Driver) -> None:
        rounds = 40
        with self.streams(driver, 2) as (ping, pong):
            address = self.allocate(driver, 4)
            events = [driver.create_event() for _ in range(2 * rounds)]
            values = [np.array([number], np.int32) for number in range(2 * rounds)]
            release = self.hold(driver, ping)
            for number, (event, value) in enumerate(zip(events, values, strict=True)):
                stream, other = (ping, pong) if number % 2 == 0 else (pong, ping)
                if number:
                    driver.stream_wait(stream, events[number - 1])
                driver.copy_in(address, value, stream)
                driver.record(event, stream)
                driver.stream_wait(other, event)
            release()
            for event in events:
                driver.wait(event)
            assert self.peek(driver, address, 4).view(np.int32)[0] == 2 * rounds - 1
            for event in events:
                driver.destroy_event(event)

    @pytest.mark.parametrize("nbytes", [SHORT, LONG])
    def test_a_source_is_held_until_its_copy_is_done_and_no_longer(
        self, driver: Driver, stream: Any, nbytes: int
    ) -> None:
        """meta-pytorch/torchrec#4231 and JuliaGPU/CUDA.jl#3087 lost it earlier."""
        address = self.allocate(driver, nbytes)
        release = self.hold(driver, stream)
        source = pattern(nbytes)
        alive = weakref.ref(source)
        driver.copy_in(address, source, stream)
        del source
        gc.collect()
        assert alive() is not None
        release()
        self.wait_for(driver, stream)
        assert np.array_equal(self.peek(driver, address, nbytes), pattern(nbytes))
        assert alive() is None

    @pytest.mark.parametrize("nbytes", [SHORT, LONG])
    def test_a_destination_is_held_until_its_copy_is_done_and_no_longer(
        self, driver: Driver, stream: Any, nbytes: int
    ) -> None:
        address = self.allocate(driver, nbytes)
        release = self.hold(driver, stream)
        destination = np.zeros(nbytes, np.uint8)
        alive = weakref.ref(destination)
        driver.copy_out(destination, address, stream)
        del destination
        gc.collect()
        assert alive() is not None
        release()
        self.wait_for(driver, stream)
        assert alive() is None

    def test_many_events_live_at_once_and_are_given_back(self, driver: Driver, stream: Any) -> None:
        for _ in range(3):
            events = [driver.create_event() for _ in range(100)]
            for event in events:
                driver.record(event, stream)
            driver.synchronize(stream)
            assert all(driver.completed(event) for event in events)
            for event in reversed(events):
                driver.destroy_event(event)

    def test_many_streams_come_and_go(self, driver: Driver) -> None:
        address = self.allocate(driver, 70_000)
        for round_ in range(3):
            with self.streams(driver, 8) as streams:
                for number, stream in enumerate(streams):
                    driver.copy_in(address + 70 * number, pattern(70, round_ + number), stream)
            for number in range(8):
                assert np.array_equal(self.peek(driver, address + 70 * number, 70), pattern(70, round_ + number))

    def test_many_threads_share_one_stream(self, driver: Driver, stream: Any) -> None:
        address = self.allocate(driver, 8 * 70_000)
        wrong: list[int] = []

        def body(number: int) -> None:
            part, event = address + number * 70_000, driver.create_event()
            for round_ in range(15):
                nbytes = 70_000 if round_ % 3 == 0 else 500
                found = np.zeros(nbytes, np.uint8)
                driver.copy_in(part, pattern(nbytes, number + round_), stream)
                driver.copy_out(found, part, stream)
                driver.record(event, stream)
                driver.wait(event)
                if not np.array_equal(found, pattern(nbytes, number + round_)):
                    wrong.append(number)
            driver.destroy_event(event)

        self.in_threads(driver, [lambda number=number: body(number) for number in range(8)])  # type: ignore[misc]
        assert not wrong
