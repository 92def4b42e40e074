"""Kernels: loop nests over elements, which is all that an emitter sees.

A `Nest` has *outer* loops, which are parallel, and *inner* loops inside them.  One loop is the *lane* loop, which takes
several steps at once: the last inner one, or the last outer one.  Memory is reached by an `Access`, which says for each
loop how its address moves: not at all (``0``), to the next element (``1``, in the lane loop only), or by a stride that is
told at run time (``s``).  Lengths are told at run time, too, so a kernel serves every size and many ranks.

A nest computes, for every step of the outer loops:

    for each phase:  run the inner loops; reduce into the phase's accumulators, and do its stores for each element
    at the end:      do the stores of the row, once for the step of the outer loops

A value has a *level*, found by `levels`: ``entry`` (the same everywhere), ``row`` (one for each step of the outer loops; what
earlier phases reduced is of this kind) or ``element``.  Values are computed where they are needed, and computed anew in
each phase that needs them: arithmetic is cheap beside memory.

The text of a nest (`text`) says everything about it: equal texts are equal machine code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

__all__ = [
    "ELEMENT",
    "ENTRY",
    "ROW",
    "Access",
    "Level",
    "Nest",
    "Phase",
    "Reduction",
    "Store",
    "Value",
    "Words",
    "text",
]

Level: TypeAlias = Literal[0, 1, 2]
ENTRY: Final = 0
ROW: Final = 1
ELEMENT: Final = 2


@dataclass(frozen=True, slots=True)
class Access:
    """Where elements lie: a pointer, and a letter (``0``, ``1``, ``s``) for each loop, the outer ones first.

    ``jump`` says that an index value moves it as well, by a stride that is told at run time.
    """

    dtype: str
    steps: str
    jump: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """One value.  ``args`` are numbers of earlier values.

    ========  ====================  ====================================================================
    op        extra                 what it is
    ========  ====================  ====================================================================
    load      access                an element of memory; where the access jumps, ``args[0]`` is the index
    scalar    number                a number told at run time
    const     Python literal        a number that stands in the code
    index     steps                 int64: a start, plus a factor for each loop (``1``: the factor is 1)
    result    reduction             what that reduction came to
    scan      kind                  running ``sum`` or ``prod`` of ``args[0]`` along the innermost loop
    cast                            ``args[0]`` in another dtype
    (row)                           a row of the table of elementwise operations
    ========  ====================  ====================================================================
    """

    op: str
    args: tuple[int, ...]
    dtype: str
    extra: str | int | bool | float | None = None


@dataclass(frozen=True, slots=True)
class Reduction:
    """``kind`` as in the graph; ``args`` are the value, and for ``argmin`` and ``argmax`` its position (int64)."""

    kind: str
    args: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Store:
    """Write ``value``; ``add`` adds to what is there.  ``index`` moves a jumping access; ``where`` (a bool) may forbid it."""

    access: int
    value: int
    add: bool = False
    index: int | None = None
    where: int | None = None


@dataclass(frozen=True, slots=True)
class Phase:
    """One run of the inner loops."""

    reductions: tuple[int, ...] = ()
    stores: tuple[Store, ...] = ()


@dataclass(frozen=True, slots=True)
class Nest:
    """One kernel.  ``lanes`` is 0 for as many as suit the target, or 1 where order matters."""

    outer: int
    inner: int
    lane: Literal["inner", "outer"]
    accesses: tuple[Access, ...]
    values: tuple[Value, ...]
    reductions: tuple[Reduction, ...] = ()
    phases: tuple[Phase, ...] = ()
    stores: tuple[Store, ...] = ()
    scalars: tuple[str, ...] = ()
    lanes: Literal[0, 1] = 0

    @property
    def lane_loop(self) -> int:
        """The number of the lane loop, among all loops."""
        return self.outer - 1 if self.lane == "outer" else self.outer + self.inner - 1

    def levels(self) -> list[Level]:
        """The level of each value."""
        found: list[Level] = []
        for value in self.values:
            level: Level = max((found[arg] for arg in value.args), default=ENTRY)
            if value.op in ("load", "index"):
                steps = self.accesses[int(value.extra or 0)].steps if value.op == "load" else str(value.extra)
                if set(steps[self.outer :]) - {"0"}:
                    level = ELEMENT
                elif set(steps) - {"0"} or value.op == "load":  # memory is read no earlier than the row needs it
                    level = max(level, ROW)
            elif value.op == "scan":
                level = ELEMENT
            elif value.op == "result":
                level = ROW
            found.append(level)
        return found


@dataclass(slots=True)
class Words:
    """The arguments of a kernel, each one word of 64 bits: what stands where.  Emitter and launcher both read it."""

    pointer: list[int] = field(default_factory=list)
    """For each access."""
    size: list[int] = field(default_factory=list)
    """For each loop."""
    stride: dict[tuple[int, int], int] = field(default_factory=dict)
    """For (access, loop) where the letter is ``s``, in elements."""
    jump: dict[int, int] = field(default_factory=dict)
    """For each access that jumps, in elements."""
    start: dict[int, int] = field(default_factory=dict)
    """For each value ``index``."""
    factor: dict[tuple[int, int], int] = field(default_factory=dict)
    """For (value ``index``, loop) where the letter is ``s``."""
    scalar: list[int] = field(default_factory=list)
    """For each scalar: its bits, at the low end of the word."""
    count: int = 0

    @classmethod
    def of(cls, nest: Nest) -> Words:
        """The arguments of that kernel."""
        words = cls()
        # What differs from call to call comes first: addresses, then scalars.
        words.pointer = [words._next() for _ in nest.accesses]
        words.scalar = [words._next() for _ in nest.scalars]
        for number, access in enumerate(nest.accesses):
            for loop, letter in enumerate(access.steps):
                if letter == "s":
                    words.stride[number, loop] = words._next()
            if access.jump:
                words.jump[number] = words._next()
        words.size = [words._next() for _ in range(nest.outer + nest.inner)]
        for number, value in enumerate(nest.values):
            if value.op == "index":
                words.start[number] = words._next()
                for loop, letter in enumerate(str(value.extra)):
                    if letter == "s":
                        words.factor[number, loop] = words._next()
        return words

    def _next(self) -> int:
        self.count += 1
        return self.count - 1


def text(nest: Nest) -> str:
    """The kernel in words; complete, so that it can be the key of a cache.

    >>> nest = Nest(0, 1, "inner", (Access("float64", "1"), Access("float64", "1")),
    ...             (Value("load", (), "float64", 0), Value("sin", (0,), "float64")),
    ...             phases=(Phase(stores=(Store(1, 1),)),))
    >>> print(text(nest))
    kernel: 0 outer, 1 inner, lanes in the inner
      a0: float64[1]
      a1: float64[1]
      v0: float64 = load a0
      v1: float64 = sin v0
      for each element:
        a1 <- v1
    """
    return "\n".join(_lines(nest))


def _lines(nest: Nest) -> Iterator[str]:
    single = ", one at a time" if nest.lanes == 1 else ""
    yield f"kernel: {nest.outer} outer, {nest.inner} inner, lanes in the {nest.lane}{single}"
    for number, access in enumerate(nest.accesses):
        yield f"  a{number}: {access.dtype}[{' '.join(access.steps)}]{' jumps' if access.jump else ''}"
    for number, dtype in enumerate(nest.scalars):
        yield f"  s{number}: {dtype}"
    for number, value in enumerate(nest.values):
        operands = ["v" + str(arg) for arg in value.args]
        if value.op in ("load", "scalar", "result"):
            operands.insert(0, f"{ {'load': 'a', 'scalar': 's', 'result': 'r'}[value.op] }{value.extra}")
        elif value.extra is not None:
            operands.append(repr(value.extra))
        yield f"  v{number}: {value.dtype} = {' '.join([value.op, *operands])}"
    for phase in nest.phases:
        yield "  for each element:"
        for number in phase.reductions:
            reduction = nest.reductions[number]
            yield f"    r{number}: {reduction.dtype} = {reduction.kind} {' '.join(f'v{arg}' for arg in reduction.args)}"
        yield from (f"    {_store(store)}" for store in phase.stores)
    if nest.stores:
        yield "  for each row:"
        yield from (f"    {_store(store)}" for store in nest.stores)


def _store(store: Store) -> str:
    where = "" if store.where is None else f" where v{store.where}"
    at = "" if store.index is None else f" at v{store.index}"
    return f"a{store.access}{at} {'+=' if store.add else '<-'} v{store.value}{where}"
