"""What a function becomes, as text: graph, kernels, LLVM program, machine code.

Everything is made anew from the graph at the moment of asking, for arrays or for specs, before or after the first call;
no loaded code is looked at.  So the text is the same however the code came to be, and asking keeps nothing alive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lifetimes.compiler import native
from lifetimes.compiler.bound import Bound
from lifetimes.compiler.emit import emit
from lifetimes.compiler.emit.llvm import ENTRY_POINT
from lifetimes.compiler.ir import Function
from lifetimes.compiler.kernel import text
from lifetimes.compiler.passes import simplified
from lifetimes.compiler.plan import lowered
from lifetimes.compiler.target import Target
from lifetimes.compiler.text import to_text

__all__ = ["Graph", "JitStatistics"]


@dataclass(frozen=True, slots=True)
class JitStatistics:
    """Of one function: the layouts it was compiled for, the kernels that they need, and the bytes of those.

    ``traced`` counts how often the function was called to be traced, in all; ``seconds`` is the time for tracing and for
    everything after it, compiling included.
    """

    layouts: int = 0
    kernels: int = 0
    nbytes: int = 0
    traced: int = 0
    seconds: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A traced function with the strides of its parameters, and the texts that can be made of it."""

    function: Function
    strides: tuple[tuple[int, ...] | None, ...]
    target: Target

    def ir(self, traced: bool = False) -> str:
        """The graph after the passes; or as it was traced."""
        return to_text(self.function if traced else simplified(self.function))

    def lowered(self) -> str:
        """The kernels in the order in which they run; a matrix product is a line of its own."""
        return "\n".join(self._each(lambda kernel: text(kernel.nest)))

    def source(self, whole_module: bool = True) -> str:
        """The LLVM programs of the kernels, or only what they define."""
        return "\n".join(self._each(lambda kernel: _source(emit(kernel.nest, self.target).text, whole_module)))

    def assembly(self, whole_module: bool = True) -> str:
        """The machine code of the kernels, or only their instructions."""

        def assembled(kernel: Bound) -> str:
            return _assembly(native.assembly(emit(kernel.nest, self.target).text, self.target), whole_module)

        return "\n".join(self._each(assembled))

    def _each(self, tell: Callable[[Bound], str]) -> list[str]:
        _, steps = lowered(simplified(self.function), self.strides)
        known: dict[str, str] = {}
        found = []
        for step in steps:
            if isinstance(step, tuple):
                key = text(step[0].nest)
                if key not in known:
                    known[key] = tell(step[0])
                found.append(known[key])
            else:
                found.append(f"matmul by NumPy: {step.args[0].shape} @ {step.args[1].shape}, {step.dtype}")
        return found


def _source(program: str, whole_module: bool) -> str:
    return program if whole_module else program[program.index("define ") :]


def _assembly(listing: str, whole_module: bool) -> str:
    """All of it; or what stands between the function's label and its end, without directives."""
    if whole_module:
        return listing
    lines = listing.splitlines()
    begin = lines.index(f"{ENTRY_POINT}:")
    found = []
    for line in lines[begin:]:
        if line.startswith(".Lfunc_end"):
            break
        if not line.strip().startswith((".cfi", "#")):
            found.append(line)
    return "\n".join(found)
