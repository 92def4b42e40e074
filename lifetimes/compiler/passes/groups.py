"""What fusion comes to: buffers, and groups of nodes, each of which one loop nest computes.

A node that is *stored* has a buffer of its own; everything else is computed where it is used, views by index arithmetic.
A group has *targets*, which are what it computes for somebody: reductions, and nodes that it writes for every element of
its domain or once for every row.

Note [Rows].  A reduction over some dimensions of a domain and what is computed from it for the same rows are one group:
a softmax is one kernel.  The group runs over its rows in phases, and what a phase reduced is known to the next.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from lifetimes.compiler.ir import Function, Node, Shape
from lifetimes.compiler.passes.views import IndexMap, View, argument_maps, identity_map, splits

__all__ = ["MEMORY_ONLY", "Buffer", "Found", "Fused", "Group", "Kind", "Role", "Target", "text"]

Kind: TypeAlias = Literal["loops", "scan", "scatter", "matmul"]
Role: TypeAlias = Literal["reduce", "element", "row"]
Found: TypeAlias = Literal["load", "inline", "refused"]

MEMORY_ONLY: Final = frozenset({"reduce", "scan", "scatter_add", "concat", "matmul"})
"""Whoever uses one of these reads it from memory; of a reduction, whoever is in another group."""


@dataclass(slots=True)
class Buffer:
    """Memory of a run.  ``param`` and ``out`` number those that the caller sees; with neither it is temporary."""

    dtype: str
    size: int
    param: int | None = None
    out: int | None = None


@dataclass(slots=True)
class Target:
    """What a group computes and where it goes.

    ``reduce``: the reduction ``node``, over the axes of the group.  ``element`` and ``row``: ``node`` for every step of all
    loops, or of those that are not reduced.  ``into`` is None when only the group itself needs it.
    """

    node: Node
    role: Role
    into: View | None
    phase: int = 0


@dataclass(slots=True)
class Group:
    """One kernel: its domain (a loop for each dimension), the axes that are reduced or scanned, and the targets.

    ``computed`` are the nodes that it computes for them, and goes on computing if a later group stores one.
    """

    kind: Kind
    domain: Shape
    axes: tuple[int, ...]
    number: int
    targets: list[Target] = field(default_factory=list)
    computed: set[Node] = field(default_factory=set)

    @property
    def rows(self) -> tuple[int, ...]:
        """The dimensions of the domain that are not reduced."""
        return tuple([at for at in range(len(self.domain)) if at not in self.axes])

    def row_map(self, shape: Shape) -> IndexMap | None:
        """The index map of something that has one element for each row; lengths of 1 may be anywhere.  None if it has not."""
        waiting = [at for at in self.rows if self.domain[at] != 1]
        found: list[tuple[int, tuple[tuple[int, int], ...]]] = []
        for length in shape:
            if length == 1:
                found.append((0, ()))
            elif waiting and self.domain[waiting[0]] == length:
                found.append((0, ((waiting.pop(0), 1),)))
            else:
                return None
        return None if waiting else tuple(found)

    def roots(self, target: Target) -> list[tuple[Node, IndexMap]]:
        """What is computed for a target, and for which indices."""
        node = target.node
        if target.role == "row":
            rows = self.row_map(node.shape)
            assert rows is not None, f"{node!r} has no element for each row"
            return [(node, rows)]
        whole = identity_map(range(len(self.domain)))
        if target.role == "reduce":
            return [(node.args[0], whole)]
        if self.kind == "scatter":
            axis, width = node.attr("axis"), node.args[1].ndim
            return [(node.args[2], whole), (node.args[1], whole[axis : axis + width])]
        if self.kind == "scan":
            return [(node.args[0], whole)]
        return [(node, whole)]


@dataclass(slots=True)
class Fused:
    """The groups in the order in which they run, the buffers, and the nodes that can be read from them.

    ``outs`` are the buffers of the results, which are C-contiguous; ``made`` says of each buffer which group finishes it.
    """

    function: Function
    groups: list[Group] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    views: dict[Node, View] = field(default_factory=dict)
    made: dict[int, int] = field(default_factory=dict)
    outs: list[int] = field(default_factory=list)

    def find(self, node: Node, index: IndexMap, group: Group) -> Found:
        """How a group gets at a node: from memory, by computing it, or not at all, since it does not have it in time."""
        view = self.views.get(node)
        if view is None:
            return "refused" if node.op in MEMORY_ONLY else "inline"
        made = self.made.get(view.buffer, -1)  # parameters are there before all groups
        if made < group.number:
            return "load"
        if made > group.number:
            return "inline" if node in group.computed else "refused"
        if group.kind != "loops":
            return "refused"
        if node.op == "reduce":
            here = any(each.node is node and each.role == "reduce" for each in group.targets)
            return "inline" if here and _is_row(node, index, group) else "refused"
        if node.op in MEMORY_ONLY or (node.op == "reshape" and splits(node) is None):
            return "refused"
        return "inline"

    def reach(self, group: Group, target: Target) -> Iterator[tuple[Node, IndexMap, Found]]:
        """Every node that computing a target comes across, for every index, users before what they use."""
        waiting: dict[Node, set[IndexMap]] = {}
        heap: list[tuple[int, Node]] = []

        def push(node: Node, index: IndexMap) -> None:
            maps = waiting.get(node)
            if maps is None:
                waiting[node] = {index}
                heapq.heappush(heap, (-node.number, node))  # numbers differ, so nodes are never compared
            else:
                maps.add(index)

        roots = group.roots(target)
        for node, index in roots:
            push(node, index)
        while heap:
            node = heapq.heappop(heap)[1]
            for index in sorted(waiting[node]):
                found = self.find(node, index, group)
                yield node, index, found
                if found == "inline" and node.op != "reduce":  # a reduction is known from an earlier phase
                    for arg, at in argument_maps(node, index):
                        push(arg, at)


def _is_row(reduction: Node, index: IndexMap, group: Group) -> bool:
    """Whether a reduction of the group is read where the row is, and nowhere else."""
    whole = zip(reduction.shape, index, identity_map(group.rows), strict=True)
    return all(length == 1 or at == own for length, at, own in whole)


def text(fused: Fused) -> str:
    """The groups in words, nodes named as `lifetimes.compiler.text` names them.

    >>> from lifetimes.compiler.passes.fuse import fuse
    >>> from lifetimes.compiler.spec import spec
    >>> from lifetimes.compiler.trace import trace
    >>> print(text(fuse(trace(lambda x: x / x.sum(axis=1), (spec((6, 6)),)).function, [(6, 1)])))
    loops over 6 x 6, reducing axis 1
      phase 0: reduce and store %1
    loops over 6 x 6
      phase 0: store %3
    """
    names = {node: f"%{at}" for at, node in enumerate(fused.function.nodes())}
    return "\n".join([line for group in fused.groups for line in _lines(group, names)])


def _lines(group: Group, names: dict[Node, str]) -> Iterator[str]:
    over = " x ".join(map(str, group.domain)) or "one element"
    axes = ", ".join(map(str, group.axes))
    done = "scanning" if group.kind == "scan" else "reducing"
    yield f"{group.kind} over {over}" + (f", {done} axis {axes}" if axes else "")
    for target in sorted(group.targets, key=lambda each: (each.role == "row", each.phase)):
        when = "each row" if target.role == "row" else f"phase {target.phase}"
        kept = "" if target.into is None else " and store" if target.role == "reduce" else "store"
        yield f"  {when}: {'reduce' if target.role == 'reduce' else ''}{kept} {names[target.node]}"
