"""Which nodes are computed together: from a graph to groups, each of which becomes one kernel.

First it is settled what is stored in any case (`_stored`): results of the function, what one kernel reduces for another,
what a view cannot be made of.  Then each of these, arguments first, is put into the first group that can compute it.

Note [Order].  Groups run in the order in which they were opened.  A target may join an open group if all it needs is
computed by earlier groups, or within that group for the very same row or element.

Note [Too often].  What is computed where it is used is computed anew for each use: for every different index, and in every
phase of a group.  When a target would make that too often for some node, that node is stored first, in whatever group it
fits in, and the target looks for a group again.  So long chains of rows, or of stencils, become several kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from lifetimes.compiler.ir import Function, Node, Shape
from lifetimes.compiler.ops import ROWS
from lifetimes.compiler.passes.groups import MEMORY_ONLY, Buffer, Fused, Group, Kind, Role, Target
from lifetimes.compiler.passes.views import View, contiguous, is_view, peeled, splits, view_of

__all__ = ["fuse"]

ALONE: Final = 131072
"""A reduction to a single value over more elements is a kernel without what comes after it, so that it can have parts."""
GROWS: Final = 4
"""What is costly and broadcast to at least so many times its size is stored."""
REPEATS: Final = 4
"""What a group would compute for more than so many different indices is stored."""
PHASES: Final = 2
"""What is costly and would be computed in more phases of a group is stored."""


def fuse(function: Function, strides: Sequence[tuple[int, ...] | None]) -> Fused:
    """Group the nodes of a function.

    ``strides`` are those of the parameters, in elements; None for a parameter that is a number and has no memory.

    Complexity: about the number of nodes times that of the groups that need them.
    """
    return _Fuser(function, strides).run()


def _stored(function: Function, strides: Sequence[tuple[int, ...] | None]) -> set[Node]:
    """What needs a buffer by what it is, or by what its users are.

    Arguments come first, so whether a reshape is a view is known when it is reached.
    """
    views = {node: View(0, 0, own) for node, own in zip(function.params, strides, strict=True) if own is not None}
    copies: dict[Node, View] = {}
    stored: set[Node] = set()
    costly: set[Node] = set()
    results = {peeled(out) for out in function.outs}

    def store(node: Node) -> None:
        stored.add(node)
        (copies if node.op == "param" else views)[node] = View(0, 0, contiguous(node.shape))

    for node in function.nodes():
        arg = node.args[0] if node.args else node
        # Arguments that the node reads from memory.
        if node.op == "reshape" and splits(node) is None:
            if _in_memory(node, views, copies) is None:
                store(arg)
        elif node.op == "gather" or (node.op == "broadcast" and arg in costly and node.size >= GROWS * arg.size):
            if arg not in views:
                store(arg)
        elif node.op == "matmul":
            for each in node.args:
                if each not in views:
                    store(each)
        # The node itself.
        if node.op in MEMORY_ONLY or (node in results and node.op not in ("param", "const")):
            store(node)
        elif is_view(node):
            view = _in_memory(node, views, copies)
            if view is not None:
                views[node] = view
        if node not in views and (_is_costly(node) or any(each in costly for each in node.args)):
            costly.add(node)
    return stored


def _in_memory(node: Node, views: Mapping[Node, View], copies: Mapping[Node, View]) -> View | None:
    """Where the elements of a view operation lie, if they do.  A reshape may be of the copy of a parameter."""
    (arg,) = node.args
    found = copies.get(arg) if node.op == "reshape" else None
    found = found or views.get(arg)
    return None if found is None else view_of(node, found)


def _is_costly(node: Node) -> bool:
    return node.op in ROWS and ROWS[node.op].cost != "cheap"


class _TooOften(Exception):  # noqa: N818 (it is no error, see the note of that name)
    """A group would compute ``node`` too often."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.node = node


class _Fit(NamedTuple):
    """That a group can compute a target: the first phase in which it can, and what it computes for it there."""

    phase: int
    computed: list[Node]
    costly: list[Node]
    """Those of the computed ones that cost something for each element."""


class _Fuser:
    """The groups while they are filled."""

    def __init__(self, function: Function, strides: Sequence[tuple[int, ...] | None]) -> None:
        self.fused = fused = Fused(function)
        self.stored = _stored(function, strides)
        self.copies: dict[Node, View] = {}  # of parameters whose strides do not allow a reshape
        self.phases: dict[tuple[int, Node], set[int]] = {}  # in which a group, by its number, computes a costly element
        for at, (param, own) in enumerate(zip(function.params, strides, strict=True)):
            fused.buffers.append(Buffer(param.dtype.name, param.size, param=at))
            if own is not None:
                fused.views[param] = View(at, 0, own)

    def run(self) -> Fused:
        """Fill the groups."""
        fused = self.fused
        for node in fused.function.nodes():
            if node in self.stored:
                self._store(node)
            elif is_view(node):
                view = _in_memory(node, fused.views, self.copies)
                if view is not None:
                    fused.views[node] = view
        for out in fused.function.outs:
            self._store_result(peeled(out))
        self._prune()
        return fused

    def _buffer(self, node: Node) -> View:
        self.fused.buffers.append(Buffer(node.dtype.name, node.size))
        return View(len(self.fused.buffers) - 1, 0, contiguous(node.shape))

    def _store(self, node: Node) -> None:
        into = self._buffer(node)
        if node.op == "concat":
            offset, axis = 0, node.attr("axis")
            for part in node.args:
                piece = View(into.buffer, offset, into.strides)
                self._place("loops", Target(part, "element", piece), part.shape)
                offset += part.shape[axis] * into.strides[axis]
        elif node.op == "scatter_add":
            self._place("loops", Target(node.args[0], "element", into), node.shape)
            self._place("scatter", Target(node, "element", into), node.args[2].shape)
        elif node.op == "scan":
            self._place("scan", Target(node, "element", into), node.shape, (node.attr("axis"),))
        elif node.op == "matmul":
            self._place("matmul", Target(node, "element", into), node.shape)
        elif node.op == "reduce":
            self._place("loops", Target(node, "reduce", into), node.args[0].shape, node.attr("axes"))
        else:
            self._place("loops", Target(node, "element", into), node.shape)
        (self.copies if node.op == "param" else self.fused.views)[node] = into

    def _store_result(self, node: Node) -> None:
        """Each result has a buffer of its own, even if two of them are the same or one is a parameter."""
        fused = self.fused
        if node.op == "param":  # its own buffer is the caller's
            view = self.copies.get(node)
        else:
            view = fused.views.get(node) if node in self.stored else None
        if view is None or fused.buffers[view.buffer].out is not None:
            view = self._buffer(node)
            self._place("loops", Target(node, "element", view), node.shape)
        fused.buffers[view.buffer].out = len(fused.outs)
        fused.outs.append(view.buffer)

    # Groups.

    def _place(self, kind: Kind, target: Target, domain: Shape, axes: tuple[int, ...] = ()) -> None:
        """Put a target into the first group that it can join, or into one of its own."""
        while True:
            try:
                group, fit = self._home(kind, target, domain, axes)
                break
            except _TooOften as found:
                self.stored.add(found.node)
                self._store(found.node)
        for node in fit.costly:
            self.phases.setdefault((group.number, node), set()).add(target.phase)
        group.computed.update(fit.computed)
        group.targets.append(target)
        if target.into is not None:  # a buffer of several parts is made when the last of them is
            made, buffer = self.fused.made, target.into.buffer
            made[buffer] = max(made.get(buffer, -1), group.number)

    def _home(self, kind: Kind, target: Target, domain: Shape, axes: tuple[int, ...]) -> tuple[Group, _Fit]:
        """The group that a target goes to.  Errors: `_TooOften`."""
        for group in self.fused.groups:
            if kind == group.kind == "loops":
                fit = self._joins(group, target, domain, axes)
                if fit is not None:
                    return group, fit
        group = Group(kind, domain, axes, len(self.fused.groups))
        fit = _Fit(0, [], []) if kind == "matmul" else self._fits(group, target)
        assert fit is not None, f"{target.node!r} fits in no group"
        self.fused.groups.append(group)
        return group, fit

    def _joins(self, group: Group, target: Target, domain: Shape, axes: tuple[int, ...]) -> _Fit | None:
        """Settle how a target is computed in a group, None if it cannot be.  Errors: `_TooOften`."""
        if target.role == "reduce":
            if domain != group.domain or (group.axes and axes != group.axes):
                return None
            fit = self._fits(group if group.axes else replace(group, axes=axes), target)
            if fit is None:
                return None
            group.axes = axes
            target.phase = fit.phase
            return fit
        roles: list[Role] = ["element"] if domain == group.domain else []
        if group.axes and group.row_map(domain) is not None:
            roles.append("row")
        for role in roles:
            target.role = role
            fit = self._fits(group, target)
            if fit is not None:
                target.phase = 0 if role == "row" else fit.phase
                return fit
        target.role = "element"
        return None

    def _fits(self, group: Group, target: Target) -> _Fit | None:
        """Whether a group can compute a target, None if not.  Errors: `_TooOften`."""
        phase = 0
        maps: dict[Node, int] = {}  # of what is computed, how often it is, users first
        for node, _, found in self.fused.reach(group, target):
            if found == "refused":
                return None
            if found == "load":
                continue
            maps[node] = maps.get(node, 0) + 1
            if node.op == "gather" and not self._there(node.args[0], group):
                return None
            if node.op == "reduce":
                if target.role != "row" and not _has_rows(group):
                    return None
                own = next(each for each in group.targets if each.node is node and each.role == "reduce")
                phase = max(phase, own.phase + 1)
        costly: set[Node] = set()
        for node in reversed(maps):
            if _is_costly(node) or any(arg in costly for arg in node.args):
                costly.add(node)
        elements = [node for node in maps if node in costly and node.shape == group.domain]
        for node, count in maps.items():
            if node is target.node:
                continue
            repeated = count > REPEATS and (node.op in ROWS or node.op in ("cast", "gather"))
            phases = self.phases.get((group.number, node), set()) if node in elements else set()
            if repeated or len(phases - {phase}) >= PHASES:
                if node in self.stored:
                    return None
                raise _TooOften(node)
        return _Fit(phase, list(maps), elements)

    def _there(self, source: Node, group: Group) -> bool:
        """Whether what a gather reads is in memory before the group runs."""
        return self.fused.made.get(self.fused.views[source].buffer, -1) < group.number

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


def _has_rows(group: Group) -> bool:
    """Rows can be shared out between threads; a single long one is better cut into parts first."""
    total, rows = 1, 1
    for at, length in enumerate(group.domain):
        total *= length
        rows *= length if at not in group.axes else 1
    return rows > 1 or total <= ALONE
