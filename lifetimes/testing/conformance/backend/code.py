"""The group about code: compile, load, launch, unload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from lifetimes.backend import Driver, SupportsCode
from lifetimes.errors import BackendError, CompileError
from lifetimes.testing.conformance.backend.base import DriverSuite, pattern

__all__ = ["PROGRAMS", "CodeConformance", "Program"]


@dataclass(frozen=True, slots=True)
class Program:
    """The suite's program in one source language.

    ``source`` defines two kernels over ``size`` items: ``add_one(x)`` adds 1 to each of the bytes at ``x``, and
    ``add(x, y, z)`` writes the sums of the bytes at ``x`` and ``y`` to ``z``.  ``broken`` does not compile, because of
    what is in ``culprit``.
    """

    source: str
    broken: str
    culprit: str


PROGRAMS = {
    "python": Program(
        source=(
            "def add_one(x, size):\n    x[:size[0]] += 1\n\n"
            "def add(x, y, z, size):\n    z[:size[0]] = x[:size[0]] + y[:size[0]]\n"
        ),
        broken="def add_one(x):\n    x += = 1\n",
        culprit="x += = 1",
    ),
    "opencl": Program(
        source=(
            "__kernel void add_one(__global uchar *x) { x[get_global_id(0)] += 1; }\n"
            "__kernel void add(__global const uchar *x, __global const uchar *y, __global uchar *z) {\n"
            "    size_t i = get_global_id(0);\n"
            "    z[i] = x[i] + y[i];\n"
            "}\n"
        ),
        broken="__kernel void add_one(__global uchar *x) {\n    retrun 1;\n}\n",
        culprit="retrun",
    ),
}
"""By target language.  Add a row, or override the fixture ``program``, for a language that is not here."""


class CodeConformance(DriverSuite):
    """What `SupportsCode` promises; skipped for a driver without it."""

    @pytest.fixture
    def code_driver(self, driver: Driver) -> Any:
        """The driver, if it has the ability."""
        if not isinstance(driver, SupportsCode):
            pytest.skip("this back end compiles no code")
        return driver

    @pytest.fixture
    def program(self, code_driver: Any) -> Program:
        """The program in the driver's language."""
        if code_driver.target not in PROGRAMS:
            pytest.skip(f"the suite has no program in {code_driver.target!r}; override the fixture program")
        return PROGRAMS[code_driver.target]

    def test_a_kernel_runs_in_the_order_of_its_stream(self, code_driver: Any, stream: Any, program: Program) -> None:
        module = code_driver.load(code_driver.compile(program.source))
        address, found = self.allocate(code_driver, 1000), np.zeros(1000, np.uint8)
        code_driver.copy_in(address, pattern(1000), stream)
        for _ in range(3):
            code_driver.launch(code_driver.function(module, "add_one"), (1000,), (address,), stream)
        code_driver.copy_out(found, address, stream)
        self.wait_for(code_driver, stream)
        assert np.array_equal(found, pattern(1000) + np.uint8(3))
        code_driver.unload(module)

    def test_a_kernel_takes_several_addresses_inside_blocks_too(
        self, code_driver: Any, stream: Any, program: Program
    ) -> None:
        module = code_driver.load(code_driver.compile(program.source))
        x, y, z = (self.allocate(code_driver, 300) for _ in range(3))
        for address in (x, y, z):
            self.poke(code_driver, address, pattern(300))
        code_driver.launch(code_driver.function(module, "add"), (100,), (x + 64, y, z + 128), stream)
        self.wait_for(code_driver, stream)
        expected = pattern(300)
        expected[128:228] = pattern(300)[64:164] + pattern(300)[:100]
        assert np.array_equal(self.peek(code_driver, z, 300), expected)
        code_driver.unload(module)

    def test_a_binary_can_be_loaded_twice(self, code_driver: Any, stream: Any, program: Program) -> None:
        binary = code_driver.compile(program.source)
        assert isinstance(binary, bytes)
        first, second = code_driver.load(binary), code_driver.load(binary)
        code_driver.unload(first)
        address = self.allocate(code_driver, 8)
        self.poke(code_driver, address, np.zeros(8, np.uint8))
        code_driver.launch(code_driver.function(second, "add_one"), (8,), (address,), stream)
        self.wait_for(code_driver, stream)
        assert self.peek(code_driver, address, 8).tolist() == [1] * 8
        code_driver.unload(second)

    def test_a_program_that_does_not_compile_says_where(self, code_driver: Any, program: Program) -> None:
        with pytest.raises(CompileError) as caught:
            code_driver.compile(program.broken)
        assert program.culprit in str(caught.value), "the message carries the source or the compiler's log"

    def test_a_kernel_that_is_not_there_is_answered_by_those_that_are(self, code_driver: Any, program: Program) -> None:
        module = code_driver.load(code_driver.compile(program.source))
        with pytest.raises(BackendError, match="add_one"):
            code_driver.function(module, "ad_one")
        code_driver.unload(module)

    def test_modules_come_and_go(self, code_driver: Any, stream: Any, program: Program) -> None:
        address = self.allocate(code_driver, 8)
        self.poke(code_driver, address, np.zeros(8, np.uint8))
        for _ in range(10):
            module = code_driver.load(code_driver.compile(program.source))
            code_driver.launch(code_driver.function(module, "add_one"), (8,), (address,), stream)
            self.wait_for(code_driver, stream)
            code_driver.unload(module)
        assert self.peek(code_driver, address, 8).tolist() == [10] * 8
