"""What the groups of the back-end suite share: a driver, ways around it, ways to hold a stream back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from lifetimes.backend import Backend, Driver, IsSynchronous, SupportsContext, SupportsHostCall

__all__ = ["HOLD_SECONDS", "DriverSuite", "pattern"]

HOLD_SECONDS = 30.0
"""After this a held stream lets go by itself, so that a failing test ends."""


def pattern(nbytes: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """``nbytes`` bytes that repeat with a prime period, so that a shifted or doubled range differs.

    >>> pattern(4, 7).tolist()
    [8, 9, 10, 11]
    """
    return ((np.arange(nbytes, dtype=np.int64) + seed) % 251 + 1).astype(np.uint8)


class DriverSuite:
    """The base of each group.  A subclass of a group says what is tested by one fixture: ``backend``, or ``driver``.

    Override `hold` where the driver has no host calls, `peek` and `poke` where there is a way to device memory that
    goes around the driver's copies, and ``virtual_time`` where work completes only when somebody waits.
    """

    virtual_time = False
    """Whether work stands still until somebody waits for it."""
    exact_memory = True
    """Whether `memory_info` counts this driver alone, to the byte, and not other users of the device."""

    @pytest.fixture
    def backend(self) -> Backend:
        """The back end under test; to be overridden."""
        pytest.fail(f"{type(self).__name__} needs a fixture named backend that returns the back end to be tested")

    @pytest.fixture
    def driver(self, backend: Backend) -> Iterator[Driver]:
        """A driver of its own for each test, checked and closed afterwards, its context current on this thread."""
        usability = backend.usability()
        if not usability.usable:
            pytest.skip(f"the back end {backend.name} cannot be used here: {usability.reason}; {usability.remedy}")
        yield from self.under_test(backend.open())

    def under_test(self, driver: Driver) -> Iterator[Driver]:
        """Lend a driver to one test; for ``driver`` fixtures: ``yield from self.under_test(open_it())``."""
        try:
            with self.current(driver):
                yield driver
                for address in self.addresses(driver):
                    driver.free(address)
                self.verify(driver)
        finally:
            for release in self._releases():
                release()
            driver.close()

    def verify(self, driver: Driver) -> None:
        """After each test: the driver's own invariants, and its complaints about the suite."""
        check = getattr(driver, "check_invariants", None)
        if check is not None:
            check()
        assert not getattr(driver, "violations", []), f"the suite broke the protocol: {driver.violations}"  # type: ignore[attr-defined]

    @contextmanager
    def current(self, driver: Driver) -> Iterator[None]:
        """Make the driver's context current on this thread, if it has one."""
        if not isinstance(driver, SupportsContext):
            yield
            return
        previous = driver.make_current()
        try:
            yield
        finally:
            driver.restore(previous)

    def allocate(self, driver: Driver, nbytes: int) -> int:
        """An allocation that is freed after the test."""
        address = driver.allocate(nbytes)
        self.addresses(driver).append(address)
        return address

    def addresses(self, driver: Driver) -> list[int]:
        """What `allocate` has given out, by driver."""
        found: dict[int, list[int]] = self.__dict__.setdefault("_addresses", {})
        return found.setdefault(id(driver), [])

    @pytest.fixture
    def stream(self, driver: Driver) -> Iterator[Any]:
        """A stream for one test."""
        with self.streams(driver, 1) as (stream,):
            yield stream

    @contextmanager
    def streams(self, driver: Driver, count: int) -> Iterator[list[Any]]:
        """Several streams, waited for and destroyed at the end."""
        streams = [driver.create_stream() for _ in range(count)]
        try:
            yield streams
        finally:
            for release in self._releases():
                release()
            for stream in streams:
                driver.synchronize(stream)
                driver.destroy_stream(stream)

    def hold(self, driver: Driver, stream: Any) -> Callable[[], object]:
        """Keep a stream busy until the result is called.

        By default with a host call that waits; in virtual time a host call that has not been waited for is enough.
        """
        if isinstance(driver, IsSynchronous):
            pytest.skip("work of this back end is done when its call returns, so no stream can be held back")
        if not isinstance(driver, SupportsHostCall):
            pytest.skip("this back end gives no way to hold a stream back; override hold()")
        gate = threading.Event()
        if self.virtual_time:
            gate.set()
        driver.call(gate.wait, (HOLD_SECONDS,), stream)
        self._releases().append(gate.set)
        return gate.set

    def _releases(self) -> list[Callable[[], object]]:
        found: list[Callable[[], object]] = self.__dict__.setdefault("_held", [])
        return found

    def poke(self, driver: Driver, address: int, data: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        """Write bytes to device memory at once, going around the copies where the host can see the memory."""
        if isinstance(driver, SupportsHostCall):
            driver.view(address, data.nbytes)[...] = data
            return
        with self.streams(driver, 1) as (stream,):
            driver.copy_in(address, data, stream)

    def peek(self, driver: Driver, address: int, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Read bytes of device memory at once, going around the copies where the host can see the memory."""
        if isinstance(driver, SupportsHostCall):
            seen: np.ndarray[Any, np.dtype[np.uint8]] = driver.view(address, nbytes).copy()
            return seen
        found = np.zeros(nbytes, np.uint8)
        with self.streams(driver, 1) as (stream,):
            driver.copy_out(found, address, stream)
        return found

    def wait_for(self, driver: Driver, stream: Any) -> None:
        """Wait for all work of a stream through an event, which tells failures, as a user would."""
        event = driver.create_event()
        try:
            driver.record(event, stream)
            driver.wait(event)
        finally:
            driver.destroy_event(event)

    def in_threads(self, driver: Driver, bodies: Sequence[Callable[[], object]]) -> None:
        """Run each body on a thread of its own, started together, in the driver's context; raise what they raised."""
        barrier = threading.Barrier(len(bodies))
        errors: list[BaseException] = []

        def run(body: Callable[[], object]) -> None:
            try:
                barrier.wait(HOLD_SECONDS)
                with self.current(driver):
                    body()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(body,), daemon=True) for body in bodies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HOLD_SECONDS)
            assert not thread.is_alive(), "a thread hangs"
        if errors:
            raise BaseExceptionGroup("errors of threads", errors)
