"""What a graph means: node by node over NumPy, slowly and plainly.  Everything else is held against this."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lifetimes.compiler import ops
from lifetimes.compiler.ir import Function, Node

__all__ = ["interpret"]


def interpret(function: Function, *values: Any, seen: Callable[[Node, Any], Any] | None = None) -> list[Any]:
    """The results of ``function`` for the values of its parameters, as fresh NumPy arrays.

    ``seen(node, value)`` is called after each node that is no parameter, and what it returns is used as its value.

    Errors: `TypeError` for too few or too many values, `ValueError` for one of another shape or dtype; both name the parameter.
    Complexity: every node is computed in full, each once.

    >>> from lifetimes.compiler.spec import spec
    >>> from lifetimes.compiler.trace import trace
    >>> doubled = trace(lambda x: x + x, (spec(3),)).function
    >>> interpret(doubled, np.arange(3.0))
    [array([0., 2., 4.])]
    """
    if len(values) != len(function.params):
        raise TypeError(f"the function has {len(function.params)} parameters, not {len(values)}")
    known: dict[int, Any] = {}
    for at, (param, value) in enumerate(zip(function.params, values, strict=True)):
        given = np.asarray(value)
        if given.dtype != param.dtype or given.shape != param.shape:
            raise ValueError(f"parameter {at} is {param.dtype} {param.shape}, not {given.dtype} {given.shape}")
        known[id(param)] = given
    for node in function.nodes():
        if node.op == "param":
            continue
        result = ops.evaluate(node, *[known[id(arg)] for arg in node.args])
        if result.dtype != node.dtype or result.shape != node.shape:
            raise ValueError(f"{node!r} evaluates to {result.dtype} {result.shape}")
        known[id(node)] = result if seen is None else seen(node, result)
    return [np.array(known[id(out)]) for out in function.outs]
