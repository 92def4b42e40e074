"""Functions that arrange elements anew and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lifetimes.compiler.apply import apply, array_of, broadcast, cast, make
from lifetimes.compiler.functions.arguments import axes_of, axis_of, integer_of, shape_of
from lifetimes.compiler.problems import ShapeProblem
from lifetimes.compiler.promotion import check_dtype, common_dtype
from lifetimes.compiler.tracer import Tracer
from lifetimes.errors import TraceError

__all__ = [
    "astype", "broadcast_arrays", "broadcast_to", "concat", "diff", "expand_dims", "flip", "matrix_transpose", "moveaxis",
    "permute_dims", "ravel", "repeat", "reshape", "roll", "squeeze", "stack", "swapaxes", "tile", "unstack",
]  # fmt: skip


def astype(x: Any, dtype: Any, /, *, copy: bool = True) -> Tracer:
    """In another dtype.  Integers wrap, and what a float holds beyond an integer's range becomes anything."""
    return cast(array_of(x), check_dtype(dtype, "astype"))


def reshape(x: Any, /, shape: Any, *, copy: bool | None = None) -> Tracer:
    """The elements in C order in another shape, one length of which may be -1."""
    value = array_of(x)
    target = shape_of(shape, value.size)
    return value if target == value.shape else make("reshape", value, shape=target)


def ravel(x: Any, /) -> Tracer:
    """The elements in C order in one dimension."""
    return reshape(x, (-1,)) if array_of(x).size else reshape(x, (0,))


def broadcast_to(x: Any, /, shape: Any) -> Tracer:
    """Repeated to a shape.  Errors: `ShapeProblem` that names both shapes."""
    return broadcast(array_of(x), shape_of(shape))


def broadcast_arrays(*arrays: Any) -> list[Tracer]:
    """Each repeated to their common shape.  Errors: `ShapeProblem` that names their shapes."""
    values = [array_of(each) for each in arrays]
    try:
        common = np.broadcast_shapes(*[each.shape for each in values])
    except ValueError:
        named = " and ".join(str(each.shape) for each in values)
        raise ShapeProblem(f"broadcast_arrays: shapes {named} do not broadcast to a common one") from None
    return [broadcast(each, common) for each in values]


def permute_dims(x: Any, /, axes: Any) -> Tracer:
    """Dimension ``d`` of the result is dimension ``axes[d]`` of ``x``."""
    value = array_of(x)
    order = tuple([axis_of(each, value.ndim) for each in axes])
    return make("transpose", value, axes=order)


def matrix_transpose(x: Any, /) -> Tracer:
    """The last two dimensions exchanged.  Errors: `ShapeProblem` for fewer."""
    value = array_of(x)
    if value.ndim < 2:
        raise ShapeProblem(f"matrix_transpose needs two dimensions; the shape is {value.shape}")
    return swapaxes(value, -2, -1)


def swapaxes(x: Any, axis1: int, axis2: int, /) -> Tracer:
    """Two dimensions exchanged."""
    value = array_of(x)
    order = list(range(value.ndim))
    a, b = axis_of(axis1, value.ndim), axis_of(axis2, value.ndim)
    order[a], order[b] = b, a
    return make("transpose", value, axes=tuple(order))


def moveaxis(x: Any, source: Any, destination: Any, /) -> Tracer:
    """Dimensions moved to other places, the rest in their order."""
    value = array_of(x)
    sources, destinations = _listed(source), _listed(destination)
    origins = [axis_of(each, value.ndim) for each in sources]
    targets = [axis_of(each, value.ndim) for each in destinations]
    if len(set(origins)) != len(sources) or len(set(targets)) != len(destinations) or len(origins) != len(targets):
        raise ShapeProblem(f"moveaxis from {source!r} to {destination!r}: different axes, and as many, are wanted")
    order = [axis for axis in range(value.ndim) if axis not in origins]
    for to, axis in sorted(zip(targets, origins, strict=True)):
        order.insert(to, axis)
    return make("transpose", value, axes=tuple(order))


def _listed(given: Any) -> Sequence[Any]:
    return given if isinstance(given, (tuple, list)) else (given,)


def expand_dims(x: Any, /, axis: Any = 0) -> Tracer:
    """Dimensions of length 1 put in, where the result has them."""
    value = array_of(x)
    axes = axes_of(axis, value.ndim + len(_listed(axis)))
    return make("expand", value, axes=axes) if axes else value


def squeeze(x: Any, /, axis: Any = None) -> Tracer:
    """Dimensions of length 1 taken out: those named, or all.  Errors: `ShapeProblem` for another length."""
    value = array_of(x)
    ones = tuple([at for at, length in enumerate(value.shape) if length == 1])
    axes = ones if axis is None else axes_of(axis, value.ndim)
    return make("squeeze", value, axes=axes) if axes else value


def flip(x: Any, /, axis: Any = None) -> Tracer:
    """Backwards along the axes, or along all."""
    value = array_of(x)
    axes = [axis for axis in axes_of(axis, value.ndim) if value.shape[axis] > 1]
    start = tuple([value.shape[at] - 1 if at in axes else 0 for at in range(value.ndim)])
    step = tuple([-1 if at in axes else 1 for at in range(value.ndim)])
    return make("slice", value, start=start, step=step, shape=value.shape) if axes else value


def piece(value: Tracer, axis: int, first: int, count: int) -> Tracer:
    """``count`` elements along an axis, from ``first`` on."""
    if count == value.shape[axis]:
        return value
    start = tuple([first if at == axis else 0 for at in range(value.ndim)])
    shape = tuple([count if at == axis else length for at, length in enumerate(value.shape)])
    return make("slice", value, start=start if count else (0,) * value.ndim, step=(1,) * value.ndim, shape=shape)


def roll(x: Any, /, shift: Any, axis: Any = None) -> Tracer:
    """Moved along the axes by as many places, what falls out coming in again; without axis, flattened meanwhile."""
    value = array_of(x)
    if axis is None:
        return reshape(roll(ravel(value), shift, 0), value.shape)
    for at, by in zip(_listed(axis), _repeated(shift, len(_listed(axis))), strict=True):
        at = axis_of(at, value.ndim)
        length = value.shape[at]
        cut = -integer_of(by, "shift") % length if length else 0
        if cut:
            value = make("concat", piece(value, at, cut, length - cut), piece(value, at, 0, cut), axis=at)
    return value


def _repeated(given: Any, count: int) -> Sequence[Any]:
    listed = _listed(given)
    return tuple(listed) * count if len(listed) == 1 else listed


def concat(arrays: Sequence[Any], /, *, axis: Any = 0) -> Tracer:
    """Joined along an axis; flattened and joined for None.  Errors: `ShapeProblem` that names the shapes."""
    values = _promoted("concat", arrays)
    if axis is None:
        values, axis = [ravel(each) for each in values], 0
    at = axis_of(axis, values[0].ndim)
    return make("concat", *values, axis=at) if len(values) > 1 else values[0]


def stack(arrays: Sequence[Any], /, *, axis: Any = 0) -> Tracer:
    """Joined along a new axis.  Errors: `ShapeProblem` for different shapes."""
    values = _promoted("stack", arrays)
    if len({each.shape for each in values}) > 1:
        named = " and ".join(str(each.shape) for each in values)
        raise ShapeProblem(f"stack: shapes {named} are not all the same")
    at = axis_of(axis, values[0].ndim + 1)
    return concat([make("expand", each, axes=(at,)) for each in values], axis=at)


def _promoted(op: str, arrays: Sequence[Any]) -> list[Tracer]:
    values = [array_of(each) for each in arrays]
    if not values:
        raise ShapeProblem(f"{op} needs one array or more")
    common = common_dtype(op, [(each.dtype, False) for each in values])
    return [cast(each, common) for each in values]


def unstack(x: Any, /, *, axis: Any = 0) -> tuple[Tracer, ...]:
    """The pieces along an axis, which they do not have any more."""
    value = array_of(x)
    if not value.ndim:
        raise ShapeProblem("unstack needs a dimension to take apart")
    at = axis_of(axis, value.ndim)
    return tuple([make("squeeze", piece(value, at, n, 1), axes=(at,)) for n in range(value.shape[at])])


def repeat(x: Any, repeats: Any, /, *, axis: Any = None) -> Tracer:
    """Each element as often one after the other; without axis, flattened.  Errors: `TraceError` for different counts."""
    value = ravel(x) if axis is None else array_of(x)
    at = axis_of(0 if axis is None else axis, value.ndim)
    if not hasattr(repeats, "__index__") or isinstance(repeats, Tracer):
        raise TraceError("repeat takes one number for all elements; different ones make a shape that is not known")
    times = integer_of(repeats, "repeats")
    shape = (*value.shape[: at + 1], times, *value.shape[at + 1 :])
    spread = broadcast(make("expand", value, axes=(at + 1,)), shape)
    return make("reshape", spread, shape=(*value.shape[:at], value.shape[at] * times, *value.shape[at + 1 :]))


def tile(x: Any, repetitions: Any, /) -> Tracer:
    """The whole array as often along each axis, the last ones first where they are fewer."""
    value = array_of(x)
    times = [integer_of(each, "repetitions") for each in _listed(repetitions)]
    ndim = max(len(times), value.ndim)
    times = [1] * (ndim - len(times)) + times
    lengths = (1,) * (ndim - value.ndim) + value.shape
    pairs = [length for pair in zip(times, lengths, strict=True) for length in pair]
    apart = make("reshape", value, shape=tuple([length for each in lengths for length in (1, each)]))
    joined = tuple([by * length for by, length in zip(times, lengths, strict=True)])
    return make("reshape", broadcast(apart, tuple(pairs)), shape=joined)


def diff(x: Any, /, *, axis: Any = -1, n: int = 1) -> Tracer:
    """The differences of neighbours along an axis, ``n`` times over; of bools, whether they differ."""
    value = array_of(x)
    at = axis_of(axis, value.ndim)
    for _ in range(n):
        count = max(value.shape[at] - 1, 0)
        after, before = piece(value, at, 1, count), piece(value, at, 0, count)
        value = apply("not_equal" if value.dtype.kind == "b" else "subtract", after, before)
    return value
