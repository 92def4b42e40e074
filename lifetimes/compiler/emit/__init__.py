"""Emitters: from a kernel to the text of a program.  One module writes the loops, the others what stands in them."""

from __future__ import annotations

from lifetimes.compiler.emit.llvm import emit

__all__ = ["emit"]
