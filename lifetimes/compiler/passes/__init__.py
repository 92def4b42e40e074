"""The passes: pure functions from a graph to a graph, in one list, and the fusion that ends them.

Simplify (one value for equal questions, cheaper operations, nothing that nobody needs), then `lifetimes.compiler.passes.fuse`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lifetimes.compiler.ir import Function
from lifetimes.compiler.passes.simplify import simplify

__all__ = ["PIPELINE", "simplified"]

PIPELINE: Final[tuple[tuple[str, Callable[[Function], Function]], ...]] = (("simplify", simplify),)
"""Name and function of each pass, in order."""


def simplified(function: Function) -> Function:
    """The function after all passes of the list."""
    for _, run in PIPELINE:
        function = run(function)
    return function
