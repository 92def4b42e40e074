"""Views as arithmetic: where a node's element is found in its argument, and which strides a view has.

An *index map* says for each dimension of a node where it is read, as a function of loops: ``start + sum(factor * loop)``.
Whatever a view does to an index is such a map again, except for reshapes that join dimensions: what those read must be in
memory, where the elements lie in a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lifetimes.compiler.ir import Node, Shape
from lifetimes.compiler.ops import OPS, ROWS

__all__ = [
    "IndexMap", "View", "argument_maps", "contiguous", "identity_map", "is_view", "peeled", "reshaped_strides", "splits",
    "view_of",
]  # fmt: skip

Moves: TypeAlias = tuple[tuple[int, int], ...]
IndexMap: TypeAlias = tuple[tuple[int, Moves], ...]
"""For each dimension: (start, ((loop, factor), ...)), the loops in ascending order."""


@dataclass(frozen=True, slots=True)
class View:
    """A part of a buffer: elements before the first one, and between neighbours along each dimension."""

    buffer: int
    offset: int
    strides: tuple[int, ...]


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of C order, in elements.

    >>> contiguous((2, 3, 4))
    (12, 4, 1)
    """
    strides: list[int] = []
    step = 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def identity_map(loops: Iterable[int]) -> IndexMap:
    """Dimension after dimension, one loop each."""
    return tuple([(0, ((loop, 1),)) for loop in loops])


def is_view(node: Node) -> bool:
    """Whether a node is its argument's elements, or some of them, in another arrangement."""
    return node.op in OPS and (OPS[node.op].view or node.op == "reshape")


def peeled(node: Node) -> Node:
    """Without what changes the shape only: the elements in C order are the same."""
    while node.op in ("expand", "squeeze", "reshape"):
        node = node.args[0]
    return node


def argument_maps(node: Node, index: IndexMap) -> Iterator[tuple[Node, IndexMap]]:
    """What a node reads of its arguments when it is read at ``index`` itself.

    A reshape must be one that `splits` can say.  Of `gather` it is the index only: its source is in memory.
    """
    if node.op in ROWS or node.op in ("cast", "scan"):
        for arg in node.args:
            yield arg, index
    elif node.op == "gather":
        axis = node.attr("axis")
        yield node.args[1], index[axis : axis + node.args[1].ndim]
    elif is_view(node):
        yield node.args[0], _through(node, index)


def _through(node: Node, index: IndexMap) -> IndexMap:
    arg = node.args[0]
    if node.op == "broadcast":
        own = index[len(index) - arg.ndim :]
        return tuple([(0, ()) if length == 1 else at for length, at in zip(arg.shape, own, strict=True)])
    if node.op == "transpose":
        placed = dict(zip(node.attr("axes"), index, strict=True))
        return tuple([placed[axis] for axis in range(arg.ndim)])
    if node.op == "slice":
        steps = zip(node.attr("start"), node.attr("step"), index, strict=True)
        return tuple(
            [
                (start + step * first, tuple([(loop, step * factor) for loop, factor in moves]))
                for start, step, (first, moves) in steps
            ]
        )
    if node.op == "expand":
        return tuple([at for axis, at in enumerate(index) if axis not in node.attr("axes")])
    if node.op == "squeeze":
        rest = iter(index)
        return tuple([(0, ()) if axis in node.attr("axes") else next(rest) for axis in range(arg.ndim)])
    parts = splits(node)
    assert parts is not None, "a reshape that joins dimensions is read from memory"
    return tuple([_weighted([(index[at], node.shape[at]) for at in dims]) for dims in parts])


def _weighted(parts: list[tuple[tuple[int, Moves], int]]) -> tuple[int, Moves]:
    """One dimension made of several: the index of C order in them."""
    first, moves = 0, dict[int, int]()
    strides = contiguous([length for _, length in parts])
    for ((start, own), _), stride in zip(parts, strides, strict=True):
        first += start * stride
        for loop, factor in own:
            moves[loop] = moves.get(loop, 0) + factor * stride
    return first, tuple(sorted(moves.items()))


def splits(node: Node) -> list[list[int]] | None:
    """For each dimension of a reshape's argument those of its result that it became; None if any were joined.

    Dimensions of length 1 are nobody's part.
    """
    if not node.size:
        return None
    parts: list[list[int]] = []
    at = 0
    for length in node.args[0].shape:
        dims: list[int] = []
        have = 1
        while have < length and at < node.ndim and length % (have * node.shape[at]) == 0:
            have *= node.shape[at]
            dims.append(at)
            at += 1
        if have != length:
            return None
        parts.append(dims)
    return parts


def reshaped_strides(shape: Shape, strides: Sequence[int], wanted: Shape) -> tuple[int, ...] | None:
    """The strides of the same elements in another shape; None if that would take a copy.

    >>> reshaped_strides((2, 3), (3, 1), (6,)), reshaped_strides((2, 3), (1, 2), (6,))
    ((1,), None)
    >>> reshaped_strides((6, 1), (2, 7), (2, 1, 3))
    (6, 0, 2)
    """
    if 0 in shape:
        return contiguous(wanted)
    old = [(length, stride) for length, stride in zip(shape, strides, strict=True) if length != 1]
    new = [at for at, length in enumerate(wanted) if length != 1]
    found = [0] * len(wanted)
    taken = 0
    while taken < len(old):
        # The shortest runs of dimensions on both sides that hold equally many elements.
        first, have = taken, old[taken][0]
        dims, need = [new[0]], wanted[new.pop(0)]
        while have != need:
            if have < need:
                if old[taken][1] != old[taken + 1][1] * old[taken + 1][0]:
                    return None
                taken += 1
                have *= old[taken][0]
            else:
                dims.append(new[0])
                need *= wanted[new.pop(0)]
        assert first <= taken
        stride = old[taken][1]
        for at in reversed(dims):
            found[at] = stride
            stride *= wanted[at]
        taken += 1
    return tuple(found)


def view_of(node: Node, view: View) -> View | None:
    """The view that a view operation makes of its argument's; None for a reshape that needs a copy."""
    if node.op == "reshape":
        strides = reshaped_strides(node.args[0].shape, view.strides, node.shape)
        return None if strides is None else View(view.buffer, view.offset, strides)
    # Every other view is its index map, applied to one loop for each dimension.
    offset, moves = view.offset, [0] * node.ndim
    for (start, own), stride in zip(_through(node, identity_map(range(node.ndim))), view.strides, strict=True):
        offset += start * stride
        for loop, factor in own:
            moves[loop] += factor * stride
    return View(view.buffer, offset, tuple(moves))
