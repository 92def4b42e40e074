"""Elementwise operations that do nothing, undo each other, or have an equal that costs less.

``x + 0.0`` stays (it makes 0.0 of -0.0), ``x * 0.0`` stays (it makes NaN of infinity), and nothing is reordered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from lifetimes.compiler import ops
from lifetimes.compiler.ir import Builder, Node
from lifetimes.compiler.rewrites import Rewrite
from lifetimes.compiler.rewrites.constants import uniform, value_of

__all__ = ["REWRITES"]

OPPOSITE: Final = {
    "equal": "not_equal",
    "not_equal": "equal",
    "less": "greater_equal",
    "greater_equal": "less",
    "greater": "less_equal",
    "less_equal": "greater",
}


def _is(node: Node, number: float) -> bool:
    """Whether every element is that number; -0.0 is not 0.0 here."""
    value = value_of(node)
    if value is None or value.dtype.kind == "b":
        return False
    return bool(value == number) and (value.dtype.kind != "f" or math.copysign(1, value) == math.copysign(1, number))


def _is_integer(node: Node) -> bool:
    return node.dtype.kind in "iu"


def _zero(builder: Builder, node: Node) -> Node:
    return uniform(builder, node.dtype.type(0), node.shape)


def _add(builder: Builder, node: Node) -> Node | None:
    x, y = node.args
    nothing = -0.0 if node.dtype.kind == "f" else 0
    if node.dtype.kind == "b":
        return _or(builder, node)
    if _is(y, nothing):
        return x
    if _is(x, nothing):
        return y
    if y.op == "negative":
        return ops.make(builder, "subtract", x, y.args[0])
    if x.op == "negative":
        return ops.make(builder, "subtract", y, x.args[0])
    return None


def _subtract(builder: Builder, node: Node) -> Node | None:
    x, y = node.args
    if _is(y, 0.0):
        return x
    if x is y and _is_integer(node):
        return _zero(builder, node)
    if y.op == "negative":
        return ops.make(builder, "add", x, y.args[0])
    return None


def _multiply(builder: Builder, node: Node) -> Node | None:
    x, y = node.args
    if node.dtype.kind == "b":
        return _and(builder, node)
    for one, other in ((x, y), (y, x)):
        if _is(one, 1):
            return other
        if _is(one, 0) and _is_integer(node):
            return _zero(builder, node)
    return None


def _divide(builder: Builder, node: Node) -> Node | None:
    x, y = node.args
    if _is(y, 1):
        return x
    value = value_of(y)
    if value is None or not np.isfinite(value) or not value:
        return None
    # A power of two whose inverse is a normal number: both round the same exact quotient.
    mantissa, _ = np.frexp(value)
    with np.errstate(all="ignore"):
        inverse = node.dtype.type(1) / value
    if abs(mantissa) != 0.5 or not np.finfo(node.dtype).smallest_normal <= abs(inverse) < np.inf:
        return None
    return ops.make(builder, "multiply", x, uniform(builder, inverse, node.shape))


def _pow(builder: Builder, node: Node) -> Node | None:
    return node.args[0] if _is(node.args[1], 1) else None


def _floor_divide(builder: Builder, node: Node) -> Node | None:
    return node.args[0] if _is_integer(node) and _is(node.args[1], 1) else None


def _undone(builder: Builder, node: Node) -> Node | None:
    """An operation that is its own opposite, twice."""
    (x,) = node.args
    return x.args[0] if x.op == node.op else None


def _abs(builder: Builder, node: Node) -> Node | None:
    (x,) = node.args
    if x.op == "abs":
        return x
    if x.op == "negative" and node.dtype.kind in "if":
        return ops.make(builder, "abs", x.args[0])
    return x if node.dtype.kind in "ub" else None


def _round(builder: Builder, node: Node) -> Node | None:
    """What is whole already."""
    (x,) = node.args
    return x if x.op in ("floor", "ceil", "trunc", "round") else None


def _same(builder: Builder, node: Node) -> Node | None:
    return node.args[0] if node.args[0] is node.args[1] else None


def _and(builder: Builder, node: Node) -> Node | None:
    return _bits(node, neutral=-1, final=0) or _same(builder, node)


def _or(builder: Builder, node: Node) -> Node | None:
    return _bits(node, neutral=0, final=-1) or _same(builder, node)


def _bits(node: Node, neutral: int, final: int) -> Node | None:
    """The other argument beside the one that changes no bit; the argument that decides every bit."""
    x, y = node.args
    for one, other in ((x, y), (y, x)):
        value = value_of(one)
        if value is None:
            continue
        bits = -int(value) if one.dtype.kind == "b" else int(value.astype(f"i{value.dtype.itemsize}"))
        if bits == neutral:
            return other
        if bits == final:
            return one
    return None


def _xor(builder: Builder, node: Node) -> Node | None:
    x, y = node.args
    if x is y:
        return _zero(builder, node)
    for one, other in ((x, y), (y, x)):
        value = value_of(one)
        if value is not None and not value:
            return other
    return None


def _invert(builder: Builder, node: Node) -> Node | None:
    (x,) = node.args
    opposite = OPPOSITE.get(x.op)
    # Of floats, "not less" is not "greater or equal": NaN is neither.
    if opposite and (x.args[0].dtype.kind != "f" or x.op in ("equal", "not_equal")):
        return ops.make(builder, opposite, *x.args)
    return _undone(builder, node)


def _shift(builder: Builder, node: Node) -> Node | None:
    return node.args[0] if _is(node.args[1], 0) else None


def _compare(builder: Builder, node: Node) -> Node | None:
    x, y = node.args
    if x is not y or x.dtype.kind == "f":
        return None
    return uniform(builder, np.bool_(node.op in ("equal", "less_equal", "greater_equal")), node.shape)


def _select(builder: Builder, node: Node) -> Node | None:
    condition, chosen, other = node.args
    if chosen is other:
        return chosen
    known = value_of(condition)
    if known is not None:
        return chosen if known else other
    if condition.op == "bitwise_invert":
        return ops.make(builder, "select", condition.args[0], other, chosen)
    return None


def _cast(builder: Builder, node: Node) -> Node | None:
    (x,) = node.args
    if x.dtype == node.dtype:
        return x
    if x.op != "cast":
        return None
    source = x.args[0]
    # Through a dtype that holds every value exactly; but a float that is cast to an integer has values of its own.
    if _holds(x.dtype, source.dtype) and not (x.dtype.kind == "f" and node.dtype.kind in "iu"):
        return source if source.dtype == node.dtype else ops.make(builder, "cast", source, dtype=node.dtype)
    return None


def _holds(wide: np.dtype[Any], narrow: np.dtype[Any]) -> bool:
    """Whether each value of one dtype is a value of the other."""
    if narrow.kind == "b":
        return True
    if narrow.kind in "iu" and wide.kind == "f":
        return 8 * narrow.itemsize <= np.finfo(wide).nmant + 1
    return wide.kind != "b" and np.can_cast(narrow, wide, "safe")


REWRITES: Final[Mapping[str, Rewrite]] = {
    "abs": _abs,
    "add": _add,
    "bitwise_and": _and,
    "bitwise_invert": _invert,
    "bitwise_or": _or,
    "bitwise_xor": _xor,
    "cast": _cast,
    "ceil": _round,
    "divide": _divide,
    "floor": _round,
    "floor_divide": _floor_divide,
    "maximum": _same,
    "minimum": _same,
    "multiply": _multiply,
    "negative": _undone,
    "pow": _pow,
    "round": _round,
    "select": _select,
    "shift_left": _shift,
    "shift_right": _shift,
    "subtract": _subtract,
    "trunc": _round,
    **dict.fromkeys(OPPOSITE, _compare),
}
