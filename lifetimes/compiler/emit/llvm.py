"""From a kernel to LLVM text with explicit vectors: the loops, and which value is computed where.

The lane loop runs in full vectors, several of them a turn where the kernel is light, and then in masked ones for what is
left: no loop over single elements.  The function is ``void kernel(ptr words, i64 lo, i64 hi)``: rows ``lo`` to ``hi`` of
the outer loops (without the lane loop), counted as one; the words are those of `lifetimes.compiler.kernel.Words`.

Note [Levels].  What is the same everywhere is computed in the entry block, what is the same for a row before the row's
inner loops, and spread over the lanes there.  With the lanes in an inner loop such values are single; with the lanes in
an outer one they are vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lifetimes.compiler.emit import memory, reductions
from lifetimes.compiler.emit.reductions import State
from lifetimes.compiler.emit.values import Place, Values
from lifetimes.compiler.emit.writer import Lanes, Operand, type_of
from lifetimes.compiler.kernel import ELEMENT, ENTRY, ROW, Nest, Phase
from lifetimes.compiler.ops.elementwise import ROWS
from lifetimes.compiler.target import Target

__all__ = ["ENTRY_POINT", "Program", "emit"]

ENTRY_POINT = "kernel"
MOST_COPIES = 4
LIGHT = 24
"""Values that a kernel may compute for an element and still be unrolled."""


@dataclass(frozen=True, slots=True)
class Program:
    """Text, the outside symbols that it needs, and how many elements a vector has."""

    text: str
    symbols: tuple[str, ...]
    lanes: int


def emit(nest: Nest, target: Target) -> Program:
    """The program of a kernel."""
    emitter = _Emitter(nest, target)
    emitter.run()
    w = emitter.w
    head = [f"; {line}" for line in ("", f"target {target.name}, {emitter.lanes or 1} lanes")][1:]
    body = [*head, *sorted(set(w.declarations.values())), "",
            f"define void @{ENTRY_POINT}(ptr noalias readonly %words, i64 %lo, i64 %hi) nounwind {{", "entry:",
            *w.lines, "}", ""]  # fmt: skip
    return Program("\n".join(body), tuple(sorted(w.symbols)), emitter.lanes or 1)


class _Emitter(Values):
    """The loops of a kernel around its values."""

    def __init__(self, nest: Nest, target: Target) -> None:
        super().__init__(nest, target)
        self.copies = self._copies()

    def _copies(self) -> int:
        elements = [v for v, level in zip(self.nest.values, self.levels, strict=True) if level == ELEMENT]
        heavy = any(v.op == "scan" or (v.op in ROWS and ROWS[v.op].cost == "call") for v in elements)
        if heavy or self.lanes is None or len(elements) > LIGHT:
            return 1
        return MOST_COPIES if self.nest.reductions else 2

    # Entry.

    def run(self) -> None:
        """Write the whole function."""
        self._read_words()
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

    def _read_words(self) -> None:
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
        self._lane_loop(size, [], lambda i, copies, masked, _: self._columns(place, i, copies, masked))

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
        lanes = self.lanes or 1
        left = self.w.let(f"sub i64 {self.word[self.words.size[self.lane_loop]]}, {i}")
        # Fewer than a turn's worth are left, so the count fits.
        count = self.w.splat("int32", self.w.let(f"trunc i64 {left} to i32"), lanes)
        return self.w.let(f"icmp ult <{lanes} x i32> {self.w.count('int32', lanes)}, {count}")

    def _lane_loop(
        self,
        size: Operand,
        carried: list[tuple[str, Operand]],
        body: Callable[[Operand, int, bool, list[Operand]], list[Operand]],
    ) -> list[Operand]:
        """Full turns of ``copies`` vectors, then masked single vectors; ``carried`` goes through both."""
        if self.lanes is None:
            return self.w.loop("0", size, 1, carried, lambda i, now: body(i, 1, False, now))
        turn = self.lanes * self.copies
        full = self.w.let(f"and i64 {size}, {-turn}")
        out = self.w.loop("0", full, turn, carried, lambda i, now: body(i, self.copies, False, now))
        renewed = [(kind, last) for (kind, _), last in zip(carried, out, strict=True)]
        return self.w.loop(full, size, self.lanes, renewed, lambda i, now: body(i, 1, True, now))

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
        """The lanes run in the last inner loop: accumulators have lanes, which are folded at the end."""
        where, one = self._accumulators(phase, self.lanes)
        scans = self._scans(phase)
        carried = [each for _ in range(self.copies) for each in one]
        for number in scans:  # what is carried from vector to vector is a single element
            value = self.nest.values[number]
            first = reductions.identity(self.w, str(value.extra), value.dtype, None)[0]
            carried.append((type_of(value.dtype, None), first))

        def turn(place: Place, i: Operand, copies: int, masked: bool, now: list[Operand]) -> list[Operand]:
            now = list(now)
            for copy, each in enumerate(self._lane_places(place, i, copies, masked)):
                each.scans = dict(zip(scans, now[len(carried) - len(scans) :], strict=True))
                self._element(phase, each, row, now, copy * len(one), where, self.lanes)
                now[len(carried) - len(scans) :] = [each.scans[number] for number in scans]
            return now

        size = self.word[self.words.size[self.lane_loop]]
        out = self._inner(
            row,
            list(range(self.nest.outer, self.lane_loop)),
            carried,
            lambda place, now: self._lane_loop(
                size,
                [(kind, each) for (kind, _), each in zip(carried, now, strict=True)],
                lambda i, copies, masked, inside: turn(place, i, copies, masked, inside),
            ),
        )
        for (at, length), number in zip(where, phase.reductions, strict=True):
            reduction = self.nest.reductions[number]
            states: list[State] = [
                tuple(out[copy * len(one) + at : copy * len(one) + at + length]) for copy in range(self.copies)
            ]
            while len(states) > 1:
                states = [
                    reductions.merge(self.w, reduction.kind, reduction.dtype, a, b, self.lanes)
                    for a, b in zip(states[::2], states[1::2], strict=True)
                ]
            state = states[0]
            if self.lanes is not None:
                state = reductions.fold_lanes(self.w, reduction.kind, reduction.dtype, state, self.lanes)
            row.results[number] = state[-1]  # for argmin and argmax the position

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
            inside = [(kind, each) for (kind, _), each in zip(carried, now, strict=True)]
            return self._inner_many(moved, loops[1:], inside, body)

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
