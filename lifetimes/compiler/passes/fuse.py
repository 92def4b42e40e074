"""Which nodes are computed together: from a graph to groups, each of which becomes one kernel.

A node is *stored* if it gets a buffer of its own: results of the function, what one kernel reduces for another, what a view
cannot be made of.  Everything else is computed where it is used, views by index arithmetic.  A group holds what one loop
nest computes.

Note [Rows].  A reduction over some dimensions of a domain and what is computed from it for the same rows are one group:
a softmax is one kernel.  The group runs over its rows in phases, and what a phase reduced is known to the next.

Note [Order].  Targets are looked at arguments first, and groups run in the order in which they were opened.  A target may
join an open group if all it needs is computed by earlier groups, or within that group for the very same row or element.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from lifetimes.compiler.ir import Function, Node, Shape
from lifetimes.compiler.ops import ROWS
from lifetimes.compiler.passes.views import (
    IndexMap,
    View,
    argument_maps,
    contiguous,
    identity_map,
    is_view,
    peeled,
    splits,
    view_of,
)

__all__ = ["Buffer", "Fused", "Group", "Kind", "Target", "fuse"]

ALONE: Final = 131072
"""A reduction to a single value over more elements is a kernel without what comes after it, so that it can have parts."""
REPEATS: Final = 4
"""What a group would compute for more than so many different indices is stored instead."""
GROWS: Final = 4
"""What is costly and broadcast to at least so many times its size is stored instead."""

Kind: TypeAlias = Literal["loops", "scan", "scatter", "matmul"]
Role: TypeAlias = Literal["reduce", "element", "row"]
Found: TypeAlias = Literal["load", "inline", "refused"]

_MEMORY_ONLY: Final = frozenset({"reduce", "scan", "scatter_add", "concat", "matmul"})


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
    """One kernel: its domain (a loop for each dimension), the axes that are reduced or scanned, and the targets."""

    kind: Kind
    domain: Shape
    axes: tuple[int, ...]
    number: int
    targets: list[Target] = field(default_factory=list)

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

    ``outs`` are the buffers of the results, which are C-contiguous.
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
            return "refused" if node.op in _MEMORY_ONLY else "inline"
        made = self.made.get(view.buffer, -1)  # parameters are there before all groups
        if made < group.number:
            return "load"
        if made > group.number or group.kind != "loops":
            return "refused"
        if node.op == "reduce":
            here = any(each.node is node and each.role == "reduce" for each in group.targets)
            return "inline" if here and _is_row(node, index, group) else "refused"
        if node.op in _MEMORY_ONLY or (node.op == "reshape" and splits(node) is None):
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


def fuse(function: Function, strides: Sequence[tuple[int, ...] | None]) -> Fused:
    """Group the nodes of a function.

    ``strides`` are those of the parameters, in elements; None for a parameter that is a number and has no memory.

    Complexity: about the number of nodes times that of the groups that need them.
    """
    stored = _stored(function, strides)
    while True:
        fuser = _Fuser(function, strides, stored)
        more = fuser.run()
        if more is None:
            return fuser.fused
        stored.add(more)


def _stored(function: Function, strides: Sequence[tuple[int, ...] | None]) -> set[Node]:
    """What needs a buffer by what it is, or by what its users are.

    Arguments come first, so whether a reshape is a view is known when it is reached.
    """
    views = {node: View(0, 0, own) for node, own in zip(function.params, strides, strict=True) if own is not None}
    stored: set[Node] = set()
    costly: set[Node] = set()
    results = {peeled(out) for out in function.outs}

    def store(node: Node) -> None:
        stored.add(node)
        views[node] = View(0, 0, contiguous(node.shape))

    for node in function.nodes():
        arg = node.args[0] if node.args else node
        if node.op == "reshape" and splits(node) is None:
            if arg not in views or view_of(node, views[arg]) is None:
                store(arg)
        elif node.op == "gather" or (node.op == "broadcast" and arg in costly and node.size >= GROWS * arg.size):
            if arg not in views:
                store(arg)
        elif node.op == "matmul":
            for each in node.args:
                if each not in views:
                    store(each)
        if node.op in _MEMORY_ONLY or (node in results and node.op not in ("param", "const")):
            store(node)
        elif is_view(node) and arg in views:
            view = view_of(node, views[arg])
            if view is not None:
                views[node] = view
        if node not in views:
            own = node.op in ROWS and ROWS[node.op].cost != "cheap"
            if own or any(each in costly for each in node.args):
                costly.add(node)
    return stored


class _Fuser:
    def __init__(self, function: Function, strides: Sequence[tuple[int, ...] | None], stored: set[Node]) -> None:
        self.fused = fused = Fused(function)
        self.stored = stored
        self.copies: dict[Node, View] = {}  # of parameters whose strides do not allow a reshape
        for at, (param, own) in enumerate(zip(function.params, strides, strict=True)):
            fused.buffers.append(Buffer(param.dtype.name, param.size, param=at))
            if own is not None:
                fused.views[param] = View(at, 0, own)

    def run(self) -> Node | None:
        """Fill the groups; or return a node that must be stored first."""
        fused = self.fused
        for node in fused.function.nodes():
            if node in self.stored:
                more = self._place_stored(node)
                if more is not None:
                    return more
            elif is_view(node) and node.args[0] in fused.views:
                arg = node.args[0]
                whole = self.copies.get(arg) if node.op == "reshape" else None
                view = view_of(node, whole or fused.views[arg])
                if view is not None:
                    fused.views[node] = view
        for out in fused.function.outs:
            more = self._place_result(peeled(out))
            if more is not None:
                return more
        self._prune()
        return None

    def _buffer(self, node: Node) -> View:
        self.fused.buffers.append(Buffer(node.dtype.name, node.size))
        return View(len(self.fused.buffers) - 1, 0, contiguous(node.shape))

    def _place_stored(self, node: Node) -> Node | None:
        fused = self.fused
        into = self._buffer(node)
        more: Node | None = None
        if node.op == "concat":
            offset, axis = 0, node.attr("axis")
            for part in node.args:
                piece = View(into.buffer, offset, into.strides)
                more = more or self._place(Target(part, "element", piece), part.shape, ())
                offset += part.shape[axis] * into.strides[axis]
        elif node.op == "scatter_add":
            more = self._place(Target(node.args[0], "element", into), node.shape, ())
            more = more or self._alone("scatter", Target(node, "element", into), node.args[2].shape, ())
        elif node.op == "scan":
            more = self._alone("scan", Target(node, "element", into), node.shape, (node.attr("axis"),))
        elif node.op == "matmul":
            self._alone("matmul", Target(node, "element", into), node.shape, ())
        elif node.op == "reduce":
            more = self._place(Target(node, "reduce", into), node.args[0].shape, node.attr("axes"))
        else:
            more = self._place(Target(node, "element", into), node.shape, ())
        (self.copies if node.op == "param" else fused.views)[node] = into
        return more

    def _place_result(self, node: Node) -> Node | None:
        """Each result has a buffer of its own, even if two of them are the same or one is a parameter."""
        fused = self.fused
        view = fused.views.get(node) if node in self.stored else None
        more: Node | None = None
        if view is None or fused.buffers[view.buffer].out is not None:
            view = self._buffer(node)
            more = self._place(Target(node, "element", view), node.shape, ())
        fused.buffers[view.buffer].out = len(fused.outs)
        fused.outs.append(view.buffer)
        return more

    # Groups.

    def _alone(self, kind: Kind, target: Target, domain: Shape, axes: tuple[int, ...]) -> Node | None:
        group = Group(kind, domain, axes, len(self.fused.groups))
        self.fused.groups.append(group)
        return self._add(group, target)

    def _add(self, group: Group, target: Target) -> Node | None:
        group.targets.append(target)
        if target.into is not None:
            self.fused.made[target.into.buffer] = group.number
        return None if group.kind == "matmul" else self._too_often(group, target)

    def _place(self, target: Target, domain: Shape, axes: tuple[int, ...]) -> Node | None:
        """Put a target into the first group that it can join, or into one of its own."""
        for group in self.fused.groups:
            if group.kind == "loops" and self._joins(group, target, domain, axes):
                return self._add(group, target)
        return self._alone("loops", target, domain, axes)

    def _joins(self, group: Group, target: Target, domain: Shape, axes: tuple[int, ...]) -> bool:
        if target.role == "reduce":
            if domain != group.domain or (group.axes and axes != group.axes):
                return False
            trial = group if group.axes else Group("loops", domain, axes, group.number, group.targets)
            phase = self._phase(trial, target)
            if phase is None:
                return False
            group.axes = axes
            target.phase = phase
            return True
        roles: list[Role] = ["element"] if domain == group.domain else []
        if group.axes and group.row_map(domain) is not None:
            roles.append("row")
        for role in roles:
            target.role = role
            phase = self._phase(group, target)
            if phase is not None:
                target.phase = 0 if role == "row" else phase
                return True
        target.role = "element"
        return False

    def _phase(self, group: Group, target: Target) -> int | None:
        """The first phase in which a target can be computed in a group; None if in no phase."""
        phase = 0
        for node, _, found in self.fused.reach(group, target):
            if found == "refused":
                return None
            if found == "inline" and node.op == "gather" and not self._there(node.args[0], group):
                return None
            if found == "inline" and node.op == "reduce":
                if target.role != "row" and not _has_rows(group):
                    return None
                own = next(each for each in group.targets if each.node is node and each.role == "reduce")
                phase = max(phase, own.phase + 1)
        return phase

    def _there(self, source: Node, group: Group) -> bool:
        """Whether what a gather reads is in memory before the group runs."""
        return self.fused.made.get(self.fused.views[source].buffer, -1) < group.number

    def _too_often(self, group: Group, target: Target) -> Node | None:
        """What would be computed for too many different indices, and must be stored first."""
        counts: dict[Node, int] = {}
        for node, _, found in self.fused.reach(group, target):
            if found == "inline" and node is not target.node and (node.op in ROWS or node.op in ("cast", "gather")):
                counts[node] = counts.get(node, 0) + 1
                if counts[node] > REPEATS and node not in self.stored:
                    return node
        return None

    def _prune(self) -> None:
        """Do not store what only its own group needs, which computes it anyhow."""
        fused = self.fused
        needed = set(fused.outs)
        for group in reversed(fused.groups):
            for target in group.targets:
                if target.into is not None and target.into.buffer not in needed:
                    target.into = None
            if group.kind == "loops":
                group.targets = [each for each in group.targets if each.into is not None or each.role == "reduce"]
            for target in group.targets:
                if group.kind == "matmul":
                    needed.update(fused.views[arg].buffer for arg in target.node.args)
                    continue
                for node, _, found in fused.reach(group, target):
                    if found == "load":
                        needed.add(fused.views[node].buffer)
                    if node.op == "gather" and found == "inline":
                        needed.add(fused.views[node.args[0]].buffer)
        fused.groups = [group for group in fused.groups if any(each.into is not None for each in group.targets)]


def _is_row(reduction: Node, index: IndexMap, group: Group) -> bool:
    """Whether a reduction of the group is read where the row is, and nowhere else."""
    whole = zip(reduction.shape, index, identity_map(group.rows), strict=True)
    return all(length == 1 or at == own for length, at, own in whole)


def _has_rows(group: Group) -> bool:
    """Rows can be shared out between threads; a single long one is better cut into parts first."""
    total, rows = 1, 1
    for at, length in enumerate(group.domain):
        total *= length
        rows *= length if at not in group.axes else 1
    return rows > 1 or total <= ALONE
