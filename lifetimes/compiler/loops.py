"""From the dimensions of a domain to loops, as few as will do.

A loop of length 1 is dropped.  Two neighbouring loops become one where every address moves as if they were one, so
contiguous arrays of any rank share one kernel.  Reductions do not mind the order of the loops they reduce, unless
positions count, so those are put in the order of memory first.
"""

from __future__ import annotations

__all__ = ["Loops"]


class Loops:
    """The dimensions of a domain while they are made loops: sizes, and how everything moves with each of them."""

    def __init__(self, sizes: list[int], moves: list[list[int]]) -> None:
        self.sizes = sizes
        self.moves = moves

    def single(self) -> int:
        """One more loop, of length 1."""
        self.sizes.append(1)
        for each in self.moves:
            each.append(0)
        return len(self.sizes) - 1

    def sort(self, dims: list[int], accesses: int) -> None:
        """Put dimensions in the order of memory, as the access sees it that moves with most of them."""
        best = max(self.moves[:accesses], key=lambda each: sum(bool(each[dim]) for dim in dims), default=None)
        if best is not None:
            dims.sort(key=lambda dim: -abs(best[dim]))

    def collapsed(self, dims: list[int]) -> list[int]:
        """The loops that are left of these dimensions."""
        left: list[int] = []
        for dim in dims:
            if self.sizes[dim] == 1:
                continue
            if left and all(each[left[-1]] == each[dim] * self.sizes[dim] for each in self.moves):
                self.sizes[dim] *= self.sizes[left[-1]]
                left[-1] = dim
            else:
                left.append(dim)
        return left
