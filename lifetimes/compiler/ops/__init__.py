"""The operations of the array graph: elementwise rows, and the rest.

`make` is how a node comes about: it works out dtype and shape from the tables and refuses what cannot be.

>>> from lifetimes.compiler.ir import Builder
>>> b = Builder()
>>> x = make(b, "param", dtype="float64", shape=(2, 3), index=0)
>>> make(b, "reduce", make(b, "sin", x), kind="sum", axes=(1,))
<reduce %2: float64[2]>
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lifetimes.compiler.ir import Builder, Node, Shape
from lifetimes.compiler.ops.elementwise import ROWS, Row
from lifetimes.compiler.ops.structural import OPS, Op, Type

__all__ = ["OPS", "ROWS", "Op", "Row", "evaluate", "infer", "make"]

BOOL = np.dtype("bool")


def infer(
    op: str, args: tuple[Node, ...], attrs: Mapping[str, Any], dtype: Any = None, shape: Shape | None = None
) -> Type:
    """The dtype and shape of a node; ``dtype`` and ``shape`` are what is asked for, where the operation leaves it open.

    Errors: `KeyError` for an operation that is in no table; `ValueError` and `TypeError` with what is wrong.
    """
    row = ROWS.get(op)
    if row is not None:
        return _infer_row(row, args, attrs)
    rule = OPS[op]
    if (rule.arity is not None and len(args) != rule.arity) or (not args and rule.arity is None):
        raise TypeError(f"{op} takes {rule.arity or 'one or more'} arguments, not {len(args)}")
    if set(attrs) != set(rule.attrs):
        raise TypeError(f"{op} has the attributes {sorted(rule.attrs)}, not {sorted(attrs)}")
    return rule.infer(args, attrs, None if dtype is None else np.dtype(dtype), shape)


def make(builder: Builder, op: str, *args: Node, dtype: Any = None, shape: Shape | None = None, **attrs: Any) -> Node:
    """The node of that operation.  Errors: those of `infer`."""
    found_dtype, found_shape = infer(op, args, attrs, dtype, shape)
    return builder.node(op, args, found_dtype, found_shape, **attrs)


def evaluate(node: Node, *values: Any) -> Any:
    """The meaning of one node over NumPy arrays.  Warnings of NumPy (division by zero and so on) are not its business."""
    with np.errstate(all="ignore"):
        if node.op in ROWS:
            return np.asarray(ROWS[node.op].reference(*values))
        return np.asarray(OPS[node.op].evaluate(node, *values))


def _infer_row(row: Row, args: tuple[Node, ...], attrs: Mapping[str, Any]) -> Type:
    if len(args) != row.arity or attrs:
        raise TypeError(
            f"{row.name} takes {row.arity} arguments and no attributes, not {len(args)} and {sorted(attrs)}"
        )
    first, rest = args[0], args[1:]
    operands = rest if row.result == "select" else args
    dtype = operands[0].dtype
    if any(each.shape != first.shape for each in rest):
        raise ValueError(f"{row.name} takes arguments of one shape, not {[each.shape for each in args]}")
    if any(each.dtype != dtype for each in operands) or (row.result == "select" and first.dtype != BOOL):
        raise TypeError(f"{row.name} takes arguments of one dtype, not {[str(each.dtype) for each in args]}")
    if dtype.kind not in row.kinds:
        raise TypeError(f"{row.name} does not compute with {dtype}")
    return (BOOL if row.result == "bool" else dtype), first.shape
