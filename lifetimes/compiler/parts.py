"""Long reductions in parts.

A reduction of very many elements to one value is done in parts of equal size, whatever the number of threads, which a second
small kernel reduces: so the result does not depend on who computed it, and the error of a long sum stays small.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lifetimes.compiler.bound import Bound
from lifetimes.compiler.kernel import ELEMENT, Access, Phase, Reduction, Store, Value
from lifetimes.compiler.passes.groups import Buffer

__all__ = ["LONG", "PART", "in_parts", "is_long"]

PART: Final = 65536
"""Elements of one part."""
LONG: Final = 8 * PART
"""Reductions of more elements have parts."""


def is_long(kernel: Bound) -> bool:
    """Whether a kernel reduces so much to one value that it is done in parts."""
    nest = kernel.nest
    elements = 1
    for size in kernel.sizes:
        elements *= size
    return (
        bool(nest.reductions)
        and not nest.outer
        and len(nest.phases) == 1
        and elements > LONG
        and not any(each.kind.startswith("arg") for each in nest.reductions)
    )


def in_parts(kernel: Bound, buffers: list[Buffer]) -> list[tuple[Bound, ...]]:
    """A kernel that reduces parts (those of full length, and the last one), and one that reduces what it found."""
    nest = kernel.nest
    first, rest = kernel.sizes[0], 1
    for size in kernel.sizes[1:]:
        rest *= size
    length = max(PART // max(rest, 1), 1)
    full, left = divmod(first, length)
    parts = full + bool(left)
    begin = len(buffers)
    buffers += [Buffer(each.dtype, parts) for each in nest.reductions]

    # The first loop becomes two: which part, and where in it.
    def split(moves: tuple[int, ...]) -> tuple[int, ...]:
        return (moves[0] * length, *moves)

    def steps(letters: str, moves: tuple[int, ...]) -> str:
        return ("s" if moves[0] else "0") + letters

    accesses = [
        replace(access, steps=steps(access.steps, moves))
        for access, moves in zip(nest.accesses, kernel.strides, strict=True)
    ]
    row_stores = {store.access for store in nest.stores}
    factors = dict(kernel.factors)
    values = [
        replace(value, extra=steps(str(value.extra), factors[number])) if value.op == "index" else value
        for number, value in enumerate(nest.values)
    ]
    stores = []
    loops = len(kernel.sizes) + 1
    for number, reduction in enumerate(nest.reductions):
        values.append(Value("result", (), reduction.dtype, number))
        stores.append(Store(len(accesses), len(values) - 1))
        accesses.append(Access(reduction.dtype, "s" + "0" * (loops - 1)))
    pointers = (*kernel.pointers, *[(begin + number, 0) for number in range(len(nest.reductions))])
    strides = (*[split(each) for each in kernel.strides], *[(1, *[0] * (loops - 1)) for _ in nest.reductions])
    partial = Bound(
        replace(nest, outer=1, accesses=tuple(accesses), values=tuple(values), stores=tuple(stores)),
        (full, length, *kernel.sizes[1:]),
        pointers,
        strides,
        (*[at for at in kernel.written if at not in row_stores], *range(len(nest.accesses), len(accesses))),
        kernel.jumps,
        kernel.starts,
        tuple([(value, split(each)) for value, each in kernel.factors]),
        kernel.scalars,
    )
    found = [partial] if full else []
    if left:
        found.append(partial.part(0, full, 1).part(1, 0, left))
    return [tuple(map(_trimmed, found)), (_trimmed(_joined(kernel, begin, parts)),)]


def _joined(kernel: Bound, begin: int, parts: int) -> Bound:
    """Reduce the parts' results, then do for the one row what was to be done."""
    nest = kernel.nest
    accesses = [replace(access, steps="0") for access in nest.accesses]
    values = list(nest.values)
    reductions = []
    for number, reduction in enumerate(nest.reductions):
        values.append(Value("load", (), reduction.dtype, len(accesses)))
        accesses.append(Access(reduction.dtype, "1"))
        reductions.append(Reduction(reduction.kind, (len(values) - 1,), reduction.dtype))
        assert nest.phases[0].reductions[number] == number
    levels = nest.levels()
    # What was an element is not needed here any more; a constant in its place keeps the numbers.
    values[: len(levels)] = [
        Value("const", (), value.dtype, 0)
        if level == ELEMENT
        else replace(value, extra="0")
        if value.op == "index"
        else value
        for value, level in zip(nest.values, levels, strict=True)
    ]
    pointers = (*kernel.pointers, *[(begin + number, 0) for number in range(len(reductions))])
    return Bound(
        replace(
            nest,
            outer=0,
            inner=1,
            lane="inner",
            accesses=tuple(accesses),
            values=tuple(values),
            reductions=tuple(reductions),
            phases=(Phase(tuple(range(len(reductions)))),),
        ),
        (parts,),
        pointers,
        (*[(0,) for _ in nest.accesses], *[(1,) for _ in reductions]),
        tuple([store.access for store in nest.stores]),
        kernel.jumps,
        kernel.starts,
        tuple([(value, (0,)) for value, _ in kernel.factors]),
        kernel.scalars,
    )


def _trimmed(kernel: Bound) -> Bound:
    """Without values, accesses and scalars that nothing needs."""
    nest = kernel.nest
    roots = [arg for phase in nest.phases for r in phase.reductions for arg in nest.reductions[r].args]
    every = [store for phase in nest.phases for store in phase.stores] + list(nest.stores)
    for store in every:
        roots += [each for each in (store.value, store.index, store.where) if each is not None]
    used: set[int] = set()
    while roots:
        number = roots.pop()
        if number not in used:
            used.add(number)
            roots += nest.values[number].args
    value_at = {old: new for new, old in enumerate(sorted(used))}
    touched = {store.access for store in every}
    touched |= {int(nest.values[number].extra or 0) for number in used if nest.values[number].op == "load"}
    access_at = {old: new for new, old in enumerate(sorted(touched))}
    kept = {int(nest.values[number].extra or 0) for number in used if nest.values[number].op == "scalar"}
    scalar_at = {old: new for new, old in enumerate(sorted(kept))}

    def renamed(value: Value) -> Value:
        extra = value.extra
        if value.op == "load":
            extra = access_at[int(extra or 0)]
        elif value.op == "scalar":
            extra = scalar_at[int(extra or 0)]
        return Value(value.op, tuple([value_at[arg] for arg in value.args]), value.dtype, extra)

    def moved(store: Store) -> Store:
        index = None if store.index is None else value_at[store.index]
        where = None if store.where is None else value_at[store.where]
        return Store(access_at[store.access], value_at[store.value], store.add, index, where)

    reductions = [
        Reduction(each.kind, tuple([value_at[arg] for arg in each.args]), each.dtype) for each in nest.reductions
    ]
    return Bound(
        replace(
            nest,
            accesses=tuple([nest.accesses[at] for at in access_at]),
            values=tuple([renamed(nest.values[at]) for at in value_at]),
            reductions=tuple(reductions),
            phases=tuple([Phase(each.reductions, tuple(map(moved, each.stores))) for each in nest.phases]),
            stores=tuple(map(moved, nest.stores)),
            scalars=tuple([nest.scalars[at] for at in scalar_at]),
        ),
        kernel.sizes,
        tuple([kernel.pointers[at] for at in access_at]),
        tuple([kernel.strides[at] for at in access_at]),
        tuple([access_at[at] for at in kernel.written if at in access_at]),
        tuple([(access_at[at], jump) for at, jump in kernel.jumps if at in access_at]),
        tuple([(value_at[at], start) for at, start in kernel.starts if at in value_at]),
        tuple([(value_at[at], each) for at, each in kernel.factors if at in value_at]),
        tuple([kernel.scalars[at] for at in scalar_at]),
    )
