"""From groups to kernels: index maps become strides, strides become loops, as few as will do.

Note [Lanes].  Either the last reduced loop or the last of the others takes the lanes: the one along which more accesses
find neighbours.  Without a reduction it is the last loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from lifetimes.compiler.bound import Bound, Scalar
from lifetimes.compiler.ir import Function, Node
from lifetimes.compiler.kernel import Access, Nest, Phase, Reduction, Store, Value
from lifetimes.compiler.loops import Loops
from lifetimes.compiler.parts import in_parts, is_long
from lifetimes.compiler.passes.groups import Fused, Group, Target
from lifetimes.compiler.passes.views import IndexMap, View, argument_maps, contiguous, is_view

__all__ = ["lower"]

_STRIDED: Final = 6.0
"""How many times as much as neighbours elements cost that are gathered."""
_BAKED: Final = ("floor_divide", "remainder", "pow", "shift_left", "shift_right")
"""Operations that the code generator does better when it knows the second operand."""
_PLAIN: Final = (0.0, 1.0, 2.0, 0.5)
"""Numbers that stand in the code.  All others are arguments, so that functions that differ by them share their code."""


def lower(fused: Fused, group: Group) -> list[tuple[Bound, ...]]:
    """The kernels of a group, in order; those of one tuple have the same code and may run side by side.

    They may add temporary buffers.
    """
    kernel = _Lowering(fused, group).run()
    if group.kind == "loops" and is_long(kernel):
        return in_parts(kernel, fused.buffers)
    return [(kernel,)]


@dataclass(slots=True)
class _Move:
    """An access or an index value before the loops are settled: how it moves with each dimension of the domain."""

    moves: list[int]
    start: int
    buffer: int = -1
    dtype: str = "int64"
    jump: int | None = None


@dataclass(slots=True)
class _Lowering:
    fused: Fused
    group: Group
    values: list[Value] = field(default_factory=list)
    accesses: list[_Move] = field(default_factory=list)
    indices: dict[int, _Move] = field(default_factory=dict)
    scalars: list[tuple[str, Scalar]] = field(default_factory=list)
    reductions: list[Reduction] = field(default_factory=list)
    known: dict[tuple[Node, IndexMap], int] = field(default_factory=dict)
    places: dict[tuple[object, ...], int] = field(default_factory=dict)
    number_of: dict[Node, int] = field(default_factory=dict)  # of reductions
    baked: set[Node] = field(default_factory=set)

    def run(self) -> Bound:
        group = self.group
        self.baked = _baked(self.fused.function)
        phases: dict[int, tuple[list[int], list[Store]]] = {}
        stores: list[Store] = []
        for target in sorted(group.targets, key=lambda each: (each.role == "row", each.phase)):
            found = self._roots(target)
            into = target.into
            reductions, writes = phases.setdefault(target.phase, ([], []))
            if target.role == "reduce":
                number = self.number_of[target.node] = len(self.reductions)
                node = target.node
                positions = (self._position(),) if node.attr("kind").startswith("arg") else ()
                dtype = node.args[0].dtype.name
                self.reductions.append(Reduction(node.attr("kind"), (found[0], *positions), dtype))
                reductions.append(number)
                if into is not None:
                    value = self._value(Value("result", (), node.dtype.name, number))
                    stores.append(Store(self._place(into, group.rows), value))
            elif group.kind == "scatter":
                assert into is not None, "what is alone is stored"
                writes.append(self._scatter(target.node, into, *found))
            elif into is not None:
                value = found[0]
                if group.kind == "scan":
                    value = self._value(Value("scan", (value,), target.node.dtype.name, target.node.attr("kind")))
                if target.role == "row":
                    stores.append(Store(self._row_place(into, target.node), value))
                else:
                    writes.append(Store(self._place(into, range(len(group.domain))), value))
        ordered = tuple([Phase(tuple(phases[at][0]), tuple(phases[at][1])) for at in sorted(phases)])
        return self._assembled(tuple([each for each in ordered if each.reductions or each.stores]), tuple(stores))

    # Values.

    def _value(self, value: Value) -> int:
        key = (value, repr(value.extra))  # 1, True and 1.0 differ here
        found = self.places.get(key)
        if found is None:
            found = self.places[key] = len(self.values)
            self.values.append(value)
        return found

    def _scalar(self, dtype: str, scalar: Scalar) -> int:
        key = ("scalar", dtype, scalar if isinstance(scalar, int) else scalar.tobytes(), type(scalar))
        number = self.places.get(key)
        if number is None:
            number = self.places[key] = len(self.scalars)
            self.scalars.append((dtype, scalar))
        return self._value(Value("scalar", (), dtype, number))

    def _roots(self, target: Target) -> list[int]:
        """Compute what a target needs, arguments first; returns the values of its roots."""
        reached = list(self.fused.reach(self.group, target))
        for node, index, found in sorted(reached, key=lambda each: each[0].number):
            if (node, index) not in self.known:
                self.known[node, index] = self._computed(node, index, found)
        return [self.known[root] for root in self.group.roots(target)]

    def _computed(self, node: Node, index: IndexMap, found: str) -> int:
        dtype = node.dtype.name
        assert found != "refused", f"{node!r} was put into a group that cannot have it"
        if found == "load":
            return self._value(Value("load", (), dtype, self._access(self.fused.views[node], index, dtype)))
        if node.op == "param":
            return self._scalar(dtype, int(node.attr("index")))
        if node.op == "const":
            return self._constant(node, dtype)
        if node.op == "iota":
            start, moves = index[0]
            return self._index(_Move(self._moves(moves), start))
        if node.op == "reduce":
            return self._value(Value("result", (), dtype, self.number_of[node]))
        args = tuple([self.known[each] for each in argument_maps(node, index)])
        if is_view(node):
            return args[0]
        if node.op == "gather":
            return self._gather(node, index, args[0])
        return self._value(Value(node.op, args, dtype))

    def _constant(self, node: Node, dtype: str) -> int:
        scalar = node.attr("value")
        plain = node.dtype.kind == "b" or node in self.baked
        if node.dtype.kind == "f":
            plain = abs(float(scalar)) in _PLAIN or not np.isfinite(scalar)
        return self._value(Value("const", (), dtype, scalar.item())) if plain else self._scalar(dtype, scalar)

    def _gather(self, node: Node, index: IndexMap, position: int) -> int:
        source, axis = node.args[0], node.attr("axis")
        position = self._inside(position, source.shape[axis])
        view = self.fused.views[source]
        rest = (*index[:axis], (0, ()), *index[axis + node.args[1].ndim :])
        access = self._access(view, rest, source.dtype.name, jump=view.strides[axis])
        return self._value(Value("load", (position,), node.dtype.name, access))

    def _inside(self, position: int, length: int) -> int:
        """An index outside is moved to the nearest inside."""
        lowest = self._value(Value("const", (), "int64", 0))
        most = self._scalar("int64", np.int64(max(length - 1, 0)))
        above = self._value(Value("maximum", (position, lowest), "int64"))
        return self._value(Value("minimum", (above, most), "int64"))

    def _scatter(self, node: Node, into: View, update: int, position: int) -> Store:
        axis, width = node.attr("axis"), node.args[1].ndim
        lowest = self._value(Value("const", (), "int64", 0))
        length = self._scalar("int64", np.int64(node.shape[axis]))
        above = self._value(Value("greater_equal", (position, lowest), "bool"))
        below = self._value(Value("less", (position, length), "bool"))
        inside = self._value(Value("bitwise_and", (above, below), "bool"))
        loops = list(range(len(self.group.domain)))
        moves = [0] * len(loops)
        for loop, stride in zip(
            [*loops[:axis], *loops[axis + width :]], [*into.strides[:axis], *into.strides[axis + 1 :]], strict=True
        ):
            moves[loop] = stride
        self.accesses.append(_Move(moves, into.offset, into.buffer, node.dtype.name, into.strides[axis]))
        return Store(len(self.accesses) - 1, update, True, position, inside)

    def _position(self) -> int:
        """The position of an element among those that are reduced, in C order."""
        axes = self.group.axes
        moves = [0] * len(self.group.domain)
        for axis, stride in zip(axes, contiguous([self.group.domain[axis] for axis in axes]), strict=True):
            moves[axis] = stride
        return self._index(_Move(moves, 0))

    # Places.

    def _moves(self, moves: Sequence[tuple[int, int]]) -> list[int]:
        found = [0] * len(self.group.domain)
        for loop, factor in moves:
            found[loop] += factor
        return found

    def _index(self, move: _Move) -> int:
        key = ("index", move.start, tuple(move.moves))
        number = self.places.get(key)
        if number is None:
            number = self.places[key] = len(self.values)
            self.values.append(Value("index", (), "int64", f"#{number}"))  # its steps are not known yet
            self.indices[number] = move
        return number

    def _access(self, view: View, index: IndexMap, dtype: str, jump: int | None = None) -> int:
        offset = view.offset
        moves = [0] * len(self.group.domain)
        for (start, own), stride in zip(index, view.strides, strict=True):
            offset += start * stride
            for loop, factor in own:
                moves[loop] += factor * stride
        key = ("access", view.buffer, offset, tuple(moves), jump)
        number = self.places.get(key)
        if number is None:
            number = self.places[key] = len(self.accesses)
            self.accesses.append(_Move(moves, offset, view.buffer, dtype, jump))
        return number

    def _place(self, into: View, loops: Sequence[int]) -> int:
        """Where a target is written: one loop for each of its dimensions."""
        moves = [0] * len(self.group.domain)
        for loop, stride in zip(loops, into.strides, strict=True):
            moves[loop] = stride
        self.accesses.append(_Move(moves, into.offset, into.buffer, self.fused.buffers[into.buffer].dtype))
        return len(self.accesses) - 1

    def _row_place(self, into: View, node: Node) -> int:
        rows = self.group.row_map(node.shape) or ()
        moving = [(moves[0][0], stride) for (_, moves), stride in zip(rows, into.strides, strict=True) if moves]
        return self._place(View(into.buffer, into.offset, tuple([s for _, s in moving])), [loop for loop, _ in moving])

    # Loops.

    def _assembled(self, phases: tuple[Phase, ...], stores: tuple[Store, ...]) -> Bound:
        group = self.group
        written = tuple(
            sorted({store.access for phase in phases for store in phase.stores} | {s.access for s in stores})
        )
        movers = [*self.accesses, *self.indices.values()]
        loops = Loops(list(group.domain), [list(move.moves) for move in movers])
        rows, axes = list(group.rows), list(group.axes)
        if group.kind == "loops" and not any(each.kind.startswith("arg") for each in self.reductions):
            loops.sort(axes, len(self.accesses))
        outer, inner = loops.collapsed(rows), loops.collapsed(axes)
        lane: Literal["inner", "outer"] = "inner"
        lanes: Literal[0, 1] = 0
        if group.kind == "scatter":  # in order, since two updates may meet
            outer, inner, lanes = [], [*outer, *inner] or [loops.single()], 1
        elif not group.axes and not outer:
            inner, lanes = [loops.single()], 1
        elif not group.axes:  # nothing is reduced: the last loop is the inner one
            inner = [outer.pop()]
        else:
            inner = inner or [loops.single()]
            if outer and self._across(loops, outer[-1], inner[-1], written):
                lane = "outer"
        order = [*outer, *inner]
        lane_loop = outer[-1] if lane == "outer" else inner[-1]
        letters = [
            "".join(
                ["0" if not each[loop] else "1" if loop == lane_loop and each[loop] == 1 else "s" for loop in order]
            )
            for each in loops.moves
        ]
        moves = [tuple([each[loop] for loop in order]) for each in loops.moves]
        count = len(self.accesses)
        for (number, _), steps in zip(self.indices.items(), letters[count:], strict=True):
            # Factors of 1 are written into the code in every loop: positions have them.
            own = moves[count + list(self.indices).index(number)]
            spelled = "".join(["1" if factor == 1 else letter for factor, letter in zip(own, steps, strict=True)])
            self.values[number] = Value("index", (), "int64", spelled)
        nest = Nest(
            len(outer),
            len(inner),
            lane,
            tuple(
                [
                    Access(move.dtype, steps, move.jump is not None)
                    for move, steps in zip(self.accesses, letters[:count], strict=True)
                ]
            ),
            tuple(self.values),
            tuple(self.reductions),
            phases,
            stores,
            tuple([dtype for dtype, _ in self.scalars]),
            lanes,
        )
        return Bound(
            nest,
            tuple([loops.sizes[loop] for loop in order]),
            tuple([(move.buffer, move.start) for move in self.accesses]),
            tuple(moves[:count]),
            written,
            tuple([(at, move.jump) for at, move in enumerate(self.accesses) if move.jump is not None]),
            tuple([(number, move.start) for number, move in self.indices.items()]),
            tuple(zip(self.indices, moves[count:], strict=True)),
            tuple([scalar for _, scalar in self.scalars]),
        )

    def _across(self, loops: Loops, outer: int, inner: int, written: tuple[int, ...]) -> bool:
        """Whether the lanes are better in the last outer loop than in the last inner one (Note [Lanes])."""

        def cost(lane: int, fold: float) -> float:
            size = loops.sizes[lane]
            if not size:
                return 1.0
            each = sum(
                1.0 if moves[lane] in (0, 1) else _STRIDED
                for at, moves in enumerate(loops.moves[: len(self.accesses)])
                if at not in written and any(moves[axis] for axis in [*self.group.axes, inner])
            )
            whole = -(-size // 8) * 8 / size  # lanes that are left idle at the end
            return (each + 1.0) * whole + fold / size

        return cost(outer, 0.0) < cost(inner, 30.0 * max(len(self.reductions), 1))


def _baked(function: Function) -> set[Node]:
    """The constants that are the second operand of an operation that wants to know it."""
    found: set[Node] = set()
    for node in function.nodes():
        if node.op in _BAKED:
            operand = node.args[1]
            while is_view(operand):
                operand = operand.args[0]
            if operand.op == "const" and operand.dtype.kind in "iu":
                found.add(operand)
    return found
