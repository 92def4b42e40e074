"""Functions that random programs reach seldom or never, against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lifetimes.compiler import functions as xp
from lifetimes.compiler.trace import trace
from lifetimes.errors import TraceError
from tests.tracing import as_numpy_does, graph, interpreted, same_bits

A = np.arange(24.0).reshape(2, 3, 4)
SPECIAL = np.array([0.0, -0.0, 1.5, -1.5, 2.5, np.inf, -np.inf, np.nan, 5e-324, -1e308])

SHAPES: list[Any] = [
    lambda xp, x: xp.moveaxis(x, 0, -1), lambda xp, x: xp.moveaxis(x, (0, 1), (1, 2)),
    lambda xp, x: xp.moveaxis(x, [2, 0], [0, 1]),
    lambda xp, x: xp.swapaxes(x, 0, 2), lambda xp, x: xp.permute_dims(x, (2, 0, 1)),
    lambda xp, x: xp.matrix_transpose(x),
    lambda xp, x: xp.roll(x, 1), lambda xp, x: xp.roll(x, (1, -2), axis=(0, 2)),
    lambda xp, x: xp.roll(x, 1, axis=(0, 1)),
    lambda xp, x: xp.tile(x, 2), lambda xp, x: xp.tile(x, (2, 1, 3)), lambda xp, x: xp.tile(x, (2, 1, 1, 2)),
    lambda xp, x: xp.repeat(x, 2), lambda xp, x: xp.repeat(x, 3, axis=1), lambda xp, x: xp.repeat(x, 0, axis=-1),
    lambda xp, x: xp.diff(x), lambda xp, x: xp.diff(x, n=2, axis=1), lambda xp, x: xp.diff(x > 5),
    lambda xp, x: xp.flip(x),
    lambda xp, x: xp.flip(x, axis=(0, 2)), lambda xp, x: xp.unstack(x), lambda xp, x: xp.unstack(x, axis=-1),
    lambda xp, x: xp.ravel(x),
    lambda xp, x: xp.expand_dims(x, axis=(0, -1)), lambda xp, x: xp.squeeze(x[:, :1, :1]),
    lambda xp, x: xp.squeeze(x[:1], axis=0),
    lambda xp, x: xp.reshape(x, (4, -1)), lambda xp, x: xp.reshape(x, -1),
    lambda xp, x: xp.broadcast_arrays(x, x[0], x[:, :1]),
    lambda xp, x: xp.stack([x, x, x], axis=-1), lambda xp, x: xp.concat([x, x[:1]]),
    lambda xp, x: xp.concat([x, x[0]], axis=None),
    lambda xp, x: xp.concat([x, xp.astype(x, xp.float32)], axis=2), lambda xp, x: xp.reshape(x[:0], (0, 3)),
]  # fmt: skip


@pytest.mark.parametrize("program", SHAPES)
def test_arranging_is_numpys(program: Any) -> None:
    as_numpy_does(program, A)


MADE: list[Any] = [
    lambda xp: xp.arange(5), lambda xp: xp.arange(2, 9, 3), lambda xp: xp.arange(9, 2, -2), lambda xp: xp.arange(5, 2),
    lambda xp: xp.arange(0.1, 1.0, 0.1), lambda xp: xp.arange(3.0), lambda xp: xp.arange(5, dtype="int8"),
    lambda xp: xp.arange(0, 1, 0.25, dtype="float32"), lambda xp: xp.arange(np.int8(4)),
    lambda xp: xp.linspace(0, 1, 7),
    lambda xp: xp.linspace(-1, 1, 4, endpoint=False), lambda xp: xp.linspace(2, 3, 1), lambda xp: xp.linspace(0, 1, 0),
    lambda xp: xp.linspace(0, 10, 11, dtype="int64"), lambda xp: xp.eye(3), lambda xp: xp.eye(2, 4, k=1, dtype="int8"),
    lambda xp: xp.zeros(3), lambda xp: xp.zeros((2, 0), dtype="bool"), lambda xp: xp.ones((), dtype="uint8"),
    lambda xp: xp.full((2, 2), 7), lambda xp: xp.full(3, 2.5, dtype="float32"), lambda xp: xp.full(2, True),
    lambda xp: xp.full(2, np.float32(3)), lambda xp: xp.full((2,), 3, dtype="bool"),
    lambda xp: xp.asarray([[1, 2], [3, 4]]),
    lambda xp: xp.asarray(3.5, dtype="float32"), lambda xp: xp.asarray([True, False]),
    lambda xp: xp.ones_like(xp.arange(3)),
    lambda xp: xp.full_like(xp.arange(3), 2, dtype="float32"), lambda xp: xp.zeros_like(xp.ones(2, dtype="float32")),
    lambda xp: xp.meshgrid(xp.arange(3), xp.arange(2.0)),
    lambda xp: xp.meshgrid(xp.arange(3), xp.arange(2), indexing="ij"),
    lambda xp: xp.meshgrid(xp.arange(3), xp.arange(2), xp.arange(4)), lambda xp: xp.meshgrid(xp.arange(3)),
]  # fmt: skip


@pytest.mark.parametrize("program", MADE)
def test_making_is_numpys(program: Any) -> None:
    as_numpy_does(program)


@pytest.mark.parametrize(
    "numbers", [(0.1, 1.0, 0.1), (1, 2, 0.3), (-3.3, 7.7, 1.1), (1e16, 1e16 + 30, 3.0), (5.0, -5.0, -0.7)]
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_numbers_in_steps_have_numpys_bits(numbers: tuple[float, float, float], dtype: str) -> None:
    """The step is what lies between the first two numbers, after rounding."""
    (got,) = interpreted(lambda: xp.arange(*numbers, dtype=dtype))
    same_bits(got, np.arange(*numbers, dtype=dtype))


def test_empty_is_zeros() -> None:
    assert interpreted(lambda x: (xp.empty(2), xp.empty_like(x)), np.ones(1))[0].tolist() == [0, 0]


@pytest.mark.parametrize("shapes", [
    ((2, 3), (3, 4)), ((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((5, 2, 3), (3, 4)), ((5, 1, 2, 3), (4, 3, 2)),
    ((0, 3), (3, 2)),
    ((2, 0), (0, 3)), ((1, 1), (1, 1)),
])  # fmt: skip
@pytest.mark.parametrize(
    "dtypes", [("float64", "float64"), ("float32", "int8"), ("int8", "int8"), ("uint8", "int64"), ("bool", "bool")]
)
def test_matrix_products_are_numpys(shapes: Any, dtypes: Any) -> None:
    random = np.random.default_rng(3)
    a, b = [random.integers(0, 3, shape).astype(dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    as_numpy_does(lambda xp, a, b: xp.matmul(a, b), a, b)


def test_other_products_are_numpys() -> None:
    as_numpy_does(
        lambda xp, x: (
            xp.tensordot(x, xp.permute_dims(x, (2, 0, 1)), axes=1), xp.tensordot(x, x, axes=3),
            xp.tensordot(x, x, axes=([0, 2], [0, 2])),
            xp.tensordot(x[0], x[1], axes=0), xp.tensordot(x, x, axes=(1, 1)), xp.vecdot(x, x), xp.vecdot(x, x[0]),
            xp.vecdot(x, x, axis=0), xp.outer(x[0, 0], x[1, 1]), xp.dot(x[0], x[1].T), xp.dot(x, x[0, 0]),
            xp.dot(2.0, x),
            xp.dot(x, xp.matrix_transpose(x)),
        ),
        A,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (lambda x: x @ x, r"matmul: shapes \(2, 3, 4\) and \(2, 3, 4\) do not multiply"),
        (lambda x: xp.matmul(x, 2.0), "a number is no matrix"),
        (lambda x: xp.matmul(x, np.ones((3, 4, 2))), "do not multiply"),
        (lambda x: xp.vecdot(x, x[..., :2]), "have no axis -1 in common"),
        (lambda x: xp.tensordot(x, x, axes=1), "differ along the axes 1"),
        (lambda x: xp.outer(x, x), "not both of one dimension"),
        (lambda x: xp.reshape(x, (5, 5)), r"shape \(2, 3, 4\) has 24 elements and cannot become \(5, 5\)"),
        (lambda x: xp.reshape(x, (5, -1)), "24 elements cannot become shape"),
        (lambda x: xp.reshape(x, (-1, -1)), "a length cannot be negative"),
        (lambda x: xp.squeeze(x, axis=0), "are not all of length 1"),
        (lambda x: xp.permute_dims(x, (0, 1)), "no permutation of 3"),
        (lambda x: xp.permute_dims(x, (0, 1, 1)), "no permutation of 3"),
        (lambda x: xp.concat([x, x[0]]), "cannot be joined along axis 0"),
        (lambda x: xp.concat([]), "concat needs one array"),
        (lambda x: xp.stack([x, x[:1]]), r"stack: shapes \(2, 3, 4\) and \(1, 3, 4\) are not all the same"),
        (lambda x: xp.broadcast_to(x, (3, 4)), r"shape \(2, 3, 4\) does not broadcast to \(3, 4\)"),
        (lambda x: xp.broadcast_arrays(x, x[:, :2]), "do not broadcast to a common one"),
        (lambda x: xp.expand_dims(x, axis=5), "axis 5 is out of range"),
        (lambda x: xp.moveaxis(x, (0, 1), (0, 0)), "different axes, and as many"),
        (lambda x: xp.matrix_transpose(x[0, 0]), "needs two dimensions"),
        (lambda x: xp.tril(x[0, 0]), "needs two dimensions"),
        (lambda x: xp.unstack(xp.sum(x)), "needs a dimension"),
        (lambda x: xp.arange(0, 5, 0), "the step cannot be 0"),
        (lambda x: xp.meshgrid(x), "arrays of one dimension"),
        (lambda x: xp.zeros((2, -1)), "a length cannot be negative"),
        (lambda x: xp.scatter_add(x, [0], np.ones((5, 7))), "does not broadcast"),
    ],
)
def test_what_does_not_fit_is_a_value_error_too(use: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        trace(use, (A,))
    assert isinstance(caught.value, TraceError)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_functions_of_special_floats_are_numpys(dtype: str) -> None:
    with np.errstate(over="ignore"):
        x = SPECIAL.astype(dtype)
    as_numpy_does(
        lambda xp, x, y: (
            xp.sign(x), xp.signbit(x), xp.isnan(x), xp.isinf(x), xp.isfinite(x), xp.reciprocal(x), xp.square(x),
            xp.floor(x), xp.ceil(x),
            xp.trunc(x), xp.round(x), xp.positive(x), xp.logaddexp(x, y), xp.logaddexp(x, 1.0), xp.maximum(x, y),
            xp.minimum(x, y),
            xp.clip(x, -1, 1), xp.clip(x, None, 1), xp.clip(x, 1, None), xp.clip(x, xp.nan, 1), xp.copysign(x, y),
            xp.nextafter(x, y),
            xp.floor_divide(x, y), xp.remainder(x, y), xp.floor_divide(y, x), xp.remainder(y, x), xp.logical_not(x),
            xp.logical_and(x, y), xp.logical_or(x, y), xp.logical_xor(x, y), xp.where(x, x, y), xp.pow(x, y),
            xp.hypot(x, y),
        ),
        x[:, None], x[None, :],
    )  # fmt: skip


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "uint64"])
def test_functions_of_integers_are_numpys(dtype: str) -> None:
    limits = np.iinfo(dtype)
    x = np.array([0, 1, 2, 7, limits.min, limits.max, limits.max - 1, limits.min + 1, 100], dtype)
    as_numpy_does(
        lambda xp, x, y: (
            xp.sign(x), xp.signbit(x), xp.isnan(x), xp.isinf(x), xp.isfinite(x), xp.square(x), xp.floor(x), xp.ceil(x),
            xp.trunc(x),
            xp.abs(x), xp.negative(x), xp.floor_divide(x, y), xp.remainder(x, y), xp.maximum(x, y), xp.minimum(x, y),
            xp.clip(x, 1, 5), xp.bitwise_left_shift(x, y), xp.bitwise_right_shift(x, y), xp.bitwise_invert(x),
            xp.divide(x, y),
            xp.logical_not(x), xp.logical_and(x, y), xp.logical_xor(x, y), xp.round(x),
            xp.pow(x, xp.abs(xp.clip(y, 0, 3))),
        ),
        x[:, None], x[None, :],
    )  # fmt: skip


def test_functions_of_bools_are_numpys() -> None:
    x = np.array([True, False])
    as_numpy_does(
        lambda xp, x, y: (
            xp.add(x, y), xp.multiply(x, y), xp.maximum(x, y), xp.minimum(x, y), xp.abs(x), xp.square(x),
            xp.floor_divide(x, y),
            xp.remainder(x, y), xp.pow(x, y), xp.bitwise_left_shift(x, y), xp.bitwise_invert(x), xp.less(x, y),
            xp.equal(x, y),
            xp.divide(x, y), xp.sum(x), xp.max(x), xp.argmin(x), xp.diff(xp.ravel(x)), xp.bitwise_xor(x, y), x**2,
            xp.signbit(xp.astype(x, "int8")), xp.isnan(x),
        ),
        x[:, None], x[None, :],
    )  # fmt: skip


def test_powers_of_integers_with_negative_exponents_are_rounded_towards_zero() -> None:
    base, exponent = np.array([1, -1, -1, 2, 0, -2]), np.array([-3, -3, -2, -1, -1, 3])
    assert interpreted(xp.pow, base, exponent)[0].tolist() == [1, -1, 1, 0, 0, -8]


@pytest.mark.parametrize("use", [xp.reciprocal, xp.positive, xp.sign, lambda x: xp.subtract(x, x), xp.negative])
def test_what_bools_do_not_have_is_refused(use: Any) -> None:
    with pytest.raises(TraceError, match="is not defined"):
        trace(use, (np.ones(2, bool),))


def test_error_functions_are_those_of_the_c_library() -> None:
    import math

    x = np.array([-1.0, 0.0, 0.5, np.inf])
    got = interpreted(lambda x: (xp.erf(x), xp.erfc(x), xp.erf(xp.astype(x, "float32"))), x)
    np.testing.assert_allclose(got[0], [math.erf(each) for each in x])
    np.testing.assert_allclose(got[1], [math.erfc(each) for each in x])
    assert got[2].dtype == np.float32


def test_types_can_be_asked_for() -> None:
    def function(x: Any) -> Any:
        assert xp.result_type(x, 1.0) == np.float32
        assert xp.result_type(x, np.float64) == np.float64
        assert xp.result_type("int8", np.uint8) == np.int16
        assert xp.finfo(x.dtype).eps == np.finfo("f4").eps
        assert xp.isdtype(x.dtype, "real floating")
        assert not xp.isdtype(x.dtype, ("integral", "bool"))
        assert xp.isdtype(x.dtype, xp.float32)
        with pytest.raises(ValueError, match="is not one of the kinds"):
            xp.isdtype(x.dtype, "no kind")
        return x

    graph(function, np.ones(2, np.float32))


def test_every_name_of_the_namespace_is_there() -> None:
    assert len(set(xp.__all__)) == len(xp.__all__)
    assert all(hasattr(xp, name) for name in xp.__all__)
