"""Reductions: identities, NaN, empty axes, what narrow integers are summed in, every length around a block."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from lifetimes.compiler import functions as xp
from lifetimes.compiler.trace import trace
from lifetimes.errors import TraceError
from lifetimes.testing.eager import quiet
from tests.tracing import agree, as_numpy_does, interpreted

EXTREMES = ("min", "max", "argmin", "argmax")


def extremes(xp: Any, x: Any) -> Any:
    step = x + x.dtype.type(0)
    return [getattr(xp, name)(each) for name in EXTREMES for each in (x, step)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "values",
    [["inf"], ["-inf"], ["inf", "inf"], ["-inf", "-inf"], ["nan"], ["1", "nan", "2"], ["nan", "nan"], ["-inf", "inf"]],
)
def test_extremes_of_infinities_and_nan_are_numpys(values: list[str], dtype: str) -> None:
    """BUG-019: cupy/cupy#7424 (also cupy/cupy#8180), the smallest of nothing but infinities."""
    as_numpy_does(extremes, np.array(values, dtype))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
@pytest.mark.parametrize("end", ["min", "max"])
def test_extremes_of_the_ends_of_an_integer_dtype_are_numpys(dtype: str, end: str) -> None:
    """BUG-019."""
    as_numpy_does(extremes, np.full(3, getattr(np.iinfo(dtype), end), dtype))


def test_extremes_are_right_at_every_length() -> None:
    """BUG-019: where the largest is, at either end and in the middle, of every length up to 300."""
    for length in range(1, 301, 7):
        for at in {0, length // 2, length - 1}:
            x = np.zeros(length)
            x[at] = np.inf
            as_numpy_does(extremes, x)
            as_numpy_does(extremes, -x)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float32"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_narrow_numbers_are_summed_as_in_numpy(dtype: str, axis: int | None) -> None:
    """BUG-026: NVIDIA/cudf#8449, a sum of 8 bits in 8 bits; alone and behind an elementwise step, with and without dtype."""
    x = np.ones((100, 100), dtype)

    def program(xp: Any, x: Any) -> Any:
        step = x * x
        plain = [getattr(xp, name)(each, axis=axis) for name in ("sum", "prod", "mean") for each in (x, step)]
        chosen = [
            getattr(xp, name)(x, axis=axis, dtype=other)
            for name in ("sum", "prod")
            for other in ("float64", "int8", "bool")
        ]
        return [*plain, *chosen, xp.mean(x, axis=axis, dtype="float32")]

    as_numpy_does(program, x)


SHAPES = [(0,), (0, 1), (1, 0), (0, 3), (3, 0), (2, 0, 3), (), (1,)]
REDUCTIONS = ["sum", "prod", "min", "max", "any", "all", "mean", "argmax"]


def axis_sets(ndim: int, several: bool) -> list[Any]:
    if not several:
        return [None, *range(ndim)]
    return [None, *range(ndim), *[axes for count in range(ndim + 1) for axes in combinations(range(ndim), count)]]


def numpys_answer(program: Any, x: Any) -> Any:
    """What NumPy gives, None where it raises `ValueError`."""
    try:
        with quiet():
            return np.asarray(program(np, x))
    except ValueError:
        return None


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_nothing_are_numpys(name: str, shape: tuple[int, ...]) -> None:
    """BUG-041: cupy/cupy#266 (also AccelerateHS/accelerate#124, #188): value, shape and dtype, or the error."""
    for axis in axis_sets(len(shape), several=name != "argmax"):
        for keepdims in (False, True):
            for step in (False, True):

                def program(xp: Any, x: Any, step: bool = step, axis: Any = axis, keepdims: bool = keepdims) -> Any:
                    return getattr(xp, name)(x + 1.0 if step else x, axis=axis, keepdims=keepdims)

                x = np.zeros(shape)
                wanted = numpys_answer(program, x)
                if wanted is None:
                    with pytest.raises(TraceError, match=f"{name} of nothing has no value"):
                        trace(lambda x, program=program: program(xp, x), (x,))
                else:
                    agree(interpreted(lambda x, program=program: program(xp, x), x)[0], wanted)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_running_sums_of_nothing_are_empty(shape: tuple[int, ...]) -> None:
    """BUG-041: scans too."""
    for axis in range(len(shape)):
        as_numpy_does(
            lambda xp, x, axis=axis: (xp.cumulative_sum(x, axis=axis), xp.cumulative_prod(x, axis=axis)),
            np.zeros(shape),
        )


def test_sums_of_ones_count_them() -> None:
    """BUG-104: AccelerateHS/accelerate#123, elements of the last part block counted twice."""
    near_powers = [n + d for n in (2**k for k in range(17)) for d in (-1, 0, 1)]
    for n in sorted({*range(0, 1101, 37), *near_powers}):
        ones = np.ones((n, 3))
        total, along, across, turned = interpreted(
            lambda x: (xp.sum(x), xp.sum(x, axis=0), xp.sum(x, axis=1), xp.sum(x.T, axis=1)), ones
        )
        assert (total, along.tolist(), turned.tolist()) == (3 * n, [n] * 3, [n] * 3)
        np.testing.assert_array_equal(across, np.full(n, 3.0))
        if n:
            assert interpreted(lambda n=n: xp.max(xp.arange(n)))[0] == n - 1


def test_axes_that_are_none_are_refused() -> None:
    x = np.zeros((2, 3))
    for axis, says in (
        (2, "axis 2 is out of range for an array of 2"),
        (-3, "out of range"),
        ((0, 0), "names one axis twice"),
    ):
        with pytest.raises(ValueError, match=says):
            trace(lambda x, axis=axis: xp.sum(x, axis=axis), (x,))
    with pytest.raises(TypeError):
        trace(lambda x: xp.argmax(x, axis=(0, 1)), (x,))
    with pytest.raises(ValueError, match="a running sum over 2 dimensions needs an axis"):
        trace(xp.cumulative_sum, (x,))


@pytest.mark.parametrize("dtype", ["float64", "float32", "int8", "bool"])
def test_moments_are_numpys(dtype: str) -> None:
    x = (np.arange(24).reshape(2, 3, 4) * 1.5 % 7).astype(dtype)
    for axis in (None, 0, 1, -1, (0, 2)):
        for correction in (0, 1, 0.5, 10):
            as_numpy_does(
                lambda xp, x, a=axis, c=correction: (
                    xp.mean(x, axis=a), xp.var(x, axis=a, ddof=c), xp.std(x, axis=a, ddof=c, keepdims=True),
                    xp.mean(x, axis=a, keepdims=True), xp.mean(x, axis=a, dtype="float32"),
                ),
                x,
            )  # fmt: skip


@pytest.mark.parametrize("dtype", ["float64", "float32", "int8", "uint16", "bool"])
def test_running_sums_are_numpys(dtype: str) -> None:
    x = (np.arange(12).reshape(3, 4) % 5).astype(dtype)
    as_numpy_does(
        lambda xp, x: (
            xp.cumulative_sum(x, axis=0), xp.cumulative_sum(x, axis=-1, include_initial=True), xp.cumulative_prod(x[0]),
            xp.cumulative_prod(x, axis=1, include_initial=True), xp.cumulative_sum(x, axis=1, dtype="float32"),
            xp.cumsum(x), xp.cumprod(x, 1), xp.cumsum(x, axis=0),
        ),
        x,
    )  # fmt: skip


def test_the_position_over_several_axes_is_counted_in_c_order() -> None:
    """What no function of the namespace asks for, but a graph may."""
    from lifetimes.compiler import ops
    from lifetimes.compiler.interpret import interpret
    from lifetimes.compiler.ir import Builder, Function

    builder = Builder()
    x = ops.make(builder, "param", dtype="float64", shape=(2, 3, 4), index=0)
    out = ops.make(builder, "reduce", x, kind="argmax", axes=(0, 2))
    values = np.random.default_rng(5).permutation(np.arange(24.0)).reshape(2, 3, 4)
    (got,) = interpret(Function((x,), (out,)), values)
    np.testing.assert_array_equal(got, values.transpose(1, 0, 2).reshape(3, 8).argmax(1))
