"""The device that moves nothing is a driver all the same."""

from __future__ import annotations

import numpy as np
import pytest

from lifetimes.adaptors import simple_driver
from lifetimes.backend import Driver, EventHandle, IsSynchronous
from lifetimes.manager import Manager
from lifetimes.replay.null import TOTAL, NullBackend, NullDriver
from lifetimes.testing.sim import SimDriver


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


class NobodyAsks(NullDriver):
    """Refuses to tell what is known already."""

    def create_event(self) -> EventHandle:
        raise AssertionError("an event was made")


def test_a_driver_that_is_synchronous_is_asked_for_no_events() -> None:
    with Manager(NobodyAsks(), memory_limit=4 * 4096) as manager:
        keys = [manager.add(np.zeros(4096, np.uint8)) for _ in range(8)]
        for mode in ("r", "rw", "w"):
            for key in keys:
                with manager.use(key, mode):
                    pass
        counts = manager.statistics()
        assert (counts.uploads, counts.copybacks) == (16, 12)
        assert manager.stream.done(manager.stream.issued)
        manager.check_invariants()


def test_only_who_says_so_is_synchronous() -> None:
    simple = simple_driver(
        allocate=bytearray, free=bytearray.clear, copy_in=lambda to, array: None, copy_out=lambda array, at: None
    )
    assert isinstance(simple, IsSynchronous)
    assert not isinstance(SimDriver(), IsSynchronous)


def test_a_use_that_comes_to_nothing_leaves_no_work_behind() -> None:
    """A call that raises has done nothing, so nothing is waited for."""

    class Fails(NobodyAsks):
        def copy_in(self, address: int, source: object, stream: object) -> None:
            raise OSError("planted")

    with Manager(Fails(), memory_limit=4096) as manager:
        key = manager.add(np.zeros(4096, np.uint8))
        with pytest.raises(OSError, match="planted"), manager.use(key):
            pass
        manager.check_invariants()
