"""The group about the back end itself: what it says is there, and opening it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lifetimes.backend import Backend, DeviceInfo, Driver, Usability
from lifetimes.errors import BackendError, ClosedError
from lifetimes.testing.conformance.backend.base import DriverSuite, pattern

__all__ = ["DescribeConformance"]


class DescribeConformance(DriverSuite):
    """Names, devices, opening, closing."""

    def test_it_says_whether_it_can_be_used(self, backend: Backend) -> None:
        usability = backend.usability()
        assert isinstance(usability, Usability)
        if not usability.usable:
            assert usability.reason, "an unusable back end says why"
            assert usability.remedy, "an unusable back end says what would mend it"

    def test_devices_are_numbered_from_zero(self, backend: Backend) -> None:
        devices = list(backend.devices())
        assert [device.index for device in devices] == list(range(len(devices)))
        assert bool(devices) == backend.usability().usable, "there are devices exactly when the back end is usable"
        for device in devices:
            assert isinstance(device, DeviceInfo)
            assert device.name
            assert device.total_memory is None or device.total_memory > 0

    def test_a_device_that_is_not_there_is_refused_by_number(self, backend: Backend) -> None:
        missing = len(backend.devices())
        with pytest.raises(BackendError, match=str(missing)):
            backend.open(missing)

    def test_a_driver_has_what_every_driver_must_have(self, driver: Driver, backend: Backend) -> None:
        assert isinstance(driver, Driver)
        assert driver.name == backend.name
        assert isinstance(driver.out_of_memory_codes, frozenset)
        assert driver.max_allocation > 0

    def test_closing_one_driver_leaves_another_of_the_device_alone(self, driver: Driver, backend: Backend) -> None:
        other = backend.open()
        address = self.allocate(driver, 300)
        self.poke(driver, address, pattern(300))
        with self.current(other):
            other.free(other.allocate(300))
        other.close()
        assert (self.peek(driver, address, 300) == pattern(300)).all()

    def test_closing_twice_is_fine(self, backend: Backend) -> None:
        driver = backend.open()
        driver.close()
        driver.close()

    def test_a_closed_driver_refuses_every_call(self, backend: Backend) -> None:
        driver = backend.open()
        with self.current(driver):
            address, stream, event = driver.allocate(16), driver.create_stream(), driver.create_event()
        driver.close()
        data = pattern(16)
        calls: dict[str, Callable[[], object]] = {
            "allocate": lambda: driver.allocate(16),
            "free": lambda: driver.free(address),
            "copy_in": lambda: driver.copy_in(address, data, stream),
            "copy_out": lambda: driver.copy_out(data, address, stream),
            "copy": lambda: driver.copy(address, address + 8, 8, stream),
            "memory_info": driver.memory_info,
            "create_stream": driver.create_stream,
            "destroy_stream": lambda: driver.destroy_stream(stream),
            "create_event": driver.create_event,
            "destroy_event": lambda: driver.destroy_event(event),
            "record": lambda: driver.record(event, stream),
            "completed": lambda: driver.completed(event),
            "wait": lambda: driver.wait(event),
            "stream_wait": lambda: driver.stream_wait(stream, event),
            "synchronize": lambda: driver.synchronize(stream),
        }
        for name, call in calls.items():
            try:
                call()
            except ClosedError:
                continue
            pytest.fail(f"{name} did not raise ClosedError after close()")

    def test_closing_gives_everything_back(self, backend: Backend) -> None:
        """A driver that is closed with things alive leaves no thread and no error."""
        driver = backend.open()
        with self.current(driver):
            address = driver.allocate(100_000)
            for stream in [driver.create_stream() for _ in range(3)]:
                driver.copy_in(address, pattern(100_000), stream)
                driver.record(driver.create_event(), stream)
                driver.synchronize(stream)
        driver.close()
