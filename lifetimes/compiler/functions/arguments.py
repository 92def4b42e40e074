"""Axes, shapes and other arguments that have to be known while tracing."""

from __future__ import annotations

import operator
from typing import Any

from lifetimes.compiler.ir import Shape
from lifetimes.compiler.problems import ShapeProblem

__all__ = ["axes_of", "axis_of", "integer_of", "shape_of"]


def integer_of(value: Any, what: str) -> int:
    """A plain integer.  Errors: `TraceError` for a traced one, `TypeError` for what is none."""
    try:
        return operator.index(value)
    except TypeError as error:
        raise type(error)(f"{what}: {error}") from None


def axis_of(axis: Any, ndim: int) -> int:
    """An axis from 0 on.  Errors: `ShapeProblem` when there is no such axis."""
    number = integer_of(axis, "axis")
    if not -ndim <= number < ndim:
        raise ShapeProblem(f"axis {number} is out of range for an array of {ndim} dimensions")
    return number % ndim


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """None, one axis or several, as sorted axes from 0 on.  Errors: as `axis_of`; `ShapeProblem` for one named twice."""
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    found = sorted(axis_of(each, ndim) for each in given)
    if len(set(found)) != len(found):
        raise ShapeProblem(f"axis {axis!r} names one axis twice")
    return tuple(found)


def shape_of(shape: Any, size: int | None = None) -> Shape:
    """A shape; with ``size``, one length may be -1 and follows from it.  Errors: `ShapeProblem`."""
    given = shape if isinstance(shape, (tuple, list)) else (shape,)
    lengths = [integer_of(each, "a length") for each in given]
    unknown = [at for at, length in enumerate(lengths) if length < 0]
    if size is not None and len(unknown) == 1 and lengths[unknown[0]] == -1:
        known = 1
        for length in lengths:
            known *= length if length >= 0 else 1
        if not known or size % known:
            raise ShapeProblem(f"{size} elements cannot become shape {tuple(lengths)}")
        lengths[unknown[0]] = size // known
    elif unknown:
        raise ShapeProblem(f"shape {tuple(lengths)}: a length cannot be negative")
    return tuple(lengths)
