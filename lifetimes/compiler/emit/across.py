"""Reductions across rows: the lanes beside each other, every row elsewhere in memory.

Note [Blocks].  Accumulators in registers take a narrow strip of columns, so memory would be read in short pieces.  A light
kernel of one phase therefore keeps its accumulators in memory, for a block of columns that fits the first cache, and
goes through a few rows at a time: memory is read in long runs, and each accumulator is fetched once for several rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from lifetimes.compiler.emit import reductions
from lifetimes.compiler.emit.llvm import Emitter
from lifetimes.compiler.emit.values import Place
from lifetimes.compiler.emit.writer import ITEMSIZE, Operand, type_of
from lifetimes.compiler.kernel import ELEMENT, Nest
from lifetimes.compiler.target import Target

__all__ = ["Blocks", "is_blocked"]

BLOCK: Final = 8192
"""Bytes of the accumulators of one reduction, at most."""
ROWS: Final = 4
LIGHT: Final = 8
"""Values that a kernel may compute for an element."""


def is_blocked(nest: Nest) -> bool:
    """Whether a kernel is one for blocks (Note [Blocks])."""
    return (
        nest.lane == "outer"
        and nest.lanes == 0
        and nest.inner == 1
        and len(nest.phases) == 1
        and not nest.phases[0].stores
        and 0 < len(nest.reductions) <= 2
        and not any(value.op == "scan" for value in nest.values)
        and not any(each.kind.startswith("arg") or each.dtype == "bool" for each in nest.reductions)
        and sum(level == ELEMENT for level in nest.levels()) <= LIGHT
    )


class Blocks(Emitter):
    """Writes such a kernel."""

    def __init__(self, nest: Nest, target: Target) -> None:
        super().__init__(nest, target)
        self.width = lanes = self.lanes or 1
        self.block = max(BLOCK // max(ITEMSIZE[each.dtype] for each in nest.reductions), lanes)
        self.scratch: list[Operand] = []

    def _begin(self) -> None:
        super()._begin()
        for each in self.nest.reductions:
            self.scratch.append(self.w.let(f"alloca [{self.block} x {type_of(each.dtype, None)}], align 64"))

    def _row(self, place: Place) -> None:
        size = self.word[self.words.size[self.lane_loop]]
        self.w.loop("0", size, self.block, [], lambda begin, _: self._one_block(place, size, begin))

    def _one_block(self, place: Place, size: Operand, begin: Operand) -> list[Operand]:
        w = self.w
        left = w.let(f"sub i64 {size}, {begin}")
        width = w.call("llvm.smin.i64", "i64", [("i64", left), ("i64", str(self.block))])
        self._over(width, self._reset)
        rows = self.word[self.words.size[self.nest.outer]]
        full = w.let(f"and i64 {rows}, {-ROWS}")
        take = partial(self._take_rows, place, begin, width)
        w.loop("0", full, ROWS, [], lambda row, _: take(row, ROWS))
        w.loop(full, rows, 1, [], lambda row, _: take(row, 1))
        self._over(width, partial(self._finish, place, begin))
        return []

    def _over(self, width: Operand, body: Callable[[Operand, Operand | None], None]) -> None:
        """All vectors of a block, the last one masked."""
        w = self.w
        full = w.let(f"and i64 {width}, {-self.width}")

        def whole(at: Operand, _: list[Operand]) -> list[Operand]:
            body(at, None)
            return []

        def masked(at: Operand, _: list[Operand]) -> list[Operand]:
            body(at, self._mask_of(w.let(f"sub i64 {width}, {at}")))
            return []

        w.loop("0", full, self.width, [], whole)
        w.loop(full, width, self.width, [], masked)

    def _accumulator(self, number: int, at: Operand) -> Operand:
        single = type_of(self.nest.reductions[number].dtype, None)
        return self.w.let(f"getelementptr {single}, ptr {self.scratch[number]}, i64 {at}")

    def _load_state(self, number: int, at: Operand) -> Operand:
        vector = type_of(self.nest.reductions[number].dtype, self.lanes)
        return self.w.let(f"load {vector}, ptr {self._accumulator(number, at)}, align 8")

    def _store_state(self, number: int, at: Operand, state: Operand) -> None:
        vector = type_of(self.nest.reductions[number].dtype, self.lanes)
        self.w.do(f"store {vector} {state}, ptr {self._accumulator(number, at)}, align 8")

    def _reset(self, at: Operand, mask: Operand | None) -> None:
        for number, each in enumerate(self.nest.reductions):
            self._store_state(number, at, reductions.identity(self.w, each.kind, each.dtype, self.lanes)[0])

    def _column(self, place: Place, begin: Operand, at: Operand, mask: Operand | None) -> Place:
        found = self._moved(place, self.lane_loop, self.w.let(f"add i64 {begin}, {at}"))
        found.mask = mask
        return found

    def _take_rows(self, place: Place, begin: Operand, width: Operand, row: Operand, count: int) -> list[Operand]:
        self._over(width, partial(self._take, place, begin, row, count))
        return []

    def _take(self, place: Place, begin: Operand, row: Operand, count: int, at: Operand, mask: Operand | None) -> None:
        """Reduce one vector of a few rows."""
        phase = self.nest.phases[0]
        column = self._column(place, begin, at, mask)
        now = [self._load_state(number, at) for number in phase.reductions]
        where = [(n, 1) for n in range(len(now))]
        for step in range(count):
            here = row if not step else self.w.let(f"add i64 {row}, {step}")
            element = self._moved(column, self.nest.outer, here)
            element.mask = mask
            self._element(phase, element, column, now, 0, where, self.lanes)
        for number, state in zip(phase.reductions, now, strict=True):
            self._store_state(number, at, state)

    def _finish(self, place: Place, begin: Operand, at: Operand, mask: Operand | None) -> None:
        column = self._column(place, begin, at, mask)
        for number in self.nest.phases[0].reductions:
            column.results[number] = self._load_state(number, at)
        for store in self.nest.stores:
            self._store(store, column, self.rows)
