"""Indexing: slices are views, integers of arrays are gathered.

What is known while tracing (integers, slices, lists) is checked; what is not is taken as NumPy takes it, negative
numbers counted from the end, except that an index outside is moved to the nearest one inside instead of an error.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from lifetimes.compiler.apply import apply, array_of, broadcast, cast, make
from lifetimes.compiler.functions.arguments import axis_of
from lifetimes.compiler.functions.shapes import ravel, reshape
from lifetimes.compiler.problems import IndexProblem, ShapeProblem
from lifetimes.compiler.tracer import Tracer, current_trace
from lifetimes.errors import TraceError

__all__ = ["getitem", "scatter_add", "take", "take_along_axis"]

INT64 = np.dtype("int64")
UINT64 = np.dtype("uint64")


def take(x: Any, indices: Any, /, *, axis: Any = None) -> Tracer:
    """The elements at ``indices`` along an axis; without axis, of the flattened array."""
    value = ravel(x) if axis is None else array_of(x)
    return _gathered(value, indices, axis_of(0 if axis is None else axis, value.ndim))


def take_along_axis(x: Any, indices: Any, /, axis: Any = -1) -> Tracer:
    """One element for each index, from the same place in the other dimensions.  Errors: `ShapeProblem`."""
    value, index = array_of(x), array_of(indices)
    if axis is None:
        value, axis = ravel(value), 0
    if value.ndim != index.ndim:
        raise ShapeProblem(
            f"take_along_axis: shapes {value.shape} and {index.shape} differ in their number of dimensions"
        )
    at = axis_of(axis, value.ndim)
    try:
        common = np.broadcast_shapes(*[(*each.shape[:at], 1, *each.shape[at + 1 :]) for each in (value, index)])
    except ValueError:
        raise ShapeProblem(f"take_along_axis: shapes {value.shape} and {index.shape} do not broadcast") from None
    value, index = [broadcast(each, (*common[:at], each.shape[at], *common[at + 1 :])) for each in (value, index)]
    _something_there(value, index, at)
    flat = _position(_inside(_from_the_end(index, value.shape[at]), value.shape[at]), value.shape, at)
    return make("gather", ravel(value), flat, axis=0)


def _position(index: Tracer, shape: tuple[int, ...], axis: int) -> Tracer:
    """Where in the flattened array each element is, ``index`` giving the place along the axis."""
    flat, stride = None, 1
    for at in reversed(range(len(shape))):
        along = index if at == axis else _along(index.shape[at], at, index.ndim)
        part = apply("multiply", along, np.int64(stride)) if stride != 1 else along
        flat = part if flat is None else apply("add", part, flat)
        stride *= shape[at]
    assert flat is not None  # there is an axis
    return broadcast(flat, index.shape)


def _along(length: int, axis: int, ndim: int) -> Tracer:
    """0, 1, 2, ... along one of ``ndim`` dimensions."""
    counted = make("iota", shape=(length,))
    others = tuple([at for at in range(ndim) if at != axis])
    return make("expand", counted, axes=others) if others else counted


def scatter_add(x: Any, indices: Any, updates: Any, /, *, axis: Any = 0) -> Tracer:
    """``x`` with ``updates`` added at ``indices`` along an axis, as often as an index is there (not in the standard).

    The updates have the shape of ``take(x, indices, axis=axis)``, or one that broadcasts to it; an index outside adds
    nothing.  Errors: `ShapeProblem`.
    """
    value, added = array_of(x), array_of(updates)
    at = axis_of(axis, value.ndim)
    index = _from_the_end(_index_array(indices, value.shape[at], at, value), value.shape[at])
    wanted = (*value.shape[:at], *index.shape, *value.shape[at + 1 :])
    return make("scatter_add", cast(value, value.dtype), index, broadcast(cast(added, value.dtype), wanted), axis=at)


def getitem(x: Tracer, index: Any) -> Tracer:
    """``x[index]``: integers, slices, ``...``, None, and arrays or lists of integers.

    Errors: `IndexProblem`, which is an `IndexError`, for what is known to be outside; `TraceError` for arrays of bools, whose
    result has no shape that is known.
    """
    given = _full(x, index if isinstance(index, tuple) else (index,))
    arrays = [at for at, each in enumerate(given) if _is_array(each)]
    if arrays:  # an integer beside an array counts as an array, which decides where the result's dimensions go
        arrays = [at for at, each in enumerate(given) if each is not None and not isinstance(each, slice)]
    value = _basic(x, [slice(None) if at in arrays else each for at, each in enumerate(given)])
    if not arrays:
        return value
    axes, axis = {}, 0
    for at, each in enumerate(given):
        axes[at] = axis
        axis += isinstance(each, slice) or each is None or at in arrays
    return _advanced(value, [axes[at] for at in arrays], [given[at] for at in arrays])


def _full(x: Tracer, index: tuple[Any, ...]) -> list[Any]:
    """The index with as many entries as dimensions (None apart), and nothing in it that does not belong there."""
    used = 0
    for each in index:
        if isinstance(each, (bool, np.bool_)) or getattr(each, "dtype", None) == np.bool_ or _bools(each):
            raise TraceError(
                "an array of bools as an index makes a shape that is not known while tracing: "
                "use where(mask, x, other), or reductions of it"
            )
        used += each is not None and each is not Ellipsis
    dots = [at for at, each in enumerate(index) if each is Ellipsis]
    if len(dots) > 1:
        raise IndexProblem("an index can have one '...' only")
    if used > x.ndim:
        raise IndexProblem(f"{used} indices are too many for shape {x.shape}")
    rest = [slice(None)] * (x.ndim - used)
    at = dots[0] if dots else len(index)
    return [*index[:at], *rest, *index[at + 1 :]]


def _bools(each: Any) -> bool:
    return isinstance(each, list) and np.asarray(each).dtype == np.bool_ and bool(each)


def _is_array(each: Any) -> bool:
    return isinstance(each, (Tracer, list)) or (hasattr(each, "shape") and not isinstance(each, np.generic))


def _basic(x: Tracer, index: list[Any]) -> Tracer:
    """Integers, slices and None: a slice, dimensions taken out, dimensions put in."""
    start, step, shape, gone, new = [], [], [], [], []
    axis, place = 0, 0
    for each in index:
        if each is None:
            new.append(place)
            place += 1
            continue
        length = x.shape[axis]
        if isinstance(each, slice):
            first, stop, by = each.indices(length)
            count = len(range(first, stop, by))
            place += 1
        else:
            first, by, count = _whole_index(each, length, axis, x), 1, 1
            gone.append(axis)
        start.append(first if count else 0)
        step.append(by)
        shape.append(count)
        axis += 1
    value = x
    if tuple(shape) != x.shape or any(by != 1 and count > 1 for by, count in zip(step, shape, strict=True)):
        value = make("slice", x, start=tuple(start), step=tuple(step), shape=tuple(shape))
    if gone:
        value = make("squeeze", value, axes=tuple(gone))
    return make("expand", value, axes=tuple(new)) if new else value


def _whole_index(each: Any, length: int, axis: int, x: Tracer) -> int:
    try:
        index = operator.index(each)
    except TraceError:
        raise
    except TypeError:
        raise IndexProblem(f"{each!r} is no index: use integers, slices, ..., None, or arrays of integers") from None
    if not -length <= index < length:
        raise IndexProblem(f"index {index} is out of bounds for axis {axis} of shape {x.shape}")
    return index + length if index < 0 else index


def _advanced(value: Tracer, axes: list[int], indices: list[Any]) -> Tracer:
    lengths = [value.shape[axis] for axis in axes]
    numbers = [
        _index_array(each, length, axis, value) for each, length, axis in zip(indices, lengths, axes, strict=True)
    ]
    if len(axes) == 1:
        return _gathered(value, numbers[0], axes[0])
    try:
        common = np.broadcast_shapes(*[each.shape for each in numbers])
    except ValueError:
        named = " and ".join(str(each.shape) for each in numbers)
        raise IndexProblem(f"index arrays of shapes {named} do not broadcast to a common one") from None
    # The indexed dimensions side by side and flattened to one; in front, unless they are side by side already.
    beside = axes == list(range(axes[0], axes[0] + len(axes)))
    front = axes[0] if beside else 0
    others = [axis for axis in range(value.ndim) if axis not in axes]
    order = (*others[:front], *axes, *others[front:])
    moved = value if beside else make("transpose", value, axes=order)
    size = 1
    for length in lengths:
        size *= length
    flattened = reshape(
        moved, (*[value.shape[axis] for axis in others[:front]], size, *[value.shape[axis] for axis in others[front:]])
    )
    flat, stride = None, 1
    for each, length in reversed(list(zip(numbers, lengths, strict=True))):
        part = apply("multiply", _inside(_from_the_end(each, length), length), np.int64(stride))
        flat = part if flat is None else apply("add", part, flat)
        stride *= length
    assert flat is not None  # there are two or more
    return _gathered(flattened, broadcast(flat, common), front)


def _index_array(each: Any, length: int, axis: int, value: Tracer) -> Tracer:
    if isinstance(each, list) or not hasattr(each, "shape"):
        known = np.asarray(each)
        if known.size == 0:
            known = known.astype(INT64)
        if known.dtype.kind not in "iu":
            raise IndexProblem(f"{each!r} is no index: use integers, slices, ..., None, or arrays of integers")
        outside = known[(known < -length) | (known >= length)]
        if outside.size:
            raise IndexProblem(f"index {outside.flat[0]} is out of bounds for axis {axis} of shape {value.shape}")
        each = known if known.ndim else current_trace().lift(np.int64(known[()]))
    return array_of(each)


def _gathered(value: Tracer, indices: Any, axis: int) -> Tracer:
    index = _index_array(indices, value.shape[axis], axis, value)
    _something_there(value, index, axis)
    return make("gather", cast(value, value.dtype), _from_the_end(index, value.shape[axis]), axis=axis)


def _something_there(value: Tracer, index: Tracer, axis: int) -> None:
    elsewhere = [length for at, length in enumerate(value.shape) if at != axis]
    if not value.shape[axis] and index.size and all(elsewhere):
        raise IndexProblem(f"axis {axis} of shape {value.shape} has no elements to take")


def _from_the_end(index: Tracer, length: int) -> Tracer:
    """As int64, negative ones counted from the end."""
    if index.dtype.kind not in "iu":
        raise IndexProblem(f"an index is an integer, not {index.dtype}")
    if index.dtype.kind == "u":
        if index.dtype == UINT64:  # what int64 cannot hold would come out negative
            index = apply("minimum", index, np.uint64(length))
        return cast(index, INT64)
    number = cast(index, INT64)
    return apply("select", apply("less", number, 0), apply("add", number, np.int64(length)), number)


def _inside(index: Tracer, length: int) -> Tracer:
    """Moved to the nearest index that there is."""
    return apply("minimum", apply("maximum", index, np.int64(0)), np.int64(max(length - 1, 0)))
