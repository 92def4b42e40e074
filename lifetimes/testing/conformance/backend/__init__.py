"""The conformance suite for back ends: what every driver must do, as tests that any back end can run.

A test file for a new back end is this:

    class TestMine(BackendSuite):
        @pytest.fixture
        def backend(self):
            return my_package.backend

`BackendSuite` has every group; each group can be taken alone, and the tests of an ability that a driver lacks are
skipped in words.  The fixture ``driver`` may be overridden too (`DriverSuite.under_test`); `DriverSuite` names the few
things that a back end may have to tell the suite.  `machine` has a random program, which needs Hypothesis.
"""

from __future__ import annotations

import pytest

for _module in ("base", "describe", "memory", "order", "hostcall", "context", "code"):
    pytest.register_assert_rewrite(f"{__name__}.{_module}")

from lifetimes.testing.conformance.backend.base import DriverSuite, pattern  # noqa: E402 (after the registration)
from lifetimes.testing.conformance.backend.code import PROGRAMS, CodeConformance, Program  # noqa: E402
from lifetimes.testing.conformance.backend.context import ContextConformance  # noqa: E402
from lifetimes.testing.conformance.backend.describe import DescribeConformance  # noqa: E402
from lifetimes.testing.conformance.backend.hostcall import HostCallConformance  # noqa: E402
from lifetimes.testing.conformance.backend.memory import MemoryConformance  # noqa: E402
from lifetimes.testing.conformance.backend.order import OrderConformance  # noqa: E402

__all__ = [
    "PROGRAMS",
    "BackendSuite",
    "CodeConformance",
    "ContextConformance",
    "DescribeConformance",
    "DriverSuite",
    "HostCallConformance",
    "MemoryConformance",
    "OrderConformance",
    "Program",
    "pattern",
]


class BackendSuite(
    DescribeConformance, MemoryConformance, OrderConformance, HostCallConformance, ContextConformance, CodeConformance
):
    """Every group in one."""
