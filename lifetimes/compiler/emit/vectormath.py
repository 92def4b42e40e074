"""Mathematical functions of vectors: glibc's libmvec where it has them, else the C library's, lane by lane.

LLVM's own choice of a vector library cannot be set through llvmlite, so the entry points are called by name.  They are
named ``_ZGV<set>N<lanes>v<v...>_<function>``, where the set is ``b`` for SSE, ``d`` for AVX2 and ``e`` for AVX-512 (the x86-64
vector function ABI).  Their results are within 4 units in the last place.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from functools import cache
from typing import Final

from lifetimes.compiler.emit.writer import ITEMSIZE, Lanes, Operand, Writer, type_of
from lifetimes.compiler.target import Target, libmvec

__all__ = ["address", "call"]

_REGISTERS: Final = {"b": 16, "d": 32, "e": 64}
_IN_VECTORS: Final = frozenset(
    [
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "exp",
        "exp2",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
        "cbrt",
        "erf",
        "erfc",
        "pow",
        "atan2",
        "hypot",
    ]
)


@cache
def _libm() -> ctypes.CDLL:
    return ctypes.CDLL(ctypes.util.find_library("m"))


@cache
def address(symbol: str) -> int:
    """Where a function of the C library is.  Errors: `AttributeError` when there is none of that name."""
    library = libmvec() if symbol.startswith("_ZGV") else _libm()
    found = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
    assert found is not None, "a function that was found has an address"
    return found


@cache
def _has(symbol: str) -> bool:
    try:
        return bool(address(symbol))
    except AttributeError:
        return False


def call(w: Writer, target: Target, function: str, dtype: str, args: list[Operand], lanes: Lanes) -> Operand:
    """``function`` (as the C library calls it for doubles) of each lane."""
    name = function + "f" if dtype == "float32" else function
    if lanes is None:
        return _single(w, name, dtype, args)
    found = _vector(target, function, name, dtype, len(args), lanes)
    if found is None:
        vector, kind = type_of(dtype, lanes), type_of(dtype, None)
        result = "poison"
        for lane in range(lanes):
            each = [w.let(f"extractelement {vector} {arg}, i64 {lane}") for arg in args]
            one = _single(w, name, dtype, each)
            result = w.let(f"insertelement {vector} {result}, {kind} {one}, i64 {lane}")
        return result
    symbol, width = found
    return _in_pieces(w, symbol, width, dtype, args, lanes)


def _single(w: Writer, name: str, dtype: str, args: list[Operand]) -> Operand:
    kind = type_of(dtype, None)
    w.outside(name)
    return w.call(name, kind, [(kind, arg) for arg in args])


def _vector(target: Target, function: str, name: str, dtype: str, arity: int, lanes: int) -> tuple[str, int] | None:
    """The entry point that fits best, and its lanes: the widest that is no wider than the vector, else the narrowest."""
    if function not in _IN_VECTORS:
        return None
    best: tuple[str, int] | None = None
    for letter in target.maths:  # widest first
        width = _REGISTERS[letter] // ITEMSIZE[dtype]
        symbol = f"_ZGV{letter}N{width}{'v' * arity}_{name}"
        if not _has(symbol):
            continue
        best = (symbol, width)
        if width <= lanes:
            break
    return best


def _in_pieces(w: Writer, symbol: str, width: int, dtype: str, args: list[Operand], lanes: int) -> Operand:
    """The function on a vector of another width: padded if it is narrower, cut up if it is wider."""
    w.outside(symbol)
    piece = type_of(dtype, width)
    if lanes == width:
        return w.call(symbol, piece, [(piece, arg) for arg in args])
    vector = type_of(dtype, lanes)
    results: list[Operand] = []
    for start in range(0, lanes, width):
        # Padding repeats the first lane: what is computed for it is not slower and not looked at.
        which = [lane if lane < lanes else 0 for lane in range(start, start + width)]
        chosen = ", ".join(f"i32 {lane}" for lane in which)
        given = [w.let(f"shufflevector {vector} {arg}, {vector} poison, <{width} x i32> <{chosen}>") for arg in args]
        results.append(w.call(symbol, piece, [(piece, each) for each in given]))
    joined, have = results[0], width
    for each in results[1:]:
        # Both sides must have one width: the new piece is widened first.
        wide = type_of(dtype, have)
        at = ", ".join(f"i32 {lane}" if lane < width else "i32 poison" for lane in range(have))
        grown = each
        if have != width:
            grown = w.let(f"shufflevector {piece} {each}, {piece} poison, <{have} x i32> <{at}>")
        at = ", ".join(f"i32 {lane}" for lane in [*range(have), *range(have, have + width)])
        joined = w.let(f"shufflevector {wide} {joined}, {wide} {grown}, <{have + width} x i32> <{at}>")
        have += width
    if have != lanes:
        cut = ", ".join(f"i32 {lane}" for lane in range(lanes))
        wide = type_of(dtype, have)
        joined = w.let(f"shufflevector {wide} {joined}, {wide} poison, <{lanes} x i32> <{cut}>")
    return joined
