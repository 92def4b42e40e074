"""Views of views in one, and reductions, scans and joins of nothing much."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lifetimes.compiler import ops
from lifetimes.compiler.ir import Builder, Node
from lifetimes.compiler.rewrites import Rewrite
from lifetimes.compiler.rewrites.constants import uniform

__all__ = ["REWRITES"]


def _broadcast(builder: Builder, node: Node) -> Node | None:
    (x,) = node.args
    if x.shape == node.shape:
        return x
    if x.op == "broadcast":
        return ops.make(builder, "broadcast", x.args[0], shape=node.shape)
    if x.op == "expand" and x.attr("axes") == tuple(range(len(x.attr("axes")))):  # broadcasting does that by itself
        return ops.make(builder, "broadcast", x.args[0], shape=node.shape)
    return None


def _transpose(builder: Builder, node: Node) -> Node | None:
    (x,) = node.args
    axes = node.attr("axes")
    if axes == tuple(range(x.ndim)):
        return x
    if x.op == "transpose":
        inner = x.attr("axes")
        return ops.make(builder, "transpose", x.args[0], axes=tuple([inner[axis] for axis in axes]))
    return None


def _slice(builder: Builder, node: Node) -> Node | None:
    (x,) = node.args
    start, step = node.attr("start"), node.attr("step")
    # The step of a dimension with one element says nothing.
    if x.shape == node.shape and all(by == 1 or length <= 1 for by, length in zip(step, x.shape, strict=True)):
        return x
    if x.op == "slice" and node.size:
        first, by = x.attr("start"), x.attr("step")
        return ops.make(
            builder,
            "slice",
            x.args[0],
            start=tuple([a + b * c for a, b, c in zip(first, by, start, strict=True)]),
            step=tuple([a * b for a, b in zip(by, step, strict=True)]),
            shape=node.shape,
        )
    return None


def _expand(builder: Builder, node: Node) -> Node | None:
    (x,) = node.args
    if not node.attr("axes"):
        return x
    if x.op == "squeeze" and x.attr("axes") == node.attr("axes"):
        return x.args[0]
    return None


def _squeeze(builder: Builder, node: Node) -> Node | None:
    (x,) = node.args
    if not node.attr("axes"):
        return x
    if x.op == "expand" and x.attr("axes") == node.attr("axes"):
        return x.args[0]
    return None


def _reshape(builder: Builder, node: Node) -> Node | None:
    (x,) = node.args
    if x.shape == node.shape:
        return x
    if x.op == "reshape":
        return ops.make(builder, "reshape", x.args[0], shape=node.shape)
    long = [[at for at, length in enumerate(shape) if length != 1] for shape in (x.shape, node.shape)]
    if [x.shape[at] for at in long[0]] == [node.shape[at] for at in long[1]]:
        # Only lengths of 1 come and go: that is a view whatever the strides are.
        out = tuple([at for at in range(x.ndim) if at not in long[0]])
        new = tuple([at for at in range(node.ndim) if at not in long[1]])
        squeezed = ops.make(builder, "squeeze", x, axes=out) if out else x
        return ops.make(builder, "expand", squeezed, axes=new) if new else squeezed
    return None


def _reduce(builder: Builder, node: Node) -> Node | None:
    (x,) = node.args
    axes = node.attr("axes")
    if any(x.shape[axis] != 1 for axis in axes):
        return None
    if node.attr("kind").startswith("arg"):
        return uniform(builder, node.dtype.type(0), node.shape)
    return ops.make(builder, "squeeze", x, axes=axes) if axes else x


def _scan(builder: Builder, node: Node) -> Node | None:
    return node.args[0] if node.shape[node.attr("axis")] <= 1 else None


def _concat(builder: Builder, node: Node) -> Node | None:
    axis = node.attr("axis")
    full = [arg for arg in node.args if arg.shape[axis]] or [node.args[0]]
    if len(full) == 1:
        return full[0]
    return ops.make(builder, "concat", *full, axis=axis) if len(full) < len(node.args) else None


REWRITES: Final[Mapping[str, Rewrite]] = {
    "broadcast": _broadcast,
    "concat": _concat,
    "expand": _expand,
    "reduce": _reduce,
    "reshape": _reshape,
    "scan": _scan,
    "slice": _slice,
    "squeeze": _squeeze,
    "transpose": _transpose,
}
