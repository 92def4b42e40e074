"""The group about contexts: any thread, nested, restored."""

from __future__ import annotations

from typing import Any

import pytest

from lifetimes.backend import Backend, Driver, SupportsContext
from lifetimes.errors import ClosedError
from lifetimes.testing.conformance.backend.base import DriverSuite

__all__ = ["ContextConformance"]


class ContextConformance(DriverSuite):
    """What `make_current` and `restore` promise; skipped for a driver without them."""

    @pytest.fixture
    def context_driver(self, driver: Driver) -> Any:
        """The driver, if it has the ability."""
        if not isinstance(driver, SupportsContext):
            pytest.skip("this back end has no contexts")
        return driver

    def works(self, driver: Driver) -> None:
        """One call that needs the context."""
        driver.free(driver.allocate(64))

    def test_the_context_can_be_entered_again(self, context_driver: Any) -> None:
        outer = context_driver.make_current()
        inner = context_driver.make_current()
        self.works(context_driver)
        context_driver.restore(inner)
        self.works(context_driver)
        context_driver.restore(outer)
        self.works(context_driver)

    def test_restore_brings_back_the_context_of_another_driver(self, context_driver: Any, backend: Backend) -> None:
        other: Any = backend.open()
        previous = other.make_current()
        self.works(other)
        other.restore(previous)
        self.works(context_driver)
        other.close()

    def test_restore_takes_a_context_that_has_died(self, context_driver: Any, backend: Backend) -> None:
        other: Any = backend.open()
        before = other.make_current()
        dead = context_driver.make_current()  # the other's
        other.close()
        context_driver.restore(dead)
        with pytest.raises(ClosedError):
            other.allocate(64)
        context_driver.restore(before)
        self.works(context_driver)

    def test_each_thread_has_its_own(self, context_driver: Any, backend: Backend) -> None:
        other: Any = backend.open()

        def in_other() -> None:
            previous = other.make_current()
            for _ in range(50):
                self.works(other)
            other.restore(previous)
            self.works(context_driver)

        def in_this() -> None:
            for _ in range(50):
                self.works(context_driver)

        self.in_threads(context_driver, [in_other, in_this, in_other, in_this])
        other.close()
