"""Every operation that is no elementwise row: its constants, its rule for dtype and shape, and its meaning over NumPy.

``dtype`` and ``shape`` of the node decide what `param`, `const`, `cast`, `iota`, `broadcast`, `slice` and `reshape` make: those
have no attribute that repeats them.  Axes in attributes are never negative, and sorted where their order says nothing.

    ===========  ==========================  ==========================================================================
    operation    attributes                  what it is
    ===========  ==========================  ==========================================================================
    param        index                       an argument of the function
    const        value (a NumPy scalar)      of shape (): a constant array is a broadcast of it
    cast                                     to the node's dtype, any to any: integers wrap, to bool is ``!= 0`` (NaN
                                             is True), float to integer cuts off (what does not fit, and NaN: open)
    iota                                     0, 1, 2, ... int64, one dimension
    broadcast                                view: to the node's shape by NumPy's rule (dimensions added in front)
    transpose    axes (a permutation)        view: dimension ``d`` of the result is ``axes[d]`` of the argument
    slice        start, step (a number for   view: element ``i`` of dimension ``d`` is ``start[d] + i * step[d]`` of the
                 each dimension)             argument, which is inside it; steps may be negative, not 0
    expand       axes (of the result)        view: dimensions of length 1 put in
    squeeze      axes (of the argument)      view: dimensions of length 1 taken out
    reshape                                  the elements in C order in another shape (a view where strides allow it)
    reduce       kind, axes                  the axes are gone (keeping them is `expand` after it).  ``sum`` ``prod`` ``min``
                                             ``max``: dtype as the argument; ``any`` ``all``: bool to bool; ``argmin``
                                             ``argmax``: int64, the position among the reduced axes counted in C order.
                                             min, max, argmin, argmax: NaN wins, the first; of equal ones the first;
                                             along an axis of length 0 they are refused.  The empty sum is 0, prod 1,
                                             any False, all True.  Only any and all take bool
    scan         kind, axis                  running ``sum`` or ``prod``, the element itself included; dtype as the argument
    gather       axis                        (x, index int64): ``x.shape[:axis] + index.shape + x.shape[axis + 1:]``;
                                             an index outside is moved to the nearest inside (reading outside is never
                                             done); negative ones were made positive by the front end
    scatter_add  axis                        (base, index int64, updates shaped as `gather` of base): base with each
                                             update added where `gather` would have read; outside: left out
    concat       axis                        one argument or more, of one dtype
    matmul                                   (..., m, k) by (..., k, n), leading dimensions equal, one dtype; integers
                                             wrap; bool: any of and
    ===========  ==========================  ==========================================================================

Sums, products and scans of narrow integers and bools are cast to 64 bits before, by the front end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from lifetimes.compiler.ir import Node, Shape

__all__ = ["OPS", "REDUCTIONS", "SCANS", "Op", "Type"]

Type: TypeAlias = tuple[np.dtype[Any], Shape]

INT64: Final = np.dtype("int64")
BOOL: Final = np.dtype("bool")
REDUCTIONS: Final = ("sum", "prod", "min", "max", "any", "all", "argmin", "argmax")
SCANS: Final = ("sum", "prod")


@dataclass(frozen=True, slots=True)
class Op:
    """One structural operation.

    ``infer(args, attrs, dtype, shape)`` gives the node's dtype and shape; for the operations whose node decides, from the
    ``dtype`` and ``shape`` asked for.  It raises `ValueError` or `TypeError` with a sentence for what cannot be.
    ``evaluate(node, *values)`` is the meaning.  ``arity`` is None for one argument or more.
    """

    name: str
    arity: int | None
    attrs: tuple[str, ...]
    infer: Callable[[tuple[Node, ...], Mapping[str, Any], Any, Shape | None], Type]
    evaluate: Callable[..., Any]
    view: bool = False


def _wanted(what: str, given: Any) -> Any:
    if given is None:
        raise TypeError(f"{what} must be given")
    return given


def _axes(axes: Sequence[int], ndim: int, what: str) -> tuple[int, ...]:
    if tuple(axes) != tuple(sorted(set(axes))) or any(not 0 <= axis < ndim for axis in axes):
        raise ValueError(f"{what} {tuple(axes)} are not sorted, different axes of {ndim} dimensions")
    return tuple(axes)


def _axis(axis: int, ndim: int) -> int:
    if not 0 <= axis < ndim:
        raise ValueError(f"axis {axis} is not one of {ndim} dimensions")
    return axis


def _index_dtype(index: Node) -> None:
    if index.dtype != INT64:
        raise TypeError(f"an index is int64, not {index.dtype}")


# Leaves.


def _infer_param(args: tuple[Node, ...], attrs: Mapping[str, Any], dtype: Any, shape: Shape | None) -> Type:
    return _wanted("dtype", dtype), _wanted("shape", shape)


def _infer_const(args: tuple[Node, ...], attrs: Mapping[str, Any], dtype: Any, shape: Shape | None) -> Type:
    value = attrs["value"]
    if not isinstance(value, np.generic):
        raise TypeError(f"a constant is a NumPy scalar, not {type(value).__name__}")
    return value.dtype, ()


def _infer_iota(args: tuple[Node, ...], attrs: Mapping[str, Any], dtype: Any, shape: Shape | None) -> Type:
    if len(_wanted("shape", shape)) != 1:
        raise ValueError(f"iota has one dimension, not shape {shape}")
    return INT64, _wanted("shape", shape)


def _infer_cast(args: tuple[Node, ...], attrs: Mapping[str, Any], dtype: Any, shape: Shape | None) -> Type:
    return _wanted("dtype", dtype), args[0].shape


def _cast(node: Node, value: Any) -> Any:
    return value.astype(node.dtype)


# Views.


def _infer_broadcast(args: tuple[Node, ...], attrs: Mapping[str, Any], dtype: Any, shape: Shape | None) -> Type:
    target = _wanted("shape", shape)
    source = args[0].shape
    fits = len(source) <= len(target) and all(
        have in (1, want) for have, want in zip(reversed(source), reversed(target), strict=False)
    )
    if not fits:
        raise ValueError(f"shape {source} does not broadcast to {target}")
    return args[0].dtype, target


def _infer_transpose(args: tuple[Node, ...], attrs: Mapping[str, Any], dtype: Any, shape: Shape | None) -> Type:
    axes, source = attrs["axes"], args[0].shape
    if sorted(axes) != list(range(len(source))):
        raise ValueError(f"axes {axes} are no permutation of {len(source)} dimensions")
    return args[0].dtype, tuple([source[axis] for axis in axes])


def _infer_slice(args: tuple[Node, ...], attrs: Mapping[str, Any], dtype: Any, shape: Shape | None) -> Type:
    target, source = _wanted("shape", shape), args[0].shape
    start, step = attrs["start"], attrs["step"]
    if not len(start) == len(step) == len(target) == len(source):
        raise ValueError(f"start {start}, step {step} and shape {target} need a number for each of {source}")
    for first, by, count, length in zip(start, step, target, source, strict=True):
        last = first + (count - 1) * by
        if not by or (count and not (0 <= first < length and 0 <= last < length)):
            raise ValueError(f"start {start}, step {step}, shape {target} reach outside of {source}")
    return args[0].dtype, target


def _slice(node: Node, value: Any) -> Any:
    picked = value
    for axis, (start, step, count) in enumerate(zip(node.attr("start"), node.attr("step"), node.shape, strict=True)):
        picked = np.take(picked, start + step * np.arange(count), axis)
    return picked


def _infer_expand(args: tuple[Node, ...], attrs: Mapping[str, Any], dtype: Any, shape: Shape | None) -> Type:
    axes = _axes(attrs["axes"], args[0].ndim + len(attrs["axes"]), "axes")
    rest = iter(args[0].shape)
    return args[0].dtype, tuple([1 if at in axes else next(rest) for at in range(args[0].ndim + len(axes))])


def _infer_squeeze(args: tuple[Node, ...], attrs: Mapping[str, Any], dtype: Any, shape: Shape | None) -> Type:
    axes, source = _axes(attrs["axes"], args[0].ndim, "axes"), args[0].shape
    if any(source[axis] != 1 for axis in axes):
        raise ValueError(f"axes {axes} of shape {source} are not all of length 1")
    return args[0].dtype, tuple([length for at, length in enumerate(source) if at not in axes])


def _infer_reshape(args: tuple[Node, ...], attrs: Mapping[str, Any], dtype: Any, shape: Shape | None) -> Type:
    target = _wanted("shape", shape)
    size = 1
    for length in target:
        size *= length
    if size != args[0].size or any(length < 0 for length in target):
        raise ValueError(f"shape {args[0].shape} has {args[0].size} elements and cannot become {target}")
    return args[0].dtype, target


# Reductions and scans.


def _infer_reduce(args: tuple[Node, ...], attrs: Mapping[str, Any], dtype: Any, shape: Shape | None) -> Type:
    kind, source = attrs["kind"], args[0].shape
    axes = _axes(attrs["axes"], len(source), "axes")
    if kind not in REDUCTIONS:
        raise ValueError(f"{kind!r} is not one of the reductions {', '.join(REDUCTIONS)}")
    if kind in ("any", "all") and args[0].dtype != BOOL:
        raise TypeError(f"{kind} reduces bool, not {args[0].dtype}; compare with 0 first")
    if kind not in ("any", "all") and args[0].dtype == BOOL:
        raise TypeError(f"{kind} does not reduce bool; cast it first, or use any or all")
    kept = tuple([length for at, length in enumerate(source) if at not in axes])
    if kind in ("min", "max", "argmin", "argmax") and not all(source[axis] for axis in axes):
        raise ValueError(f"{kind} of nothing has no value (axes {axes} of shape {source})")
    return (INT64 if kind.startswith("arg") else args[0].dtype), kept


def _reduce(node: Node, value: Any) -> Any:
    kind, axes = node.attr("kind"), node.attr("axes")
    if 0 in node.shape:
        return np.empty(node.shape, node.dtype)  # NumPy refuses some of these, which have nothing to refuse
    if kind.startswith("arg"):
        kept = [axis for axis in range(value.ndim) if axis not in axes]
        rows = value.transpose(*kept, *axes).reshape(*node.shape, -1)
        return np.asarray(getattr(np, kind)(rows, axis=-1), np.int64)
    if kind in ("sum", "prod"):
        return np.asarray(getattr(np, kind)(value, axis=axes, dtype=node.dtype))
    return np.asarray(getattr(np, kind)(value, axis=axes))


def _infer_scan(args: tuple[Node, ...], attrs: Mapping[str, Any], dtype: Any, shape: Shape | None) -> Type:
    _axis(attrs["axis"], args[0].ndim)
    if attrs["kind"] not in SCANS or args[0].dtype == BOOL:
        raise ValueError(f"there is no scan {attrs['kind']!r} of {args[0].dtype}")
    return args[0].dtype, args[0].shape


def _scan(node: Node, value: Any) -> Any:
    function = np.cumsum if node.attr("kind") == "sum" else np.cumprod
    return function(value, axis=node.attr("axis"), dtype=node.dtype)


# Indices.


def _gathered(source: Shape, index: Shape, axis: int) -> Shape:
    return (*source[:axis], *index, *source[axis + 1 :])


def _infer_gather(args: tuple[Node, ...], attrs: Mapping[str, Any], dtype: Any, shape: Shape | None) -> Type:
    source, index = args
    _index_dtype(index)
    axis = _axis(attrs["axis"], source.ndim)
    gathered = _gathered(source.shape, index.shape, axis)
    if not source.shape[axis] and all(gathered):
        raise ValueError(f"axis {axis} of shape {source.shape} has no elements to gather")
    return source.dtype, gathered


def _gather(node: Node, value: Any, index: Any) -> Any:
    axis = node.attr("axis")
    if 0 in node.shape:
        return np.empty(node.shape, node.dtype)
    return np.take(value, np.clip(index, 0, max(value.shape[axis] - 1, 0)), axis)


def _infer_scatter_add(args: tuple[Node, ...], attrs: Mapping[str, Any], dtype: Any, shape: Shape | None) -> Type:
    base, index, updates = args
    _index_dtype(index)
    wanted = _gathered(base.shape, index.shape, _axis(attrs["axis"], base.ndim))
    if updates.shape != wanted or updates.dtype != base.dtype:
        raise ValueError(f"updates are {updates.dtype} {updates.shape}; this base and index take {base.dtype} {wanted}")
    return base.dtype, base.shape


def _scatter_add(node: Node, base: Any, index: Any, updates: Any) -> Any:
    axis = node.attr("axis")
    out = np.moveaxis(base.copy(), axis, 0)
    rows = np.moveaxis(updates, range(axis, axis + index.ndim), range(index.ndim)).reshape(index.size, *out.shape[1:])
    inside = (index.ravel() >= 0) & (index.ravel() < out.shape[0])
    np.add.at(out, index.ravel()[inside], rows[inside])
    return np.moveaxis(out, 0, axis)


def _infer_concat(args: tuple[Node, ...], attrs: Mapping[str, Any], dtype: Any, shape: Shape | None) -> Type:
    first = args[0]
    axis = _axis(attrs["axis"], first.ndim)
    for each in args[1:]:
        same = each.ndim == first.ndim and all(
            at == axis or a == b for at, (a, b) in enumerate(zip(first.shape, each.shape, strict=True))
        )
        if not same or each.dtype != first.dtype:
            raise ValueError(
                f"{first.dtype} {first.shape} and {each.dtype} {each.shape} cannot be joined along axis {axis}"
            )
    joined = sum(each.shape[axis] for each in args)
    return first.dtype, (*first.shape[:axis], joined, *first.shape[axis + 1 :])


def _infer_matmul(args: tuple[Node, ...], attrs: Mapping[str, Any], dtype: Any, shape: Shape | None) -> Type:
    a, b = args
    if a.ndim < 2 or a.ndim != b.ndim or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        raise ValueError(f"shapes {a.shape} and {b.shape} do not multiply as matrices")
    if a.dtype != b.dtype:
        raise TypeError(f"matmul takes one dtype, not {a.dtype} and {b.dtype}")
    return a.dtype, (*a.shape[:-1], b.shape[-1])


_OPS: Final = (
    Op("param", 0, ("index",), _infer_param, lambda node: None),  # whoever evaluates has the argument
    Op("const", 0, ("value",), _infer_const, lambda node: np.asarray(node.attr("value"))),
    Op("iota", 0, (), _infer_iota, lambda node: np.arange(node.shape[0], dtype=np.int64)),
    Op("cast", 1, (), _infer_cast, _cast),
    Op("broadcast", 1, (), _infer_broadcast, lambda node, x: np.broadcast_to(x, node.shape), view=True),
    Op("transpose", 1, ("axes",), _infer_transpose, lambda node, x: x.transpose(node.attr("axes")), view=True),
    Op("slice", 1, ("start", "step"), _infer_slice, _slice, view=True),
    Op("expand", 1, ("axes",), _infer_expand, lambda node, x: np.expand_dims(x, node.attr("axes")), view=True),
    Op("squeeze", 1, ("axes",), _infer_squeeze, lambda node, x: np.squeeze(x, node.attr("axes")), view=True),
    Op("reshape", 1, (), _infer_reshape, lambda node, x: x.reshape(node.shape)),
    Op("reduce", 1, ("axes", "kind"), _infer_reduce, _reduce),
    Op("scan", 1, ("axis", "kind"), _infer_scan, _scan),
    Op("gather", 2, ("axis",), _infer_gather, _gather),
    Op("scatter_add", 3, ("axis",), _infer_scatter_add, _scatter_add),
    Op("concat", None, ("axis",), _infer_concat, lambda node, *xs: np.concatenate(xs, node.attr("axis"))),
    Op("matmul", 2, (), _infer_matmul, lambda node, a, b: np.matmul(a, b)),
)

OPS: Final[Mapping[str, Op]] = {op.name: op for op in _OPS}
"""The table, by name."""
