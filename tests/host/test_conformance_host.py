"""The conformance suite on the host back end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from lifetimes.backend import Backend, Driver
from lifetimes.testing.conformance.backend import BackendSuite
from lifetimes.testing.conformance.backend.machine import DriverMachine
from lifetimes_host import HostDriver, backend


class TestHost(BackendSuite):
    @pytest.fixture
    def backend(self) -> Backend:
        return backend


class TestHostWithASmallLimit(BackendSuite):
    @pytest.fixture
    def backend(self) -> Backend:
        return backend

    @pytest.fixture
    def driver(self) -> Iterator[Driver]:
        yield from self.under_test(HostDriver(8 << 20))


class HostMachine(DriverMachine):
    def open(self) -> Driver:
        return HostDriver(2 << 20)


HostMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestHostMachine = HostMachine.TestCase
