"""Products of matrices and vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from lifetimes.compiler.apply import apply, array_of, as_bool, broadcast, cast, make
from lifetimes.compiler.functions.arguments import axis_of, integer_of
from lifetimes.compiler.functions.shapes import reshape
from lifetimes.compiler.problems import ShapeProblem
from lifetimes.compiler.promotion import common_dtype
from lifetimes.compiler.tracer import Tracer

__all__ = ["dot", "matmul", "outer", "tensordot", "vecdot"]


def matmul(x1: Any, x2: Any, /) -> Tracer:
    """The product of matrices, in the last two dimensions; one dimension stands for a row, or for a column.

    Errors: `ShapeProblem` that names both shapes.
    """
    a, b = _promoted("matmul", x1, x2)
    if not a.ndim or not b.ndim:
        raise ShapeProblem(f"matmul: shapes {a.shape} and {b.shape}: a number is no matrix; use *")
    left = make("expand", a, axes=(0,)) if a.ndim == 1 else a
    right = make("expand", b, axes=(1,)) if b.ndim == 1 else b
    try:
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError:
        batch = None
    if batch is None or left.shape[-1] != right.shape[-2]:
        raise ShapeProblem(f"matmul: shapes {a.shape} and {b.shape} do not multiply")
    product = make("matmul", broadcast(left, (*batch, *left.shape[-2:])), broadcast(right, (*batch, *right.shape[-2:])))
    gone = [product.ndim - 2] * (a.ndim == 1) + [product.ndim - 1] * (b.ndim == 1)
    return make("squeeze", product, axes=tuple(gone)) if gone else product


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tracer:
    """The sums of the products along an axis that both have, in their common dtype.  Errors: `ShapeProblem`."""
    a, b = _promoted("vecdot", x1, x2)
    if not a.ndim or not b.ndim or a.shape[axis_of(axis, a.ndim)] != b.shape[axis_of(axis, b.ndim)]:
        raise ShapeProblem(f"vecdot: shapes {a.shape} and {b.shape} have no axis {axis} in common")
    products = apply("multiply", a, b)
    kind = "any" if products.dtype == np.bool_ else "sum"
    at = axis_of(axis, min(a.ndim, b.ndim)) + products.ndim - min(a.ndim, b.ndim) if axis >= 0 else products.ndim + axis
    return make("reduce", products, kind=kind, axes=(at,))


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Tracer:
    """The sums of products over axes of both: so many last and first ones, or a pair of lists.  Errors: `ShapeProblem`."""
    a, b = _promoted("tensordot", x1, x2)
    if isinstance(axes, (tuple, list)):
        left, right = [each if isinstance(each, (tuple, list)) else (each,) for each in axes]
        summed_a, summed_b = [axis_of(each, a.ndim) for each in left], [axis_of(each, b.ndim) for each in right]
    else:
        count = integer_of(axes, "axes")
        summed_a, summed_b = list(range(a.ndim - count, a.ndim)), list(range(count))
    lengths = [a.shape[axis] for axis in summed_a]
    if lengths != [b.shape[axis] for axis in summed_b]:
        raise ShapeProblem(f"tensordot: shapes {a.shape} and {b.shape} differ along the axes {axes}")
    kept_a = [axis for axis in range(a.ndim) if axis not in summed_a]
    kept_b = [axis for axis in range(b.ndim) if axis not in summed_b]
    inner = int(np.prod(lengths, dtype=object)) if lengths else 1
    rows, columns = [a.shape[axis] for axis in kept_a], [b.shape[axis] for axis in kept_b]
    size_a, size_b = int(np.prod(rows, dtype=object)), int(np.prod(columns, dtype=object))
    matrix_a = reshape(make("transpose", a, axes=(*kept_a, *summed_a)), (size_a, inner))
    matrix_b = reshape(make("transpose", b, axes=(*summed_b, *kept_b)), (inner, size_b))
    return reshape(make("matmul", matrix_a, matrix_b), (*rows, *columns))


def outer(x1: Any, x2: Any, /) -> Tracer:
    """Each element of one with each of the other.  Errors: `ShapeProblem` for more than one dimension."""
    a, b = array_of(x1), array_of(x2)
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeProblem(f"outer: shapes {a.shape} and {b.shape} are not both of one dimension")
    return apply("multiply", make("expand", a, axes=(1,)), b)


def dot(x1: Any, x2: Any, /) -> Tracer:
    """NumPy's: the product of numbers, `matmul` up to two dimensions, beyond them `tensordot` with the second last axis."""
    a, b = array_of(x1), array_of(x2)
    if not a.ndim or not b.ndim:
        return apply("multiply", a, b)
    if b.ndim <= 2 and a.ndim <= 2:
        return matmul(a, b)
    return tensordot(a, b, axes=([a.ndim - 1], [max(b.ndim - 2, 0)]))


def _promoted(op: str, x1: Any, x2: Any) -> tuple[Tracer, Tracer]:
    a, b = array_of(x1), array_of(x2)
    common = common_dtype(op, [(a.dtype, False), (b.dtype, False)])
    if common == np.bool_:
        return as_bool(a), as_bool(b)
    return cast(a, common), cast(b, common)
