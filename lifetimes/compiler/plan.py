"""Plans: everything about a call that is the same for all arguments of one layout.

A plan is a list of steps over buffers.  Buffers are the parameters, the results and temporary memory; a step is a kernel
with its numbers, or a call of NumPy.  What is left for a call is to find the addresses.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from lifetimes.compiler.bound import Bound
from lifetimes.compiler.cache import Kernel, KernelCache, kernels
from lifetimes.compiler.ir import Function, Node, Shape
from lifetimes.compiler.kernel import Words
from lifetimes.compiler.lower import lower
from lifetimes.compiler.passes import simplified
from lifetimes.compiler.passes.fuse import fuse
from lifetimes.compiler.passes.groups import Buffer, Fused
from lifetimes.compiler.passes.views import View
from lifetimes.compiler.settings import Settings
from lifetimes.compiler.team import PARTS

__all__ = ["KernelStep", "Launch", "MatmulStep", "Plan", "Step", "lowered", "make_plan"]

SHARED: Final = 500_000.0
"""Kernels of more nanoseconds are shared out between threads: to wake one up may take a tenth of that."""
BRIEF: Final = 300_000.0
"""Kernels of fewer nanoseconds keep the interpreter: who gives it away may wait for milliseconds until he gets it back.

They take a third of that where the data is in the caches, a fiftieth of the time for which a thread may keep it anyway.
"""
Mode: TypeAlias = Literal["r", "w", "rw"]


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """One call of a kernel: where its words are, which rows, and what to put over the first words.

    ``pointers`` are (place among the step's buffers, bytes), ``numbers`` the parameters whose bits follow them.
    """

    template: Any
    address: int
    words: int
    hi: int
    pointers: tuple[tuple[int, int], ...]
    numbers: tuple[tuple[int | None, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class KernelStep:
    """A kernel over some buffers; several launches may run side by side."""

    kernel: Kernel
    bound: Bound
    buffers: tuple[tuple[int, Mode], ...]
    launches: tuple[Launch, ...]
    nanoseconds: float


@dataclass(frozen=True, slots=True, eq=False)
class MatmulStep:
    """A matrix product by NumPy, which has a BLAS: operands and result as views of buffers."""

    operands: tuple[tuple[View, Shape], tuple[View, Shape]]
    result: tuple[View, Shape]
    dtype: np.dtype[Any]
    buffers: tuple[tuple[int, Mode], ...]
    nanoseconds: float


Step: TypeAlias = KernelStep | MatmulStep


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """``temporary`` are (buffer, bytes); ``results`` are (buffer, shape, dtype), one for each result."""

    function: Function
    fused: Fused
    steps: tuple[Step, ...]
    temporary: tuple[tuple[int, int], ...]
    results: tuple[tuple[int, Shape, np.dtype[Any]], ...]
    settings: Settings


def lowered(
    function: Function, strides: Sequence[tuple[int, ...] | None]
) -> tuple[Fused, list[tuple[Bound, ...] | Node]]:
    """The kernels of a function that has been simplified, in order, those side by side that have one code.

    A node stands for a step that is no kernel.
    """
    fused = fuse(function, strides)
    found: list[tuple[Bound, ...] | Node] = []
    for group in fused.groups:
        if group.kind == "matmul":
            found.append(group.targets[0].node)
        else:
            found += [each for each in lower(fused, group) if not each[0].empty]
    return fused, found


def make_plan(
    function: Function,
    strides: Sequence[tuple[int, ...] | None],
    settings: Settings,
    cache: KernelCache = kernels,
) -> Plan:
    """Simplify, fuse, lower and compile.

    ``strides`` are those of the parameters, in elements; None for one that comes as a number.  Errors: `CompileError`.
    """
    function = simplified(function)
    fused, kernels_and_nodes = lowered(function, strides)
    steps = tuple(
        [
            _matmul(fused, each) if isinstance(each, Node) else _kernel(fused.buffers, each, settings, cache)
            for each in kernels_and_nodes
        ]
    )
    used = {buffer for step in steps for buffer, _ in step.buffers}
    temporary = [
        (at, buffer.size * np.dtype(buffer.dtype).itemsize)
        for at, buffer in enumerate(fused.buffers)
        if buffer.param is None and buffer.out is None and at in used
    ]
    results = [(buffer, out.shape, out.dtype) for buffer, out in zip(fused.outs, function.outs, strict=True)]
    return Plan(function, fused, steps, tuple(temporary), tuple(results), settings)


def _kernel(buffers: list[Buffer], bounds: tuple[Bound, ...], settings: Settings, cache: KernelCache) -> KernelStep:
    bound = bounds[0]
    kernel = cache.get(bound.nest, settings.target)
    nanoseconds = sum(each.nanoseconds for each in bounds)
    shares = bound.tiles()
    if len(shares) == 1 and settings.threads > 1 and nanoseconds >= SHARED:
        shares = bound.shares(settings.threads * PARTS)
    shares += bounds[1:]
    modes = _modes(buffers, bound)
    place = {buffer: at for at, (buffer, _) in enumerate(modes)}
    return KernelStep(kernel, bound, modes, tuple([_launch(each, place) for each in shares]), nanoseconds)


def _modes(buffers: list[Buffer], bound: Bound) -> tuple[tuple[int, Mode], ...]:
    """How a kernel uses its buffers.  A result that it fills as a whole is not brought to the device first."""
    read = {buffer for at, (buffer, _) in enumerate(bound.pointers) if at not in bound.written}
    written = {bound.pointers[at][0] for at in bound.written}
    found: list[tuple[int, Mode]] = []
    for buffer in sorted(read | written):
        fills = any(
            bound.pointers[at][0] == buffer and _covers(bound, at) == buffers[buffer].size for at in bound.written
        )
        adds = any(access.jump for at, access in enumerate(bound.nest.accesses) if at in bound.written)
        mode: Mode = "r" if buffer not in written else "w" if fills and not adds and buffer not in read else "rw"
        found.append((buffer, mode))
    return tuple(found)


def _covers(bound: Bound, access: int) -> int:
    """How many elements an access reaches; those of a store are all different."""
    elements = 1
    for size, stride in zip(bound.sizes, bound.strides[access], strict=True):
        elements *= size if stride else 1
    return elements


def _launch(bound: Bound, place: dict[int, int]) -> Launch:
    words = bound.words()
    template = (ctypes.c_uint64 * len(words))(*words)
    layout = Words.of(bound.nest)
    pointers = tuple(
        [
            (place[buffer], offset * np.dtype(access.dtype).itemsize)
            for (buffer, offset), access in zip(bound.pointers, bound.nest.accesses, strict=True)
        ]
    )
    # All scalars are put anew as soon as one of them comes with the call: they are words next to each other.
    numbers: list[tuple[int | None, int]] = []
    if any(isinstance(scalar, int) for scalar in bound.scalars):
        numbers = [
            (scalar, 0) if isinstance(scalar, int) else (None, words[at])
            for scalar, at in zip(bound.scalars, layout.scalar, strict=True)
        ]
    return Launch(template, ctypes.addressof(template), len(words), bound.rows, pointers, tuple(numbers))


def _matmul(fused: Fused, node: Node) -> MatmulStep:
    a, b = node.args
    operands = (fused.views[a], a.shape), (fused.views[b], b.shape)
    result = fused.views[node], node.shape
    modes: dict[int, Mode] = {operands[0][0].buffer: "r", operands[1][0].buffer: "r", result[0].buffer: "w"}
    work = 2.0 * node.size * a.shape[-1]
    return MatmulStep(operands, result, node.dtype, tuple(sorted(modes.items())), work * 0.1 + 2000.0)
