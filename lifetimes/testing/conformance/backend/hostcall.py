"""The group about Python functions on a stream, and about failures, which they are a way to cause."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from lifetimes.backend import Driver, SupportsHostCall, SupportsPromptCall
from lifetimes.errors import BackendError
from lifetimes.testing.conformance.backend.base import DriverSuite, pattern

__all__ = ["HostCallConformance"]


class Thing:
    """Something that a weak reference can watch."""


class HostCallConformance(DriverSuite):
    """What `view` and `call` promise; skipped for a driver without them."""

    @pytest.fixture
    def host_driver(self, driver: Driver) -> Any:
        """The driver, if it has the ability."""
        if not isinstance(driver, SupportsHostCall):
            pytest.skip("this back end has no memory that the host can see")
        return driver

    def test_a_view_shows_and_changes_device_memory(self, host_driver: Any, stream: Any) -> None:
        address = self.allocate(host_driver, 1000)
        host_driver.copy_in(address, pattern(1000), stream)
        self.wait_for(host_driver, stream)
        view = host_driver.view(address + 10, 500)
        assert view.dtype == np.uint8
        assert view.shape == (500,)
        assert np.array_equal(view, pattern(1000)[10:510])
        view[...] = 99
        found = np.zeros(1000, np.uint8)
        host_driver.copy_out(found, address, stream)
        self.wait_for(host_driver, stream)
        assert (found[10:510] == 99).all()
        assert np.array_equal(found[510:], pattern(1000)[510:])

    def test_calls_keep_the_order_of_their_stream(self, host_driver: Any, stream: Any) -> None:
        address, history = self.allocate(host_driver, 100_000), []
        host_driver.copy_in(address, pattern(100_000), stream)
        view = host_driver.view(address, 100_000)
        host_driver.call(lambda: history.append(view.copy()), (), stream)
        host_driver.copy_in(address, pattern(100_000, 1), stream)
        host_driver.call(lambda: history.append(view.copy()), (), stream)
        host_driver.copy_in(address, pattern(5, 2), stream)
        self.wait_for(host_driver, stream)
        assert np.array_equal(history[0], pattern(100_000))
        assert np.array_equal(history[1], pattern(100_000, 1))
        assert np.array_equal(view[:5], pattern(5, 2))

    def test_a_call_gets_its_arguments(self, host_driver: Any, stream: Any) -> None:
        heard: list[object] = []
        host_driver.call(lambda *args: heard.extend(args), (1, "two", None), stream)
        host_driver.call(heard.append, [3.0], stream)
        self.wait_for(host_driver, stream)
        assert heard == [1, "two", None, 3.0]

    def test_arguments_are_held_until_the_call_is_done_and_no_longer(self, host_driver: Any, stream: Any) -> None:
        release = self.hold(host_driver, stream)
        thing = Thing()
        alive = weakref.ref(thing)
        host_driver.call(lambda thing: None, (thing,), stream)
        del thing
        gc.collect()
        assert alive() is not None
        release()
        self.wait_for(host_driver, stream)
        assert alive() is None

    def test_a_failure_fails_the_next_event_and_no_other(self, host_driver: Any, stream: Any) -> None:
        before, failed, after = (host_driver.create_event() for _ in range(3))
        host_driver.record(before, stream)
        host_driver.call(int, ("no number",), stream)
        host_driver.record(failed, stream)
        host_driver.record(after, stream)
        host_driver.synchronize(stream)  # tells nothing
        assert host_driver.completed(before) is True
        assert host_driver.completed(after) is True
        host_driver.wait(after)
        for ask in (host_driver.completed, host_driver.wait, host_driver.completed):
            with pytest.raises(BackendError, match="no number") as caught:
                ask(failed)
            assert isinstance(caught.value.__cause__, ValueError)
        for event in (before, failed, after):
            host_driver.destroy_event(event)

    def test_a_failure_does_not_stop_the_stream(self, host_driver: Any, stream: Any) -> None:
        address, event = self.allocate(host_driver, 100), host_driver.create_event()
        host_driver.call(int, ("no number",), stream)
        host_driver.copy_in(address, pattern(100), stream)
        host_driver.record(event, stream)
        with pytest.raises(BackendError):
            host_driver.wait(event)
        assert np.array_equal(self.peek(host_driver, address, 100), pattern(100))
        host_driver.record(event, stream)
        host_driver.wait(event)
        host_driver.destroy_event(event)

    def test_a_failure_stays_on_its_stream(self, host_driver: Any) -> None:
        with self.streams(host_driver, 2) as (bad, good):
            failed, fine = host_driver.create_event(), host_driver.create_event()
            host_driver.call(int, ("no number",), bad)
            host_driver.record(failed, bad)
            host_driver.stream_wait(good, failed)
            host_driver.record(fine, good)
            host_driver.wait(fine)
            with pytest.raises(BackendError):
                host_driver.wait(failed)
            host_driver.destroy_event(failed)
            host_driver.destroy_event(fine)

    @pytest.mark.parametrize("how", ["recorded again", "destroyed"])
    def test_an_untold_failure_goes_to_the_next_event(self, host_driver: Any, stream: Any, how: str) -> None:
        event = host_driver.create_event()
        host_driver.call(int, ("no number",), stream)
        host_driver.record(event, stream)
        if how == "destroyed":
            host_driver.destroy_event(event)
            event = host_driver.create_event()
        host_driver.record(event, stream)
        with pytest.raises(BackendError, match="no number"):
            host_driver.wait(event)
        host_driver.destroy_event(event)

    def test_a_failure_keeps_nothing_alive(self, host_driver: Any, stream: Any) -> None:
        def fail(thing: Thing) -> None:
            raise ValueError("no such thing")

        event, thing = host_driver.create_event(), Thing()
        alive = weakref.ref(thing)
        host_driver.call(fail, (thing,), stream)
        del thing
        host_driver.record(event, stream)
        host_driver.synchronize(stream)
        gc.collect()
        assert alive() is None
        with pytest.raises(BackendError) as caught:
            host_driver.completed(event)
        notes = "\n".join([*getattr(caught.value, "__notes__", []), *getattr(caught.value.__cause__, "__notes__", [])])
        assert "in fail" in notes, "where it failed is told in words"
        host_driver.destroy_event(event)

    def test_a_prompt_call_is_made_at_once_or_not_at_all(self, host_driver: Any, stream: Any) -> None:
        self._needs_prompt_calls(host_driver)
        heard: list[int] = []
        assert host_driver.call_now(heard.append, [1], stream)
        assert heard == [1]
        release = self.hold(host_driver, stream)
        assert not host_driver.call_now(heard.append, [2], stream)
        release()
        self.wait_for(host_driver, stream)
        assert host_driver.call_now(heard.append, [3], stream)
        assert heard == [1, 3]

    def test_no_prompt_call_is_made_after_a_failure_that_no_event_has_told(self, host_driver: Any, stream: Any) -> None:
        self._needs_prompt_calls(host_driver)
        heard: list[int] = []
        host_driver.call(_fail, (), stream)
        host_driver.synchronize(stream)
        assert not host_driver.call_now(heard.append, [1], stream)
        with pytest.raises(BackendError):
            self.wait_for(host_driver, stream)
        assert host_driver.call_now(heard.append, [2], stream)
        with pytest.raises(ZeroDivisionError):  # its caller's, and no failure of the stream
            host_driver.call_now(_fail, (), stream)
        self.wait_for(host_driver, stream)
        assert heard == [2]

    def _needs_prompt_calls(self, driver: Any) -> None:
        if not isinstance(driver, SupportsPromptCall):
            pytest.skip("this back end makes no prompt calls")


def _fail() -> None:
    raise ZeroDivisionError("a function that fails")
