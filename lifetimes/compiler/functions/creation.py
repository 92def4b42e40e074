"""Functions that make arrays of nothing, in shapes known while tracing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lifetimes.compiler.apply import apply, array_of, broadcast, cast, converted, make
from lifetimes.compiler.functions.arguments import integer_of, shape_of
from lifetimes.compiler.problems import ShapeProblem
from lifetimes.compiler.promotion import check_dtype, common_dtype, default_dtype, is_weak_scalar
from lifetimes.compiler.tracer import Tracer
from lifetimes.errors import TraceError

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "full", "full_like", "isdtype", "linspace", "meshgrid", "ones",
    "ones_like", "result_type", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip

INT64 = np.dtype("int64")
FLOAT64 = np.dtype("float64")


def asarray(obj: Any, /, *, dtype: Any = None) -> Tracer:
    """A traced array of an array, a number, or nested lists of numbers."""
    value = array_of(obj)
    return cast(value, value.dtype if dtype is None else check_dtype(dtype, "asarray"))


def full(shape: Any, fill_value: Any, *, dtype: Any = None) -> Tracer:
    """One number everywhere; it decides the dtype unless ``dtype`` does."""
    return broadcast(_number(fill_value, dtype), shape_of(shape))


def _number(value: Any, dtype: Any) -> Tracer:
    if dtype is not None and is_weak_scalar(value):
        return converted("full", value, check_dtype(dtype, "full"))
    filled = array_of(value)
    return cast(filled, filled.dtype if dtype is None else check_dtype(dtype, "full"))


def zeros(shape: Any, *, dtype: Any = None) -> Tracer:
    """Zeros, float64 unless ``dtype`` says otherwise."""
    return full(shape, 0, dtype=FLOAT64 if dtype is None else dtype)


def ones(shape: Any, *, dtype: Any = None) -> Tracer:
    """Ones, float64 unless ``dtype`` says otherwise."""
    return full(shape, 1, dtype=FLOAT64 if dtype is None else dtype)


def empty(shape: Any, *, dtype: Any = None) -> Tracer:
    """Zeros: nothing is left unsaid in a graph."""
    return zeros(shape, dtype=dtype)


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None) -> Tracer:
    """`full` of the shape of ``x``, and of its dtype unless ``dtype`` says otherwise."""
    value = array_of(x)
    return full(value.shape, fill_value, dtype=value.dtype if dtype is None else dtype)


def zeros_like(x: Any, /, *, dtype: Any = None) -> Tracer:
    """`zeros` of the shape of ``x``, and of its dtype unless ``dtype`` says otherwise."""
    return full_like(x, 0, dtype=dtype)


def ones_like(x: Any, /, *, dtype: Any = None) -> Tracer:
    """`ones` of the shape of ``x``, and of its dtype unless ``dtype`` says otherwise."""
    return full_like(x, 1, dtype=dtype)


def empty_like(x: Any, /, *, dtype: Any = None) -> Tracer:
    """Zeros: nothing is left unsaid in a graph."""
    return zeros_like(x, dtype=dtype)


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None) -> Tracer:
    """``start``, ``start + step``, ... while below ``stop``; from 0 to the one number if there is only one.

    Errors: `TraceError` for traced numbers: the length must be known.
    """
    if stop is None:
        start, stop = 0, start
    for each in (start, stop, step):
        if isinstance(each, Tracer):
            raise TraceError("arange of a traced number has no length that is known; make a longer one and use where()")
    if not step:
        raise ShapeProblem("arange: the step cannot be 0")
    chosen = np.result_type(
        *[default_dtype(each) if is_weak_scalar(each) else each.dtype for each in (start, stop, step)]
    )
    computed = check_dtype(chosen if dtype is None else dtype, "arange")
    length = max(math.ceil((stop - start) / step), 0)
    # The second element is rounded to the dtype before the others are counted from it, as NumPy does.
    first = computed.type(start)
    by = computed.type(computed.type(start + step) - first)
    return apply("add", first, apply("multiply", cast(_counted(length), computed), by))


def _counted(length: int) -> Tracer:
    return make("iota", shape=(length,))


def linspace(start: Any, stop: Any, /, num: int, *, dtype: Any = None, endpoint: bool = True) -> Tracer:
    """``num`` numbers at equal distances, from ``start`` to ``stop``, which is the last one unless ``endpoint`` is False."""
    count = integer_of(num, "num")
    first, last = cast(array_of(start), FLOAT64), cast(array_of(stop), FLOAT64)
    gaps = count - 1 if endpoint else count
    position = cast(_counted(count), FLOAT64)
    step = apply("divide", apply("subtract", last, first), float(max(gaps, 1)))
    spread = apply("add", apply("multiply", position, step), first)
    if endpoint and count > 1:
        spread = apply("select", apply("equal", position, float(count - 1)), last, spread)
    return cast(spread, FLOAT64 if dtype is None else check_dtype(dtype, "linspace"))


def eye(rows: int, columns: int | None = None, /, *, k: int = 0, dtype: Any = None) -> Tracer:
    """Ones on the ``k``-th diagonal, zeros elsewhere."""
    below = _diagonal(integer_of(rows, "rows"), integer_of(rows if columns is None else columns, "columns"))
    return cast(apply("equal", below, integer_of(k, "k")), FLOAT64 if dtype is None else check_dtype(dtype, "eye"))


def _diagonal(rows: int, columns: int) -> Tracer:
    """Which diagonal each element of a matrix is on: column less row."""
    return apply("subtract", _counted(columns), make("expand", _counted(rows), axes=(1,)))


def tril(x: Any, /, *, k: int = 0) -> Tracer:
    """Zeros above the ``k``-th diagonal of the last two dimensions."""
    return _triangle("less_equal", x, k)


def triu(x: Any, /, *, k: int = 0) -> Tracer:
    """Zeros below the ``k``-th diagonal of the last two dimensions."""
    return _triangle("greater_equal", x, k)


def _triangle(op: str, x: Any, k: int) -> Tracer:
    value = array_of(x)
    if value.ndim < 2:
        raise ShapeProblem(f"a triangle needs two dimensions; the shape is {value.shape}")
    kept = apply(op, _diagonal(*value.shape[-2:]), integer_of(k, "k"))
    return apply("select", kept, value, value.dtype.type(0))


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Tracer]:
    """Coordinates of a grid: each array along its own dimension, repeated along the others; the first two exchanged for xy."""
    values = [array_of(each) for each in arrays]
    if indexing not in ("xy", "ij") or any(each.ndim > 1 for each in values):
        raise ShapeProblem(f"meshgrid takes arrays of one dimension, and xy or ij, not {indexing!r}")
    lengths = [each.size for each in values]
    order = list(range(len(values)))
    if indexing == "xy" and len(values) > 1:
        order[:2] = [1, 0]
    shape = tuple([lengths[at] for at in order])
    made = []
    for at, each in enumerate(values):
        along = tuple([lengths[at] if other == at else 1 for other in order])
        made.append(broadcast(make("reshape", each, shape=along), shape))
    return made


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """The dtype that arrays, numbers and dtypes promote to.  Errors: `TraceError` where there is none."""
    operands = []
    for each in arrays_and_dtypes:
        if is_weak_scalar(each):
            operands.append((default_dtype(each), True))
        elif isinstance(each, Tracer):
            operands.append((each.dtype, each.weak))
        else:
            operands.append(
                (check_dtype(each if isinstance(each, type) else getattr(each, "dtype", each), "result_type"), False)
            )
    return common_dtype("result_type", operands)


_KINDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "",
    "numeric": "iuf",
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind (a name of the standard), is that dtype, or either of several in a tuple.

    Errors: `ValueError` for a name that is none.

    >>> isdtype(np.dtype("int8"), "integral"), isdtype(np.float32, (np.int8, "bool"))
    (True, False)
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, each) for each in kind)
    if isinstance(kind, str) and kind not in _KINDS and not hasattr(np, kind):
        raise ValueError(f"{kind!r} is not one of the kinds {', '.join(_KINDS)}")
    if isinstance(kind, str) and kind in _KINDS:
        return np.dtype(dtype).kind in _KINDS[kind]
    return bool(np.dtype(dtype) == np.dtype(kind))
