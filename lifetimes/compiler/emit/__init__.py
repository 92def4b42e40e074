"""Emitters: from a kernel to the text of a program.  One module writes the loops, the others what stands in them."""

from __future__ import annotations

from lifetimes.compiler.emit.across import Blocks, is_blocked
from lifetimes.compiler.emit.llvm import Emitter, Program
from lifetimes.compiler.kernel import Nest
from lifetimes.compiler.target import Target

__all__ = ["emit"]


def emit(nest: Nest, target: Target) -> Program:
    """The program of a kernel, in LLVM's language."""
    return (Blocks if is_blocked(nest) else Emitter)(nest, target).program()
