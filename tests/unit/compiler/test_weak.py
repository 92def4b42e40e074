"""Python numbers stay weak: alone, computed with each other, and given as arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lifetimes.compiler import functions as xp
from lifetimes.compiler.problems import RangeProblem, ValueProblem
from lifetimes.compiler.trace import trace
from lifetimes.errors import TraceError
from tests.tracing import agree, as_numpy_does, graph, interpreted

DTYPES = ["float32", "float64", "int8", "uint8", "int64", "bool"]
NUMBERS: list[Any] = [True, 3, 0.5, np.float32(2), np.int8(3), np.float64(2), np.array(2.0), np.array(3, np.int16)]


def expressions(xp: Any, x: Any, h: Any) -> Any:
    """The expressions of the report."""
    return x * (2.0 * h), 1.0 - (x * x) / (h * h), h - x * 1, x**h, xp.where(x > h, x, h)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", NUMBERS, ids=lambda each: f"{type(each).__name__}-{getattr(each, 'dtype', '')}")
def test_expressions_of_numbers_are_as_weak_as_in_numpy(dtype: str, number: Any) -> None:
    """BUG-025: cupy/cupy#9400 (also cupy/cupy#8536)."""
    x = np.array([1, 0, 1, 1], dtype)
    # As an argument, and used by the function.
    as_numpy_does(expressions, x, number)
    with np.errstate(all="ignore"):
        wanted = expressions(np, x, number)
    for got, want in zip(interpreted(lambda x: expressions(xp, x, number), x), wanted, strict=True):
        agree(got, want)


@pytest.mark.parametrize(
    "expression",
    [
        lambda h, k: h + k, lambda h, k: h * k - 1, lambda h, k: h / k, lambda h, k: h // k, lambda h, k: h % k,
        lambda h, k: -h, lambda h, k: abs(h), lambda h, k: (h > k) * 2, lambda h, k: (h > k) + (h < k), lambda h, k: h**2,
        lambda h, k: 2.0**k, lambda h, k: h == k, lambda h, k: +h, lambda h, k: k**-1, lambda h, k: (h > 1) & (k > 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("pair", [(3, 2), (0.5, 2), (2, 0.25), (True, 3), (True, False), (1.5, 2.5)])
def test_numbers_among_themselves_follow_pythons_rules(expression: Any, pair: tuple[Any, Any]) -> None:
    """What Python makes of them is weak again: times a float32 it is a float32, and so on."""
    try:
        wanted = expression(*pair)
    except ZeroDivisionError:
        pytest.skip("Python raises here, and a graph gives an infinity")
    (got,) = interpreted(lambda h, k: expression(h, k), *pair)
    assert got == wanted
    assert got.dtype == np.asarray(wanted).dtype
    for dtype in ("float32", "int8", "float64"):
        x = np.ones(2, dtype)
        assert graph(lambda x, h, k: x * expression(h, k), x, *pair).outs[0].dtype == (x * wanted).dtype


def test_a_function_of_numbers_gives_an_array_as_in_numpy() -> None:
    x = np.ones(2, np.float32)
    as_numpy_does(lambda xp, x, h: (x * xp.sqrt(h), xp.add(h, 2.0) * x, xp.where(x > 0, h, 2.0) * x), x, 2.0)


def test_bits_of_pythons_floats_are_refused() -> None:
    with pytest.raises(TraceError, match="bitwise_and of a Python float and a Python int"):
        trace(lambda h: h & 1, (2.0,))


@pytest.mark.parametrize(
    ("use", "dtype"),
    [
        (lambda x: x + 300, "uint8"),
        (lambda x: x - -1, "uint8"),
        (lambda x: x * 128, "int8"),
        (lambda x: xp.where(x > 0, x, -1), "uint16"),
        (lambda x: xp.clip(x, -1, 3), "uint8"),
        (lambda x: x + 2**63, "int64"),
        (lambda x: x + 2**64, "uint64"),
        (lambda x: x + 10**400, "float64"),
        (lambda x: xp.full((2,), -1, dtype="uint8"), "uint8"),
        (lambda x: x**-1, "uint8"),
    ],
)
def test_an_integer_that_does_not_fit_is_refused_as_in_numpy(use: Any, dtype: str) -> None:
    with pytest.raises(OverflowError, match="out of the bounds of") as caught:
        trace(use, (np.ones(2, dtype),))
    assert isinstance(caught.value, RangeProblem)


def test_a_negative_power_of_integers_is_refused_as_in_numpy() -> None:
    with pytest.raises(ValueProblem, match="integers have no negative powers"):
        trace(lambda x: x**-1, (np.ones(2, np.int32),))


def test_large_integers_meet_the_dtype_that_holds_them() -> None:
    as_numpy_does(lambda xp, x: (x + (2**64 - 1), x == 2**64 - 1, x * 1.0), np.array([0, 1, 2**64 - 1], np.uint64))


# Comparisons are exact.


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64"])
@pytest.mark.parametrize("number", [-(2**70), -129, -1, 0, 127, 128, 255, 256, 2**63 - 1, 2**63, 2**64, 2**70])
def test_an_integer_out_of_range_compares_as_the_number_that_it_is(dtype: str, number: int) -> None:
    limits = np.iinfo(dtype)
    x = np.array([limits.min, 0, limits.max], dtype)
    as_numpy_does(
        lambda xp, x: (x < number, x <= number, x > number, x >= number, x == number, x != number, number < x), x
    )


def test_signed_and_unsigned_compare_as_the_numbers_that_they_are() -> None:
    """Their common dtype is float64, in which these are equal."""
    signed = np.array([-1, 0, 2**63 - 1, -(2**63), 5], np.int64)
    unsigned = np.array([2**64 - 1, 0, 2**63, 2**63, 5], np.uint64)
    everything = signed[:, None], unsigned[None, :]
    for a, b in (everything, everything[::-1]):
        as_numpy_does(lambda xp, a, b: (a < b, a <= b, a > b, a >= b, a == b, a != b), a, b)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint64", "float32"])
@pytest.mark.parametrize("number", [-1, 3, 300])
def test_a_number_that_is_an_argument_compares_as_what_it_is(dtype: str, number: int) -> None:
    x = np.array([0, 3, 100], dtype)
    as_numpy_does(lambda xp, x, h: (x < h, x == h, h > x), x, number)
