"""Lines of LLVM text: types, constants, fresh names, loops.

An *operand* is a string: a name (``%12``) or a constant.  ``lanes`` is None for a single element, else how many a vector
has.  The type of an operand follows from its dtype and lanes, so operands do not carry it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

__all__ = ["ITEMSIZE", "Lanes", "Operand", "Writer", "literal", "mangled", "memory_type", "type_of"]

Operand: TypeAlias = str
Lanes: TypeAlias = int | None

_TYPES: Final = {
    "bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "i8", "uint16": "i16", "uint32": "i32", "uint64": "i64", "float32": "float", "float64": "double",
}  # fmt: skip
ITEMSIZE: Final = {name: np.dtype(name).itemsize for name in _TYPES}


def type_of(dtype: str, lanes: Lanes) -> str:
    """The LLVM type of values; bools are single bits.

    >>> type_of("bool", 8), type_of("float32", None)
    ('<8 x i1>', 'float')
    """
    single = _TYPES[dtype]
    return single if lanes is None else f"<{lanes} x {single}>"


def memory_type(dtype: str, lanes: Lanes) -> str:
    """The LLVM type in memory; bools are bytes."""
    return type_of("int8" if dtype == "bool" else dtype, lanes)


def mangled(dtype: str, lanes: Lanes) -> str:
    """How an intrinsic's name ends.

    >>> mangled("float64", 8), mangled("uint16", None)
    ('v8f64', 'i16')
    """
    single = _TYPES[dtype]
    short = {"float": "f32", "double": "f64"}.get(single, single)
    return short if lanes is None else f"v{lanes}{short}"


def literal(dtype: str, value: Any) -> Operand:
    """A number, exactly: infinities, NaN with its bits, negative zero, denormal numbers.

    >>> literal("float32", 1.5), literal("float64", float("inf")), literal("uint8", 255), literal("bool", True)
    ('0x3FF8000000000000', '0x7FF0000000000000', '-1', 'true')
    """
    kind = np.dtype(dtype).kind
    if kind == "f":
        bits = np.float64(np.dtype(dtype).type(value)).tobytes()  # float32 is written as the double of that value
        return f"0x{struct.unpack('<Q', bits)[0]:016X}"
    if kind == "b":
        return "true" if value else "false"
    width = 8 * ITEMSIZE[dtype]
    number = int(value) & ((1 << width) - 1)
    return str(number - (1 << width) if number >> (width - 1) else number)


class Writer:
    """Gathers the body of one function, the declarations it needs and the outside symbols it calls."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declarations: dict[str, str] = {}
        self.symbols: set[str] = set()
        self._names = 0
        self.block = "entry"

    # Names and instructions.

    def name(self, stem: str = "v") -> str:
        """A fresh name, without its ``%``."""
        self._names += 1
        return f"{stem}{self._names}"

    def do(self, instruction: str) -> None:
        """An instruction without a result."""
        self.lines.append(f"  {instruction}")

    def let(self, instruction: str) -> Operand:
        """An instruction with a result, and its name."""
        name = self.name()
        self.lines.append(f"  %{name} = {instruction}")
        return f"%{name}"

    def call(self, function: str, result: str, args: Sequence[tuple[str, Operand]], attrs: str = "") -> Operand:
        """A call of a function or intrinsic, declared on the way.  ``args`` are (type, operand)."""
        types = ", ".join(kind.split(" align")[0] for kind, _ in args)
        self.declarations[function] = f"declare {result} @{function}({types}){attrs}"
        given = ", ".join(f"{kind} {operand}" for kind, operand in args)
        instruction = f"call {result} @{function}({given})"
        if result == "void":
            self.do(instruction)
            return ""
        return self.let(instruction)

    def outside(self, symbol: str) -> None:
        """Note that ``symbol`` is not LLVM's own, and must be found at link time."""
        self.symbols.add(symbol)

    # Constants and vectors.

    def constant(self, dtype: str, value: Any, lanes: Lanes) -> Operand:
        """A constant, the same in every lane."""
        single = literal(dtype, value)
        return single if lanes is None else f"splat ({_TYPES[dtype]} {single})"

    def splat(self, dtype: str, operand: Operand, lanes: Lanes) -> Operand:
        """A single value in every lane."""
        if lanes is None:
            return operand
        if not operand.startswith("%"):
            return f"splat ({_TYPES[dtype]} {operand})"
        vector = type_of(dtype, lanes)
        first = self.let(f"insertelement {vector} poison, {_TYPES[dtype]} {operand}, i64 0")
        return self.let(f"shufflevector {vector} {first}, {vector} poison, <{lanes} x i32> zeroinitializer")

    def shuffle(self, dtype: str, lanes: int, a: Operand, b: Operand, which: Sequence[int]) -> Operand:
        """Lanes of ``a`` (from 0) and ``b`` (from ``lanes``); one chosen lane gives a single value of no vector type."""
        vector = type_of(dtype, lanes)
        if len(which) == 1:
            source, at = (a, which[0]) if which[0] < lanes else (b, which[0] - lanes)
            return self.let(f"extractelement {vector} {source}, i64 {at}")
        chosen = ", ".join(f"i32 {at}" for at in which)
        return self.let(f"shufflevector {vector} {a}, {vector} {b}, <{len(which)} x i32> <{chosen}>")

    def count(self, dtype: str, lanes: int) -> Operand:
        """The constant 0, 1, 2, ... of an integer dtype."""
        return f"<{', '.join(f'{_TYPES[dtype]} {lane}' for lane in range(lanes))}>"

    # Control.

    def label(self, name: str) -> None:
        """Begin a block."""
        self.lines.append(f"{name}:")
        self.block = name

    def loop(
        self,
        start: Operand,
        stop: Operand,
        step: int,
        carried: Sequence[tuple[str, Operand]],
        body: Callable[[Operand, list[Operand]], Sequence[Operand]],
    ) -> list[Operand]:
        """``for i in range(start, stop, step)``; ``carried`` are (type, first value), renewed by each run of ``body``.

        Tested at the end, after one test before the first run.  Returns what is carried out of it.
        """
        before, head, done = self.block, self.name("loop"), self.name("done")
        some = self.let(f"icmp slt i64 {start}, {stop}")
        self.do(f"br i1 {some}, label %{head}, label %{done}")
        self.label(head)
        index = f"%{self.name('i')}"
        at = len(self.lines)
        inside = [f"%{self.name('c')}" for _ in carried]
        self.lines += [""] * (1 + len(carried))  # the phis, whose last block is not known yet
        renewed = list(body(index, inside))
        following = self.let(f"add i64 {index}, {step}")
        latch = self.block
        more = self.let(f"icmp slt i64 {following}, {stop}")
        self.do(f"br i1 {more}, label %{head}, label %{done}")
        self.lines[at] = f"  {index} = phi i64 [ {start}, %{before} ], [ {following}, %{latch} ]"
        for n, ((kind, first), name, last) in enumerate(zip(carried, inside, renewed, strict=True)):
            self.lines[at + 1 + n] = f"  {name} = phi {kind} [ {first}, %{before} ], [ {last}, %{latch} ]"
        self.label(done)
        out = []
        for (kind, first), last in zip(carried, renewed, strict=True):
            out.append(self.let(f"phi {kind} [ {first}, %{before} ], [ {last}, %{latch} ]"))
        return out

    def repeat(
        self, carried: Sequence[tuple[str, Operand]], body: Callable[[list[Operand]], tuple[Operand, Sequence[Operand]]]
    ) -> list[Operand]:
        """Run ``body`` until the condition (an i1) that it gives first is false.  Returns what is carried out of it."""
        before, head, done = self.block, self.name("loop"), self.name("done")
        self.do(f"br label %{head}")
        self.label(head)
        at = len(self.lines)
        inside = [f"%{self.name('c')}" for _ in carried]
        self.lines += [""] * len(carried)
        more, renewed = body(inside)
        latch = self.block
        self.do(f"br i1 {more}, label %{head}, label %{done}")
        for n, ((kind, first), name, last) in enumerate(zip(carried, inside, renewed, strict=True)):
            self.lines[at + n] = f"  {name} = phi {kind} [ {first}, %{before} ], [ {last}, %{latch} ]"
        self.label(done)
        return list(renewed)

    def only_if(self, condition: Operand, body: Callable[[], None]) -> None:
        """Run ``body`` where the condition (an i1) is true."""
        then, after = self.name("then"), self.name("after")
        self.do(f"br i1 {condition}, label %{then}, label %{after}")
        self.label(then)
        body()
        self.do(f"br label %{after}")
        self.label(after)
