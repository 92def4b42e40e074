"""The interpreter gives what NumPy gives for the same Python function, whatever it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lifetimes.compiler import functions as xp
from lifetimes.compiler import ops
from lifetimes.compiler.interpret import interpret
from lifetimes.compiler.ir import DTYPES
from lifetimes.compiler.ops import ROWS
from lifetimes.compiler.spec import spec
from lifetimes.compiler.trace import trace
from lifetimes.testing.programs import LINES, Program, arrays, programs
from tests.tracing import agree, results

MANY = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])


def check(program: Program) -> None:
    function = program.function
    traced = trace(lambda *args: function(xp, *args), program.arguments)
    for got, wanted in zip(results(traced, program.arguments), program.eager(), strict=True):
        agree(got, wanted, factor=100)


@MANY
@given(programs())
def test_the_interpreter_agrees_with_numpy(program: Program) -> None:
    check(program)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(programs(dtypes=["float32", "float64"], special=False))
def test_the_interpreter_agrees_with_numpy_on_floats(program: Program) -> None:
    check(program)


@pytest.mark.parametrize("kind", LINES)
def test_every_kind_of_line_is_written_and_agrees(kind: str) -> None:
    written = []

    @settings(max_examples=25, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(programs(kinds=[kind], most_lines=3))
    def agrees(program: Program) -> None:
        written.append(" = " in program.source)
        check(program)

    agrees()
    assert any(written)


def test_a_planted_difference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison is checked: with a wrong reference for one row, random programs disagree."""
    monkeypatch.setitem(ops.ROWS, "maximum", ROWS["minimum"])

    @settings(
        max_examples=300,
        database=None,
        derandomize=True,
        report_multiple_bugs=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs(kinds=["extreme"], most_lines=2))
    def agrees(program: Program) -> None:
        check(program)

    with pytest.raises(AssertionError):
        agrees()


@given(st.sampled_from(DTYPES).flatmap(lambda dtype: arrays((2, 3), dtype)))
def test_arrays_have_the_shape_and_dtype_that_was_asked_for(array: Any) -> None:
    assert array.shape == (2, 3)
    assert array.dtype in DTYPES


def test_a_program_shows_its_source() -> None:
    program = Program("def program(xp, a0):\n    return a0 + 1,\n", (np.ones(2, np.int8),))
    assert repr(program) == "def program(xp, a0):\n    return a0 + 1,\n# with int8[2]"
    assert program.eager()[0].tolist() == [2, 2]


# The interpreter by itself.


def test_values_are_held_against_the_parameters() -> None:
    function = trace(lambda x, y: x + y, (spec(2), spec(2, "int8"))).function
    with pytest.raises(TypeError, match="the function has 2 parameters, not 1"):
        interpret(function, np.ones(2))
    with pytest.raises(ValueError, match=r"parameter 1 is int8 \(2,\), not float64 \(2,\)"):
        interpret(function, np.ones(2), np.ones(2))
    with pytest.raises(ValueError, match=r"parameter 0 is float64 \(2,\), not float64 \(3,\)"):
        interpret(function, np.ones(3), np.ones(2, np.int8))


def test_results_are_fresh_and_may_be_written_to() -> None:
    x = np.ones(2)
    out, again = interpret(trace(lambda x: (x, x), (x,)).function, x)
    out[0] = 5
    assert x[0] == 1
    assert again[0] == 1


def test_each_node_can_be_watched_and_changed() -> None:
    seen = []

    def watch(node: Any, value: Any) -> Any:
        seen.append(node.op)
        return value * 2 if node.op == "sin" else value

    (out,) = interpret(trace(lambda x: xp.sin(x) + x, (spec(2),)).function, np.ones(2), seen=watch)
    assert seen == ["sin", "add"]
    np.testing.assert_array_equal(out, 2 * np.sin(1) + np.ones(2))
