"""A kernel with its numbers: everything that a launch needs but addresses."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from lifetimes.compiler.kernel import ELEMENT, Nest, Words
from lifetimes.compiler.ops import ROWS

__all__ = ["Bound", "Scalar", "bits_of"]

Scalar: TypeAlias = np.generic | int
"""A number that is known; or which parameter it is, as a Python int."""

_NANOSECONDS: Final = {"cheap": 0.1, "divide": 0.6, "call": 1.5}
"""About what one element costs, in a vector of doubles."""
ALONG: Final = 4096
"""Elements at whose multiples a loop of lanes is cut: no two threads write one line of the cache."""
ACROSS: Final = 256
"""The same for lanes that are columns, each of which has many elements."""
TILE: Final = 64
"""Elements of a strip (see `Bound.tiles`)."""
_MEMORY: Final = 0.04
"""Nanoseconds for a byte."""


@dataclass(frozen=True, slots=True)
class Bound:
    """``pointers`` are (buffer, elements before the first one) for each access, ``strides`` one number for each loop.

    ``written`` are the accesses that are stored to.  ``starts`` and ``factors`` are those of the values `index`, ``jumps``
    those of the accesses that have one.
    """

    nest: Nest
    sizes: tuple[int, ...]
    pointers: tuple[tuple[int, int], ...]
    strides: tuple[tuple[int, ...], ...]
    written: tuple[int, ...]
    jumps: tuple[tuple[int, int], ...] = ()
    starts: tuple[tuple[int, int], ...] = ()
    factors: tuple[tuple[int, tuple[int, ...]], ...] = ()
    scalars: tuple[Scalar, ...] = ()

    @property
    def rows(self) -> int:
        """The rows of the outer loops, the lane loop left out."""
        rows = 1
        for loop in range(self.nest.outer):
            if loop != self.nest.lane_loop:
                rows *= self.sizes[loop]
        return rows

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do: no row, or neither an element nor a reduction of none."""
        if 0 in self.sizes[: self.nest.outer]:
            return True
        return not self.nest.reductions and not self.nest.stores and 0 in self.sizes

    @property
    def nanoseconds(self) -> float:
        """About how long it takes one thread: good enough to choose how it is run."""
        elements = 1
        for size in self.sizes:
            elements *= size
        cost = 0.0
        for value, level in zip(self.nest.values, self.nest.levels(), strict=True):
            if level == ELEMENT and value.op in ROWS:
                cost += _NANOSECONDS[ROWS[value.op].cost] * np.dtype(value.dtype).itemsize / 8
        for access, strides in zip(self.nest.accesses, self.strides, strict=True):
            if strides[self.nest.lane_loop]:
                cost += _MEMORY * np.dtype(access.dtype).itemsize
        return elements * max(cost, 0.05)

    def words(self) -> list[int]:
        """The arguments of the kernel; those of addresses and of scalars that come with the call are 0."""
        layout = Words.of(self.nest)
        words = [0] * layout.count
        for at, size in zip(layout.size, self.sizes, strict=True):
            words[at] = size
        for (access, loop), at in layout.stride.items():
            words[at] = self.strides[access][loop]
        jumps, starts, factors = dict(self.jumps), dict(self.starts), dict(self.factors)
        for access, at in layout.jump.items():
            words[at] = jumps[access]
        for value, at in layout.start.items():
            words[at] = starts[value]
        for (value, loop), at in layout.factor.items():
            words[at] = factors[value][loop]
        for at, scalar in zip(layout.scalar, self.scalars, strict=True):
            if isinstance(scalar, np.generic):
                words[at] = bits_of(scalar)
        return [word & (2**64 - 1) for word in words]

    def part(self, loop: int, begin: int, size: int) -> Bound:
        """The same kernel over a part of one loop."""
        pointers = tuple(
            [
                (buffer, offset + begin * strides[loop])
                for (buffer, offset), strides in zip(self.pointers, self.strides, strict=True)
            ]
        )
        factors = dict(self.factors)
        starts = tuple([(value, start + begin * factors[value][loop]) for value, start in self.starts])
        sizes = (*self.sizes[:loop], size, *self.sizes[loop + 1 :])
        return replace(self, pointers=pointers, starts=starts, sizes=sizes)

    def shares(self, count: int) -> list[Bound]:
        """``count`` kernels that do it together, or fewer where it cannot be shared out so well."""
        nest = self.nest
        if count < 2 or nest.lanes == 1:
            return [self]
        loops = [loop for loop in range(nest.outer) if loop != nest.lane_loop]
        if nest.lane == "outer" or not (nest.reductions or any(value.op == "scan" for value in nest.values)):
            loops.append(nest.lane_loop)  # what is done for one element does not depend on its neighbours
        if not loops:
            return [self]
        loop = max(loops, key=lambda each: (self.sizes[each] >= count * 2, -each, self.sizes[each]))
        unit = 1 if loop != nest.lane_loop else ACROSS if nest.lane == "outer" else ALONG
        size = self.sizes[loop]
        each = -(-size // (count * unit)) * unit
        return [self.part(loop, begin, min(each, size - begin)) for begin in range(0, size, each)] or [self]

    def tiles(self) -> list[Bound]:
        """Strips of the lane loop where something is read across it, as a transpose is: so few lines that they stay cached.

        Neighbours of the lanes lie in different lines, which are needed again in the next row.
        """
        nest, lane, row = self.nest, self.nest.lane_loop, self.nest.lane_loop - 1
        if nest.lane == "outer" or nest.lanes == 1 or nest.outer == 0 or nest.reductions:
            return [self]
        across = any(abs(strides[lane]) > 8 and abs(strides[row]) == 1 for strides in self.strides)
        size = self.sizes[lane]
        if not across or size < 2 * TILE or self.sizes[row] < TILE or any(each.op == "scan" for each in nest.values):
            return [self]
        return [self.part(lane, begin, min(TILE, size - begin)) for begin in range(0, size, TILE)]


def bits_of(scalar: Any) -> int:
    """The bits of a NumPy number at the low end of a word.

    >>> bits_of(np.float64(1.0)) == 0x3FF0000000000000, bits_of(np.int8(-1)) & 0xFF
    (True, 255)
    """
    return int(struct.unpack("<Q", scalar.tobytes().ljust(8, b"\0"))[0])
