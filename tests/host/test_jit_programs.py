"""Random programs: what the compiler makes of them is what the interpreter says, on every width of vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings

pytest.importorskip("llvmlite")

import lifetimes
from lifetimes.compiler import functions, settings, target
from lifetimes.testing.programs import LINES, Program, programs
from tests.jitting import check

EXAMPLES = 120
QUIET = list(HealthCheck)


@pytest.fixture
def device() -> Iterator[lifetimes.Device]:
    with lifetimes.open("host", memory_limit="64MiB") as opened:
        yield opened


def run(device: lifetimes.Device, program: Program) -> None:
    function = program.function

    def call(*args: Any) -> Any:
        return function(functions, *args)

    check(device, call, *program.arguments)


@pytest.mark.parametrize("name", target.names())
def test_programs_are_what_the_interpreter_says(device: lifetimes.Device, name: str) -> None:
    @hypothesis_settings(max_examples=EXAMPLES, suppress_health_check=QUIET)
    @given(programs())
    def agrees(program: Program) -> None:
        run(device, program)

    with settings.using(name):
        agrees()


@pytest.mark.parametrize("kind", LINES)
def test_every_kind_of_line(device: lifetimes.Device, kind: str) -> None:
    @hypothesis_settings(max_examples=8, database=None, derandomize=True, suppress_health_check=QUIET)
    @given(programs(kinds=[kind], most_lines=3))
    def agrees(program: Program) -> None:
        run(device, program)

    agrees()
