"""From a kernel to LLVM text with explicit vectors: the loops, and which value is computed where.

The lane loop runs in full vectors, several of them a turn where the kernel is light, and then in masked ones for what is
left: no loop over single elements.  The function is ``void kernel(ptr words, i64 lo, i64 hi)``: rows ``lo`` to ``hi`` of
the outer loops (without the lane loop), counted as one; the words are those of `lifetimes.compiler.kernel.Words`.

Note [Levels].  What is the same everywhere is computed in the entry block, what is the same for a row before the row's
inner loops, and spread over the lanes there.  With the lanes in an inner loop such values are single; with the lanes in
an outer one they are vectors.

Note [Long rows].  Each lane of an accumulator adds up one number after the other, which in float32 loses digits on a long
row.  Sums of float32 are therefore taken for a block of the row at a time, and the blocks' sums added up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from lifetimes.compiler.emit import memory, reductions
from lifetimes.compiler.emit.reductions import State
from lifetimes.compiler.emit.values import Place, Values
from lifetimes.compiler.emit.writer import Lanes, Operand, type_of
from lifetimes.compiler.kernel import ELEMENT, ENTRY, ROW, Nest, Phase
from lifetimes.compiler.ops.elementwise import ROWS
from lifetimes.compiler.target import Target

__all__ = ["ENTRY_POINT", "Emitter", "Program"]

BLOCK = 65536
"""Elements of a block of a long row."""

ENTRY_POINT = "kernel"
MOST_COPIES = 4
LIGHT = 24
"""Values that a kernel may compute for an element and still be unrolled."""
ACROSS = 16, 8
"""Vectors side by side that a reduction across rows takes, if it computes no more than so many values for an element: each
row lies elsewhere in memory, so there must be a piece of it worth going there."""


@dataclass(frozen=True, slots=True)
class Program:
    """Text, the outside symbols that it needs, and how many elements a vector has."""

    text: str
    symbols: tuple[str, ...]
    lanes: int


class Emitter(Values):
    """The loops of a kernel around its values."""

    def __init__(self, nest: Nest, target: Target) -> None:
        super().__init__(nest, target)
        self.turns = self._turns()

    def _turns(self) -> tuple[int, ...]:
        """Vectors of one turn of the lane loop; when fewer are left, the next number, and then one at a time."""
        elements = [v for v, level in zip(self.nest.values, self.levels, strict=True) if level == ELEMENT]
        heavy = any(v.op == "scan" or (v.op in ROWS and ROWS[v.op].cost == "call") for v in elements)
        if heavy or self.lanes is None or len(elements) > LIGHT:
            return (1,)
        if self.nest.lane == "outer" and len(elements) <= ACROSS[1]:
            return (ACROSS[0], MOST_COPIES)
        return (MOST_COPIES,) if self.nest.reductions else (2,)

    # Entry.

    def program(self) -> Program:
        """Write the function, and all that goes around it."""
        self.run()
        w = self.w
        lines = [
            f"; target {self.target.name}, {self.lanes or 1} lanes",
            *sorted(set(w.declarations.values())),
            "",
            f"define void @{ENTRY_POINT}(ptr noalias readonly %words, i64 %lo, i64 %hi) nounwind {{",
            "entry:",
            *w.lines,
            "}",
            "",
        ]
        return Program("\n".join(lines), tuple(sorted(w.symbols)), self.lanes or 1)

    def run(self) -> None:
        """Write the body of the function."""
        self._begin()
        place = Place([self.word[at] for at in self.words.pointer], {})
        for number, at in self.words.start.items():
            place.indices[number] = self.word[at]
        for number, value in enumerate(self.nest.values):
            if self.levels[number] == ENTRY:
                self.single[number] = self._compute(number, value, place, None, self.single.__getitem__)
                self.spread[number] = self.w.splat(value.dtype, self.single[number], self.lanes)
        rows = [loop for loop in range(self.nest.outer) if loop != self.lane_loop]
        if not rows:
            self._row(place)
        else:
            self.w.loop("%lo", "%hi", 1, [], lambda row, _: self._decoded(place, rows, row))
        self.w.do("ret void")

    def _begin(self) -> None:
        """Read the words."""
        kinds = dict.fromkeys(self.words.pointer, "ptr")
        kinds |= {at: type_of(dtype, None) for at, dtype in zip(self.words.scalar, self.nest.scalars, strict=True)}
        for at in range(self.words.count):
            where = self.w.let(f"getelementptr i64, ptr %words, i64 {at}")
            kind = kinds.get(at, "i64")
            if kind == "i1":
                self.word[at] = self.w.let(f"trunc i8 {self.w.let(f'load i8, ptr {where}, align 8')} to i1")
            else:
                self.word[at] = self.w.let(f"load {kind}, ptr {where}, align 8")
        if self.lanes is None:
            return
        for number, access in enumerate(self.nest.accesses):
            if access.steps[self.lane_loop] == "s":
                self.apart[number] = self._times_lanes(self.word[self.words.stride[number, self.lane_loop]])
        for number, value in enumerate(self.nest.values):
            if value.op == "index" and str(value.extra)[self.lane_loop] != "0":
                factor = self.words.factor.get((number, self.lane_loop))
                self.index_apart[number] = self._times_lanes(None if factor is None else self.word[factor])

    def _times_lanes(self, factor: Operand | None) -> Operand:
        lanes = self.lanes or 1
        count = self.w.count("int64", lanes)
        if factor is None:
            return count
        return self.w.let(f"mul <{lanes} x i64> {self.w.splat('int64', factor, lanes)}, {count}")

    # Outer loops.

    def _decoded(self, place: Place, rows: list[int], row: Operand) -> list[Operand]:
        """From the number of a row to the steps of its loops."""
        steps: dict[int, Operand] = {}
        left = row
        for loop in reversed(rows[1:]):
            size = self.word[self.words.size[loop]]
            quotient = self.w.let(f"udiv i64 {left}, {size}")
            steps[loop] = self.w.let(f"sub i64 {left}, {self.w.let(f'mul i64 {quotient}, {size}')}")
            left = quotient
        steps[rows[0]] = left
        for loop in rows:
            place = self._moved(place, loop, steps[loop])
        self._row(place)
        return []

    def _moved(self, place: Place, loop: int, step: Operand) -> Place:
        """The place after so many steps of one loop: pointers and indices have moved on."""
        pointers = list(place.pointers)
        for number, access in enumerate(self.nest.accesses):
            letter = access.steps[loop]
            if letter != "0":
                distance = step
                if letter == "s":
                    distance = self.w.let(f"mul i64 {step}, {self.word[self.words.stride[number, loop]]}")
                pointers[number] = memory.moved(self.w, access, pointers[number], distance)
        indices = dict(place.indices)
        for number in indices:
            letter = str(self.nest.values[number].extra)[loop]
            if letter != "0":
                distance = step
                if letter == "s":
                    distance = self.w.let(f"mul i64 {step}, {self.word[self.words.factor[number, loop]]}")
                indices[number] = self.w.let(f"add i64 {indices[number]}, {distance}")
        return Place(pointers, indices, place.mask, {}, dict(place.results), {})

    def _row(self, place: Place) -> None:
        if self.nest.lane == "inner":
            self._work([Place(place.pointers, place.indices)])
            return
        size = self.word[self.words.size[self.lane_loop]]
        self._lane_loop("0", size, [], lambda i, copies, masked, _: self._columns(place, i, copies, masked))

    def _columns(self, place: Place, i: Operand, copies: int, masked: bool) -> list[Operand]:
        self._work(self._lane_places(place, i, copies, masked))
        return []

    def _lane_places(self, place: Place, i: Operand, copies: int, masked: bool) -> list[Place]:
        """One place for each vector of a turn of the lane loop."""
        found = []
        for copy in range(copies):
            at = i if not copy else self.w.let(f"add i64 {i}, {copy * (self.lanes or 1)}")
            moved = self._moved(place, self.lane_loop, at)
            moved.mask = self._mask(i) if masked else None
            found.append(moved)
        return found

    def _mask(self, i: Operand) -> Operand:
        return self._mask_of(self.w.let(f"sub i64 {self.word[self.words.size[self.lane_loop]]}, {i}"))

    def _mask_of(self, left: Operand) -> Operand:
        """The lanes below a count, which is that of less than a turn and therefore fits."""
        lanes = self.lanes or 1
        count = self.w.splat("int32", self.w.let(f"trunc i64 {left} to i32"), lanes)
        return self.w.let(f"icmp ult <{lanes} x i32> {self.w.count('int32', lanes)}, {count}")

    def _lane_loop(
        self,
        begin: Operand,
        size: Operand,
        carried: list[tuple[str, Operand]],
        body: Callable[[Operand, int, bool, list[Operand]], list[Operand]],
    ) -> list[Operand]:
        """From ``begin`` to ``size``: full turns, then masked single vectors; ``carried`` goes through all of them."""
        if self.lanes is None:
            return self.w.loop(begin, size, 1, carried, lambda i, now: body(i, 1, False, now))
        now = [each for _, each in carried]
        for copies in self.turns:
            turn = self.lanes * copies
            full = self.w.let(f"and i64 {size}, {-turn}")  # ``begin`` is a multiple of every turn
            now = self.w.loop(begin, full, turn, _renewed(carried, now), partial(_turn, body, copies, False))
            begin = full
        return self.w.loop(begin, size, self.lanes, _renewed(carried, now), partial(_turn, body, 1, True))

    # Phases.

    def _work(self, places: list[Place]) -> None:
        """All phases, and the stores at the end, for the vectors (or the row) of these places."""
        nest = self.nest
        for phase in nest.phases:
            self._prepare(phase, places)
            if nest.lane == "inner":
                self._phase_along(phase, places[0])
            else:
                self._phase_across(phase, places)
        for place in places:
            for store in nest.stores:
                self._store(store, place, self.rows)

    def _prepare(self, phase: Phase, places: list[Place]) -> None:
        """Compute what the phase needs of the row before its loops (Note [Levels])."""
        for number in self._needed(phase):
            if self.levels[number] == ROW:
                for place in places:
                    self._row_value(place, number)
                    if self.nest.lane == "inner":
                        self._row_spread(place, number)

    def _needed(self, phase: Phase) -> list[int]:
        """The values that the elements of a phase need, and those of the row that they need directly."""
        roots = [arg for r in phase.reductions for arg in self.nest.reductions[r].args]
        for store in phase.stores:
            roots += [each for each in (store.value, store.index, store.where) if each is not None]
        seen: set[int] = set()
        stack = roots
        while stack:
            number = stack.pop()
            if number not in seen:
                seen.add(number)
                if self.levels[number] == ELEMENT:
                    stack += self.nest.values[number].args
        return sorted(seen)

    def _accumulators(self, phase: Phase, lanes: Lanes) -> tuple[list[tuple[int, int]], list[tuple[str, Operand]]]:
        """For each reduction where its state begins in the list of what the loops carry, and how long it is."""
        where: list[tuple[int, int]] = []
        carried: list[tuple[str, Operand]] = []
        for number in phase.reductions:
            reduction = self.nest.reductions[number]
            first = reductions.identity(self.w, reduction.kind, reduction.dtype, lanes)
            where.append((len(carried), len(first)))
            carried += zip(reductions.state_types(reduction.kind, reduction.dtype, lanes), first, strict=True)
        return where, carried

    def _scans(self, phase: Phase) -> list[int]:
        return [number for number in self._needed(phase) if self.nest.values[number].op == "scan"]

    def _phase_along(self, phase: Phase, row: Place) -> None:
        """The lanes run in the last inner loop: accumulators have lanes, which are folded at the end (Note [Long rows])."""
        where, one = self._accumulators(phase, self.lanes)
        copies = self.turns[0]
        scans = self._scans(phase)
        several = [each for _ in range(copies) for each in one]
        for number in scans:  # what is carried from vector to vector is a single element
            value = self.nest.values[number]
            first = reductions.identity(self.w, str(value.extra), value.dtype, None)[0]
            several.append((type_of(value.dtype, None), first))

        def turn(place: Place, i: Operand, copies: int, masked: bool, now: list[Operand]) -> list[Operand]:
            now = list(now)
            places = self._lane_places(place, i, copies, masked)
            if copies > 1:
                self._fetch_ahead(phase, places[0], copies)
            for copy, each in enumerate(places):
                each.scans = dict(zip(scans, now[len(several) - len(scans) :], strict=True))
                self._element(phase, each, row, now, copy * len(one), where, self.lanes)
                now[len(several) - len(scans) :] = [each.scans[number] for number in scans]
            return now

        def merged(now: list[Operand]) -> list[Operand]:
            """Of several accumulators one."""
            found = now[: len(one)]
            for copy in range(1, copies):
                found = self._merged(phase, where, found, now[copy * len(one) : (copy + 1) * len(one)])
            return found

        size = self.word[self.words.size[self.lane_loop]]

        def in_blocks(place: Place, now: list[Operand]) -> list[Operand]:
            def block(begin: Operand, total: list[Operand]) -> list[Operand]:
                left = self.w.let(f"sub i64 {size}, {begin}")
                length = self.w.call("llvm.smin.i64", "i64", [("i64", left), ("i64", str(BLOCK))])
                stop = self.w.let(f"add i64 {begin}, {length}")
                found = self._lane_loop(begin, stop, several, partial(turn, place))
                return self._merged(phase, where, total, merged(found))

            return self.w.loop("0", size, BLOCK, _renewed(one, now), block)

        def at_once(place: Place, now: list[Operand]) -> list[Operand]:
            return self._lane_loop("0", size, _renewed(several, now), partial(turn, place))

        loops = list(range(self.nest.outer, self.lane_loop))
        rounds = [self.nest.reductions[number] for number in phase.reductions]
        if not scans and any(each.kind == "sum" and each.dtype == "float32" for each in rounds):
            state = self._inner(row, loops, one, in_blocks)
        else:
            state = merged(self._inner(row, loops, several, at_once))
        for (at, length), number, reduction in zip(where, phase.reductions, rounds, strict=True):
            found: State = tuple(state[at : at + length])
            if self.lanes is not None:
                found = reductions.fold_lanes(self.w, reduction.kind, reduction.dtype, found, self.lanes)
            row.results[number] = found[-1]  # for argmin and argmax the position

    def _fetch_ahead(self, phase: Phase, place: Place, copies: int) -> None:
        for number in self._needed(phase):
            value = self.nest.values[number]
            if value.op == "load" and self.levels[number] == ELEMENT:
                access = self.nest.accesses[int(value.extra or 0)]
                if access.steps[self.lane_loop] == "1":
                    memory.fetch_ahead(
                        self.w, access, place.pointers[int(value.extra or 0)], copies * (self.lanes or 1)
                    )

    def _merged(self, phase: Phase, where: list[tuple[int, int]], a: list[Operand], b: list[Operand]) -> list[Operand]:
        """Two accumulators of each reduction made one."""
        found: list[Operand] = []
        for (at, length), number in zip(where, phase.reductions, strict=True):
            each = self.nest.reductions[number]
            states = tuple(a[at : at + length]), tuple(b[at : at + length])
            found += reductions.merge(self.w, each.kind, each.dtype, *states, self.lanes)
        return found

    def _phase_across(self, phase: Phase, places: list[Place]) -> None:
        """The lanes run in an outer loop: each has an accumulator of its own, and nothing is folded."""
        where, one = self._accumulators(phase, self.lanes)
        scans = self._scans(phase)
        each_scan = []
        for number in scans:
            value = self.nest.values[number]
            first = reductions.identity(self.w, str(value.extra), value.dtype, self.lanes)[0]
            each_scan.append((type_of(value.dtype, self.lanes), first))
        carried = [each for _ in places for each in [*one, *each_scan]]
        width = len(one) + len(scans)

        def turn(loops: list[Place], now: list[Operand]) -> list[Operand]:
            now = list(now)
            for copy, (place, row) in enumerate(zip(loops, places, strict=True)):
                at = copy * width
                place.mask = row.mask
                place.scans = dict(zip(scans, now[at + len(one) : at + width], strict=True))
                self._element(phase, place, row, now, at, where, self.lanes)
                now[at + len(one) : at + width] = [place.scans[number] for number in scans]
            return now

        out = self._inner_many(places, list(range(self.nest.outer, self.nest.outer + self.nest.inner)), carried, turn)
        for copy, place in enumerate(places):
            for (at, length), number in zip(where, phase.reductions, strict=True):
                place.results[number] = out[copy * width + at + length - 1]

    def _inner(
        self,
        place: Place,
        loops: list[int],
        carried: list[tuple[str, Operand]],
        body: Callable[[Place, list[Operand]], list[Operand]],
    ) -> list[Operand]:
        return self._inner_many([place], loops, carried, lambda places, now: body(places[0], now))

    def _inner_many(
        self,
        places: list[Place],
        loops: list[int],
        carried: list[tuple[str, Operand]],
        body: Callable[[list[Place], list[Operand]], list[Operand]],
    ) -> list[Operand]:
        """The inner loops one in the other, all places moving on together."""
        if not loops:
            return body(places, [each for _, each in carried])
        size = self.word[self.words.size[loops[0]]]

        def deeper(step: Operand, now: list[Operand]) -> list[Operand]:
            moved = [self._moved(place, loops[0], step) for place in places]
            return self._inner_many(moved, loops[1:], _renewed(carried, now), body)

        return self.w.loop("0", size, 1, carried, deeper)

    def _element(
        self,
        phase: Phase,
        place: Place,
        row: Place,
        now: list[Operand],
        offset: int,
        where: Iterable[tuple[int, int]],
        lanes: Lanes,
    ) -> None:
        """One vector of elements: reduce it into ``now`` and do the stores."""

        def of(number: int) -> Operand:
            if self.levels[number] == ENTRY:
                return self.spread[number]
            if self.levels[number] == ROW:
                return self._row_spread(row, number) if self.nest.lane == "inner" else self._row_value(row, number)
            found = place.known.get(number)
            if found is None:
                found = place.known[number] = self._compute(number, self.nest.values[number], place, lanes, of)
            return found

        place.row = row
        for number in self._needed(phase):
            of(number)  # in order, so that no expression is too deep for a recursion
        for (at, length), number in zip(where, phase.reductions, strict=True):
            reduction = self.nest.reductions[number]
            state: State = tuple(now[offset + at : offset + at + length])
            new = tuple([of(arg) for arg in reduction.args])
            state = reductions.step(self.w, reduction.kind, reduction.dtype, state, new, lanes, place.mask)
            now[offset + at : offset + at + length] = state
        for store in phase.stores:
            self._write(store, place, lanes, of)


def _renewed(carried: list[tuple[str, Operand]], now: list[Operand]) -> list[tuple[str, Operand]]:
    """The same types, with what they are now."""
    return [(kind, each) for (kind, _), each in zip(carried, now, strict=True)]


def _turn(
    body: Callable[[Operand, int, bool, list[Operand]], list[Operand]],
    copies: int,
    masked: bool,
    i: Operand,
    now: list[Operand],
) -> list[Operand]:
    return body(i, copies, masked, now)
