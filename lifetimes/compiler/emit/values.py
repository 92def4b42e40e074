"""The values of a kernel as operands: which are known already, and how the others are computed where they are needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lifetimes.compiler.emit import elementwise, memory, reductions
from lifetimes.compiler.emit.writer import ITEMSIZE, Lanes, Operand, Writer, type_of
from lifetimes.compiler.kernel import ELEMENT, ENTRY, Nest, Store, Value, Words
from lifetimes.compiler.target import Target

__all__ = ["Place", "Values", "lane_count"]


def lane_count(nest: Nest, target: Target) -> int:
    """As many lanes as the widest element has room for in a register, two at least."""
    if nest.lanes == 1:
        return 1
    dtypes = {each.dtype for each in nest.accesses} | {each.dtype for each in nest.values}
    return max(target.registers // max(ITEMSIZE[dtype] for dtype in dtypes), 2)


@dataclass(slots=True)
class Place:
    """Where code is being written: pointers moved so far, and what has been computed here."""

    pointers: list[Operand]
    indices: dict[int, Operand]  # of the values `index`: the sum of the loops so far, without the lanes
    mask: Operand | None = None
    known: dict[int, Operand] = field(default_factory=dict)  # in the form of the place: vectors, or single in a row
    results: dict[int, Operand] = field(default_factory=dict)
    scans: dict[int, Operand] = field(default_factory=dict)  # carried into this step; renewed by it
    row: Place | None = None  # of a vector of elements: where the values of its row are


class Values:
    """Values and places of one kernel.  What is computed goes to the writer ``w``."""

    def __init__(self, nest: Nest, target: Target) -> None:
        self.nest = nest
        self.target = target
        self.w = Writer()
        self.words = Words.of(nest)
        self.levels = nest.levels()
        count = lane_count(nest, target)
        self.lanes: Lanes = count if count > 1 else None
        self.lane_loop = nest.lane_loop
        self.rows: Lanes = self.lanes if nest.lane == "outer" else None  # the form of row values
        self.single: dict[int, Operand] = {}  # entry values, single
        self.spread: dict[int, Operand] = {}  # entry values, in every lane
        self.word: dict[int, Operand] = {}
        self.apart: dict[int, Operand] = {}  # for each access, the distances of the lanes
        self.index_apart: dict[int, Operand] = {}

    def _row_value(self, place: Place, number: int) -> Operand:
        """A value of the row, in the row's form."""
        if self.levels[number] == ENTRY:
            return self.single[number] if self.rows is None else self.spread[number]
        found = place.known.get(number)
        if found is None:
            value = self.nest.values[number]
            found = self._compute(number, value, place, self.rows, lambda arg: self._row_value(place, arg))
            place.known[number] = found
        return found

    def _row_spread(self, place: Place, number: int) -> Operand:
        """A single value of the row in every lane; remembered under the number below zero."""
        key = -1 - number
        if key not in place.known:
            value = self._row_value(place, number)
            place.known[key] = self.w.splat(self.nest.values[number].dtype, value, self.lanes)
        return place.known[key]

    def _compute(self, number: int, value: Value, place: Place, lanes: Lanes, of: Callable[[int], Operand]) -> Operand:
        w = self.w
        if value.op == "load":
            return self._load(value, place, lanes, of)
        if value.op == "scalar":
            return self.word[self.words.scalar[int(value.extra or 0)]]
        if value.op == "const":
            return w.constant(value.dtype, value.extra, lanes)
        if value.op == "index":
            start = w.splat("int64", place.indices[number], lanes)
            apart = self.index_apart.get(number)
            if lanes is None or apart is None:
                return start
            return w.let(f"add <{lanes} x i64> {start}, {apart}")
        if value.op == "result":
            return place.results[int(value.extra or 0)]
        if value.op == "scan":
            return self._scan(number, value, place, lanes, of)
        operands = [of(arg) for arg in value.args]
        if value.op == "cast":
            return elementwise.cast(w, self.nest.values[value.args[0]].dtype, value.dtype, operands[0], lanes)
        dtype = self.nest.values[value.args[-1]].dtype
        return elementwise.emit_row(w, self.target, value.op, dtype, operands, lanes)

    def _scan(self, number: int, value: Value, place: Place, lanes: Lanes, of: Callable[[int], Operand]) -> Operand:
        kind, operand = str(value.extra), of(value.args[0])
        if self.nest.lane == "outer":
            found = reductions.step(self.w, kind, value.dtype, (place.scans[number],), (operand,), lanes, None)[0]
            place.scans[number] = found
            return found
        if place.mask is not None:
            vector = type_of(value.dtype, lanes)
            neutral = reductions.identity(self.w, kind, value.dtype, lanes)[0]
            operand = self.w.let(
                f"select {type_of('bool', lanes)} {place.mask}, {vector} {operand}, {vector} {neutral}"
            )
        found, last = reductions.prefix(self.w, kind, value.dtype, operand, place.scans[number], lanes)
        place.scans[number] = last
        return found

    def _where(
        self, access: int, index: int | None, place: Place, lanes: Lanes, of: Callable[[int], Operand]
    ) -> tuple[Operand, str, Operand]:
        """Pointer, letter of the lane loop and distances of the lanes, an index value taken into account."""
        pointer = place.pointers[access]
        letter = self.nest.accesses[access].steps[self.lane_loop]
        apart = self.apart.get(access, "")
        if index is None:
            return pointer, letter, apart
        factor = self.word[self.words.jump[access]]
        uniform = lanes is None or (self.nest.lane == "inner" and self.levels[index] < ELEMENT)
        if uniform:  # the same jump for all lanes: the pointer jumps
            single = of(index) if lanes is None else self._uniform(place, index)
            moved = memory.moved(self.w, self.nest.accesses[access], pointer, self.w.let(f"mul i64 {single}, {factor}"))
            return moved, letter, apart
        assert lanes is not None, "what is not uniform has lanes"
        jumps = self.w.let(f"mul <{lanes} x i64> {of(index)}, {self.w.splat('int64', factor, lanes)}")
        if letter != "0":
            own = self.w.count("int64", lanes) if letter == "1" else apart
            jumps = self.w.let(f"add <{lanes} x i64> {jumps}, {own}")
        return pointer, "s", jumps

    def _uniform(self, place: Place, index: int) -> Operand:
        return self.single[index] if self.levels[index] == ENTRY else self._row_value(place.row or place, index)

    def _load(self, value: Value, place: Place, lanes: Lanes, of: Callable[[int], Operand]) -> Operand:
        access = int(value.extra or 0)
        index = value.args[0] if value.args else None
        pointer, letter, apart = self._where(access, index, place, lanes, of)
        return memory.load(self.w, self.nest.accesses[access], pointer, letter, apart, lanes, place.mask)

    def _store(self, store: Store, place: Place, lanes: Lanes) -> None:
        self._write(store, place, lanes, lambda number: self._row_value(place, number))

    def _write(self, store: Store, place: Place, lanes: Lanes, of: Callable[[int], Operand]) -> None:
        access = self.nest.accesses[store.access]

        def write() -> None:
            pointer, letter, apart = self._where(store.access, store.index, place, lanes, of)
            value = of(store.value)
            if store.add:
                old = memory.load(self.w, access, pointer, letter, apart, lanes, place.mask)
                value = elementwise.emit_row(self.w, self.target, "add", access.dtype, [old, value], lanes)
            memory.store(self.w, access, pointer, letter, apart, value, lanes, place.mask)

        if store.where is None:
            write()
        else:
            condition, value = of(store.where), of(store.value)
            assert lanes is None, "only single elements are written conditionally"
            assert value, "the value is computed before the branch"
            self.w.only_if(condition, write)
