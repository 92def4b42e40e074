"""The same values from fewer operations: the rules of `lifetimes.compiler.rewrites`, from the arguments up.

What is asked twice is found by construction (`lifetimes.compiler.ir.Builder`), and what nobody needs is left behind by
`rebuild`, so neither needs a rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lifetimes.compiler.ir import Builder, Function, Node, Shape, copy_node, rebuild
from lifetimes.compiler.rewrites import arithmetic, views
from lifetimes.compiler.rewrites.constants import fold

__all__ = ["simplify"]

_REWRITES = {**arithmetic.REWRITES, **views.REWRITES}


def simplify(function: Function) -> Function:
    """A function of the same values.  Simplifying twice changes nothing more.

    Complexity: linear in nodes; each rule leaves fewer or cheaper operations than it found.

    >>> from lifetimes.compiler.spec import spec
    >>> from lifetimes.compiler.text import to_text
    >>> from lifetimes.compiler.trace import trace
    >>> print(to_text(simplify(trace(lambda x: -(-x) * 1.0, (spec(2),)).function)))
    function(%0: float64[2]) {
      return %0
    }
    """
    return rebuild(function, copy_node, _Simplifying())


class _Simplifying(Builder):
    """Simplifies each node as it is made, those that a rule makes included."""

    def node(self, op: str, args: Iterable[Node], dtype: Any, shape: Shape, **attrs: Any) -> Node:
        made = super().node(op, args, dtype, shape, **attrs)
        rule = _REWRITES.get(op)
        # A rule makes its nodes here too, so what it returns is simplified already.
        return fold(self, made) or (rule(self, made) if rule is not None else None) or made
