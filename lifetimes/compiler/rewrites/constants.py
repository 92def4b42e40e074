"""Constants: computed once, here, instead of in every element."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from lifetimes.compiler import ops
from lifetimes.compiler.ir import Builder, Node, Shape
from lifetimes.compiler.ops import OPS, ROWS

__all__ = ["fold", "uniform", "value_of"]

REDUCED_TO_ONE: Final = ("min", "max", "any", "all")


def value_of(node: Node) -> Any:
    """The NumPy scalar that every element is, None where that is not known."""
    if node.op == "broadcast":
        node = node.args[0]
    return node.attr("value") if node.op == "const" else None


def uniform(builder: Builder, value: Any, shape: Shape) -> Node:
    """An array of one value, a NumPy scalar."""
    constant = ops.make(builder, "const", value=value)
    return ops.make(builder, "broadcast", constant, shape=shape) if shape else constant


def fold(builder: Builder, node: Node) -> Node | None:
    """A node whose elements are all one known value, as that constant.

    Floats that an integer dtype cannot hold are left to the target, whose answer to them is its own.
    """
    values = [value_of(arg) for arg in node.args]
    if not values or any(value is None for value in values):
        return None
    if OPS[node.op].view if node.op in OPS else False:
        return None if node.op == "broadcast" else uniform(builder, values[0], node.shape)
    if node.op == "reshape" or (node.op == "concat" and len({value.tobytes() for value in values}) == 1):
        return uniform(builder, values[0], node.shape)
    if node.op == "reduce" and node.attr("kind") in REDUCED_TO_ONE and node.args[0].size:
        return uniform(builder, values[0], node.shape)
    if node.op not in ROWS and node.op != "cast":
        return None
    if node.op == "cast" and not _fits(values[0], node.dtype):
        return None
    return uniform(builder, ops.evaluate(_of_scalars(node, values), *values)[()], node.shape)


def _of_scalars(node: Node, values: list[Any]) -> Node:
    """The node's operation on single values, made elsewhere: the builder at hand would simplify it."""
    aside = Builder()
    return ops.make(aside, node.op, *[ops.make(aside, "const", value=value) for value in values], dtype=node.dtype)


def _fits(value: Any, dtype: np.dtype[Any]) -> bool:
    if value.dtype.kind != "f" or dtype.kind not in "iu":
        return True
    limits = np.iinfo(dtype)
    return bool(np.isfinite(value)) and limits.min <= int(value) <= limits.max
