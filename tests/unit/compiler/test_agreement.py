"""Results may differ from the interpreter's as far as last bits reach, and no further."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from lifetimes.compiler import functions as xp
from lifetimes.compiler.interpret import interpret
from lifetimes.compiler.trace import trace
from lifetimes.testing.agreement import assert_computes
from lifetimes.testing.programs import Program, programs
from tests.tracing import graph

X = np.linspace(0.1, 3, 50)


def of(use: Any, *values: Any) -> tuple[Any, list[Any]]:
    function = graph(use, *values)
    return function, interpret(function, *values)


def test_the_results_themselves_agree() -> None:
    function, results = of(lambda x: (xp.sin(x), x > 1, xp.sum(x)), X)
    assert assert_computes(function, [X], results) == 50 + 50 + 1


def test_last_bits_are_open() -> None:
    function, (result,) = of(lambda x: xp.sin(x) * xp.exp(x), X)
    assert_computes(function, [X], [result * (1 + 4e-16)])


@pytest.mark.parametrize("error", [1e-13, -1e-13])
def test_a_small_error_in_one_element_is_found(error: float) -> None:
    function, (result,) = of(lambda x: xp.sin(x) * xp.exp(x), X)
    result[7] *= 1 + error
    with pytest.raises(AssertionError, match=r"result 0, element \(7,\): .* \(1 are wrong\)"):
        assert_computes(function, [X], [result])


def test_what_cancels_is_uncertain_and_what_does_not_is_not() -> None:
    function, results = of(lambda x: (xp.exp(x) - xp.exp(x * 1.0000000001), xp.exp(x)), X)
    cancelled = np.exp(X) - np.exp(X * 1.0000000001) * (1 + 2e-16)
    assert_computes(function, [X], [cancelled, results[1]])
    with pytest.raises(AssertionError, match="result 1"):
        assert_computes(function, [X], [cancelled, results[1] * (1 + 1e-9)])


def test_a_sum_that_cancels_is_as_uncertain_as_its_parts() -> None:
    values = np.array([1e16, 1.0, -1e16, 1.0])
    function, _ = of(xp.sum, values)
    assert_computes(function, [values], [np.array(2.0)])
    with pytest.raises(AssertionError):
        assert_computes(function, [values], [np.array(1e5)])


def test_a_bit_that_hangs_on_a_last_bit_is_not_compared() -> None:
    function, (result,) = of(lambda x: xp.sin(x) * 2 == xp.sin(x) + xp.sin(x), X)
    assert assert_computes(function, [X], [~result]) == 0
    function, (result,) = of(lambda x: x > 1, X)
    with pytest.raises(AssertionError, match="are wrong"):
        assert_computes(function, [X], [~result])


@pytest.mark.parametrize(("wanted", "got"), [(np.inf, -np.inf), (np.nan, 1.0), (1.0, np.nan), (np.inf, 1e308)])
def test_infinities_and_nan_are_compared(wanted: float, got: float) -> None:
    x = np.array([wanted])
    function, _ = of(lambda x: xp.maximum(x, x), x)
    assert assert_computes(function, [x], [x]) == 1
    with pytest.raises(AssertionError):
        assert_computes(function, [x], [np.array([got])])


def test_dtypes_and_shapes_must_be_the_same() -> None:
    function, (result,) = of(xp.sin, X)
    with pytest.raises(AssertionError, match=r"result 0 is float32 \(50,\), not float64"):
        assert_computes(function, [X], [result.astype("f4")])
    with pytest.raises(AssertionError, match="result 0 is float64"):
        assert_computes(function, [X], [result[:-1]])
    with pytest.raises(AssertionError, match="0 results instead of 1"):
        assert_computes(function, [X], [])


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(programs())
def test_random_programs_agree_with_numpy(program: Program) -> None:
    function = program.function
    traced = trace(lambda *args: function(xp, *args), program.arguments)
    assert_computes(traced.function, [*program.arguments, *traced.captured], program.eager())
