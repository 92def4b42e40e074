"""The conformance suite on PoCL, with each kind of memory that the back end can use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings

from lifetimes.backend import Backend, Driver
from lifetimes.testing.conformance.backend import BackendSuite
from lifetimes.testing.conformance.backend.machine import DriverMachine
from lifetimes_opencl import backend
from tests.opencl.here import hold_back, pocls, require


class OnPoCL(BackendSuite):
    memory: str | None = None

    @pytest.fixture
    def backend(self) -> Backend:
        return backend

    @pytest.fixture(params=pocls() or [0])
    def driver(self, request: pytest.FixtureRequest) -> Iterator[Driver]:
        require()
        yield from self.under_test(backend.open(request.param, memory=self.memory))


class TestPoCL(OnPoCL):
    pass


class WithoutHostCalls(OnPoCL):
    def hold(self, driver: Driver, stream: Any) -> Callable[[], object]:
        release = hold_back(driver, stream)
        self._releases().append(release)
        return release


class TestPoCLWithCoarseMemory(WithoutHostCalls):
    memory = "coarse"


class TestPoCLWithBuffers(WithoutHostCalls):
    memory = "buffers"


class OpenCLMachine(DriverMachine):
    memory: str | None = None

    def open(self) -> Driver:
        return backend.open(require(), memory=self.memory)


class BufferMachine(OpenCLMachine):
    memory = "buffers"


OpenCLMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
BufferMachine.TestCase.settings = settings(max_examples=15, stateful_step_count=30, deadline=None)
TestOpenCLMachine = OpenCLMachine.TestCase
TestBufferMachine = BufferMachine.TestCase
