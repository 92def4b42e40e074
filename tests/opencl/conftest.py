"""Say which OpenCL device the tests ran on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lifetimes_opencl import probing
from tests.opencl.here import open_driver, pocls


def pytest_terminal_summary(terminalreporter: Any) -> None:
    devices = probing.working()
    for index in pocls():
        found = devices[index]
        terminalreporter.write_line(f"OpenCL tests ran on {found.platform}, {found.versions}: {found.device}")


@pytest.fixture(params=["fine", "buffers"])
def driver(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A driver with shared memory, and one with buffers."""
    with open_driver(memory=request.param) as driver:
        yield driver


@pytest.fixture
def shared() -> Iterator[Any]:
    """A driver with shared memory that the host can see."""
    with open_driver(memory="fine") as driver:
        yield driver
