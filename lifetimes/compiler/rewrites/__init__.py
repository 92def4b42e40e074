"""Rules that say the same with less, by operation; `lifetimes.compiler.passes.simplify` applies them.

A rule is given the builder and a node whose arguments are simplified already, and returns what stands for the node, or
None when it does not apply.  It keeps every value bit for bit, infinities and -0.0 included; a NaN stays a NaN, whose sign
and payload are open, as in IEEE 754.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from lifetimes.compiler.ir import Builder, Node

__all__ = ["Rewrite"]

Rewrite: TypeAlias = Callable[[Builder, Node], Node | None]
"""What a node becomes, or None if the rule does not apply."""
