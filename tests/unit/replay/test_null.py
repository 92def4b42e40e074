"""The device that moves nothing is a driver all the same."""

from __future__ import annotations

from lifetimes.backend import Driver
from lifetimes.replay.null import TOTAL, NullBackend, NullDriver


def test_it_is_a_driver() -> None:
    assert isinstance(NullDriver(), Driver)
    backend = NullBackend()
    assert backend.usability().usable
    assert backend.devices()[0].total_memory == TOTAL
    assert isinstance(backend.open(), NullDriver)


def test_addresses_are_aligned_and_apart_and_never_given_twice() -> None:
    driver = NullDriver()
    seen: list[tuple[int, int]] = []
    for nbytes in (1, 255, 256, 257, 1 << 40, 1):
        address = driver.allocate(nbytes)
        assert address
        assert address % 256 == 0
        assert all(address >= low + size for low, size in seen)
        seen.append((address, nbytes))
        driver.free(address)


def test_work_is_done_as_soon_as_it_is_enqueued() -> None:
    driver = NullDriver()
    event = driver.create_event()
    driver.record(event, driver.create_stream())
    assert driver.completed(event)
