"""Loads and stores of one access: neighbours, one element for all lanes, or gathered one by one."""

from __future__ import annotations

from typing import Final

from lifetimes.compiler.emit.writer import ITEMSIZE, Lanes, Operand, Writer, mangled, memory_type, type_of
from lifetimes.compiler.kernel import Access

__all__ = ["fetch_ahead", "load", "moved", "store"]

_ALIGN = "align"
AHEAD: Final = 1024
"""Bytes.  A sum of what lies in memory waits for little else, and the processor alone asks for it too late."""
LINE: Final = 64


def moved(w: Writer, access: Access, pointer: Operand, steps: Operand) -> Operand:
    """``pointer``, so many elements further."""
    return w.let(f"getelementptr {memory_type(access.dtype, None)}, ptr {pointer}, i64 {steps}")


def load(
    w: Writer, access: Access, pointer: Operand, letter: str, apart: Operand, lanes: Lanes, mask: Operand | None
) -> Operand:
    """The elements of ``lanes`` lanes from ``pointer`` on: ``apart`` are the lanes' distances where the letter is ``s``.

    Lanes that the mask leaves out are not read, and zero.
    """
    dtype = access.dtype
    single = memory_type(dtype, None)
    align = f"{_ALIGN} {ITEMSIZE[dtype]}"
    if lanes is None or letter == "0":
        return w.splat(dtype, _from_memory(w, dtype, w.let(f"load {single}, ptr {pointer}, {align}"), None), lanes)
    vector, bits = memory_type(dtype, lanes), type_of("bool", lanes)
    if letter == "1":
        if mask is None:
            found = w.let(f"load {vector}, ptr {pointer}, {align}")
        else:
            name = f"llvm.masked.load.{_memory_mangled(dtype, lanes)}.p0"
            found = w.call(name, vector, [(f"ptr {align}", pointer), (bits, mask), (vector, "zeroinitializer")])
        return _from_memory(w, dtype, found, lanes)
    places = w.let(f"getelementptr {single}, ptr {pointer}, <{lanes} x i64> {apart}")
    name = f"llvm.masked.gather.{_memory_mangled(dtype, lanes)}.v{lanes}p0"
    which = w.constant("bool", True, lanes) if mask is None else mask
    given = [(f"<{lanes} x ptr> {align}", places), (bits, which), (vector, "zeroinitializer")]
    return _from_memory(w, dtype, w.call(name, vector, given), lanes)


def fetch_ahead(w: Writer, access: Access, pointer: Operand, count: int) -> None:
    """Ask for what neighbours of ``count`` elements from ``pointer`` on will need soon.  It may lie beyond the array."""
    for at in range(0, count * ITEMSIZE[access.dtype], LINE):
        place = w.let(f"getelementptr i8, ptr {pointer}, i64 {at + AHEAD}")
        w.call("llvm.prefetch.p0", "void", [("ptr", place), ("i32", "0"), ("i32", "3"), ("i32", "1")])


def store(
    w: Writer,
    access: Access,
    pointer: Operand,
    letter: str,
    apart: Operand,
    value: Operand,
    lanes: Lanes,
    mask: Operand | None,
) -> None:
    """Write the lanes that the mask leaves in."""
    dtype = access.dtype
    single = memory_type(dtype, None)
    align = f"{_ALIGN} {ITEMSIZE[dtype]}"
    written = value
    if lanes is not None and letter == "0":  # the loop has one step, so the first lane is the only one
        written, lanes = w.shuffle(dtype, lanes, value, "poison", [0]), None
    if dtype == "bool":
        written = w.let(f"zext {type_of(dtype, lanes)} {written} to {memory_type(dtype, lanes)}")
    if lanes is None:
        w.do(f"store {single} {written}, ptr {pointer}, {align}")
        return
    vector, bits = memory_type(dtype, lanes), type_of("bool", lanes)
    if letter == "1":
        if mask is None:
            w.do(f"store {vector} {written}, ptr {pointer}, {align}")
            return
        name = f"llvm.masked.store.{_memory_mangled(dtype, lanes)}.p0"
        w.call(name, "void", [(vector, written), (f"ptr {align}", pointer), (bits, mask)])
        return
    places = w.let(f"getelementptr {single}, ptr {pointer}, <{lanes} x i64> {apart}")
    name = f"llvm.masked.scatter.{_memory_mangled(dtype, lanes)}.v{lanes}p0"
    which = w.constant("bool", True, lanes) if mask is None else mask
    w.call(name, "void", [(vector, written), (f"<{lanes} x ptr> {align}", places), (bits, which)])


def _from_memory(w: Writer, dtype: str, operand: Operand, lanes: Lanes) -> Operand:
    if dtype != "bool":
        return operand
    zero = w.constant("int8", 0, lanes)
    return w.let(f"icmp ne {memory_type(dtype, lanes)} {operand}, {zero}")


def _memory_mangled(dtype: str, lanes: Lanes) -> str:
    return mangled("int8" if dtype == "bool" else dtype, lanes)
