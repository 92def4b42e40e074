"""Functions that make fewer elements of many, and running sums.

Integers and bools are summed in 64 bits and floats in their own dtype, as in NumPy; ``dtype`` chooses another.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lifetimes.compiler.apply import apply, array_of, as_bool, broadcast, cast, make
from lifetimes.compiler.functions.arguments import axes_of, axis_of
from lifetimes.compiler.ir import Shape
from lifetimes.compiler.problems import ShapeProblem
from lifetimes.compiler.promotion import check_dtype, sum_dtype
from lifetimes.compiler.tracer import Tracer

__all__ = [
    "all", "any", "argmax", "argmin", "count_nonzero", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "max", "mean",
    "min", "prod", "std", "sum", "var",
]  # fmt: skip

BOOL = np.dtype("bool")
UINT8 = np.dtype("uint8")
FLOAT64 = np.dtype("float64")
OF_BOOLS = {"sum": "any", "prod": "all", "max": "any", "min": "all"}


def sum(x: Any, /, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tracer:
    """The sum; of nothing 0."""
    return _accumulated("sum", array_of(x), axis, dtype, keepdims)


def prod(x: Any, /, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tracer:
    """The product; of nothing 1."""
    return _accumulated("prod", array_of(x), axis, dtype, keepdims)


def max(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tracer:
    """The largest; NaN if there is one.  Errors: `ShapeProblem`, which is a `ValueError`, of nothing."""
    return _extreme("max", array_of(x), axis, keepdims)


def min(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tracer:
    """The smallest; NaN if there is one.  Errors: `ShapeProblem`, which is a `ValueError`, of nothing."""
    return _extreme("min", array_of(x), axis, keepdims)


def any(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tracer:
    """Whether one is true (not zero); of nothing False."""
    return _reduced("any", as_bool(array_of(x)), axis, keepdims)


def all(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tracer:
    """Whether each is true (not zero); of nothing True."""
    return _reduced("all", as_bool(array_of(x)), axis, keepdims)


def count_nonzero(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tracer:
    """How many are not zero."""
    return sum(as_bool(array_of(x)), axis, keepdims=keepdims)


def argmax(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tracer:
    """Where the largest is, the first of them; a NaN is larger than all.  Without axis, in the flattened array."""
    return _position("argmax", array_of(x), axis, keepdims)


def argmin(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tracer:
    """Where the smallest is, the first of them; a NaN is smaller than all.  Without axis, in the flattened array."""
    return _position("argmin", array_of(x), axis, keepdims)


def mean(x: Any, /, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tracer:
    """The sum divided by the number of elements; integers are summed as float64.  Of nothing NaN."""
    value = array_of(x)
    computed = _mean_dtype(value, dtype)
    total = _reduced("sum", cast(value, computed), axis, keepdims)
    return apply("divide", total, computed.type(_count(value.shape, axis)))


def var(
    x: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    keepdims: bool = False,
    *,
    correction: float = 0,
    ddof: float | None = None,
) -> Tracer:
    """The mean square of the distance from the mean, over ``n - correction``.  ``ddof`` is NumPy's word for it."""
    value = array_of(x)
    computed = _mean_dtype(value, dtype)
    numbers = cast(value, computed)
    count = _count(value.shape, axis)
    center = apply("divide", _reduced("sum", numbers, axis, keepdims=True), computed.type(count))
    apart = apply("subtract", numbers, center)
    squares = _reduced("sum", apply("multiply", apart, apart), axis, keepdims)
    over = count - (correction if ddof is None else ddof)
    return apply("divide", squares, computed.type(over if over > 0 else 0))


def std(
    x: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    keepdims: bool = False,
    *,
    correction: float = 0,
    ddof: float | None = None,
) -> Tracer:
    """The square root of `var`."""
    return apply("sqrt", var(x, axis, dtype, keepdims, correction=correction, ddof=ddof))


def cumulative_sum(x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False) -> Tracer:
    """The running sum along an axis, which may be left out for one dimension; ``include_initial`` puts a 0 in front.

    Errors: `ShapeProblem` without an axis for several dimensions.
    """
    return _running("sum", array_of(x), axis, dtype, include_initial)


def cumulative_prod(x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False) -> Tracer:
    """The running product along an axis, as `cumulative_sum`, from 1."""
    return _running("prod", array_of(x), axis, dtype, include_initial)


def cumsum(x: Any, /, axis: Any = None, dtype: Any = None) -> Tracer:
    """NumPy's running sum: without axis, of the flattened array."""
    return cumulative_sum(_flat_without(axis, array_of(x)), axis=axis, dtype=dtype)


def cumprod(x: Any, /, axis: Any = None, dtype: Any = None) -> Tracer:
    """NumPy's running product: without axis, of the flattened array."""
    return cumulative_prod(_flat_without(axis, array_of(x)), axis=axis, dtype=dtype)


def _reduced(kind: str, value: Tracer, axis: Any, keepdims: bool) -> Tracer:
    axes = axes_of(axis, value.ndim)
    reduced = make("reduce", value, kind=kind, axes=axes)
    return make("expand", reduced, axes=axes) if keepdims and axes else reduced


def _accumulated(kind: str, value: Tracer, axis: Any, dtype: Any, keepdims: bool) -> Tracer:
    computed = sum_dtype(value.dtype) if dtype is None else check_dtype(dtype, kind)
    if computed == BOOL:  # asked for: NumPy adds bools by or
        return _reduced(OF_BOOLS[kind], as_bool(value), axis, keepdims)
    return _reduced(kind, cast(value, computed), axis, keepdims)


def _extreme(kind: str, value: Tracer, axis: Any, keepdims: bool) -> Tracer:
    if value.dtype != BOOL:
        return _reduced(kind, cast(value, value.dtype), axis, keepdims)
    return cast(_reduced(kind, cast(value, UINT8), axis, keepdims), BOOL)


def _position(kind: str, value: Tracer, axis: Any, keepdims: bool) -> Tracer:
    if axis is not None:
        axis_of(axis, value.ndim)  # one, not several
    return _reduced(kind, cast(value, UINT8 if value.dtype == BOOL else value.dtype), axis, keepdims)


def _count(shape: Shape, axis: Any) -> int:
    count = 1
    for each in axes_of(axis, len(shape)):
        count *= shape[each]
    return count


def _mean_dtype(value: Tracer, dtype: Any) -> np.dtype[Any]:
    if dtype is not None:
        return check_dtype(dtype, "mean")
    return value.dtype if value.dtype.kind == "f" else FLOAT64


def _flat_without(axis: Any, value: Tracer) -> Tracer:
    return value if axis is not None else make("reshape", value, shape=(value.size,))


def _running(kind: str, value: Tracer, axis: Any, dtype: Any, include_initial: bool) -> Tracer:
    if axis is None and value.ndim != 1:
        raise ShapeProblem(f"a running {kind} over {value.ndim} dimensions needs an axis")
    at = axis_of(0 if axis is None else axis, value.ndim)
    computed = sum_dtype(value.dtype) if dtype is None else check_dtype(dtype, f"a running {kind}")
    scanned = make("scan", cast(value, computed), kind=kind, axis=at)
    if not include_initial:
        return scanned
    first = broadcast(array_of(computed.type(kind == "prod")), (*value.shape[:at], 1, *value.shape[at + 1 :]))
    return make("concat", first, scanned, axis=at)
