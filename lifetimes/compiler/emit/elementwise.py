"""The elementwise rows as LLVM instructions, on single elements or on vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from lifetimes.compiler.emit import vectormath
from lifetimes.compiler.emit.writer import ITEMSIZE, Lanes, Operand, Writer, mangled, type_of
from lifetimes.compiler.ops.elementwise import ROWS
from lifetimes.compiler.target import Target
from lifetimes.errors import MissingRule

__all__ = ["cast", "emit_row"]

_KINDS: Final = {"b": "bool", "i": "the signed integers", "u": "the unsigned integers", "f": "the floats"}


def emit_row(w: Writer, target: Target, op: str, dtype: str, args: list[Operand], lanes: Lanes) -> Operand:
    """The row ``op`` of arguments that have ``dtype`` (for `select`: the second).  Errors: `MissingRule`."""
    row = ROWS[op]
    spelling = row.llvm.get(np.dtype(dtype).kind)
    if spelling is None:
        kinds = ", ".join([_KINDS[kind] for kind in row.llvm])
        raise MissingRule(f"{op} does not compute with {dtype} on the target {target.name!r}: cast to one of {kinds}")
    kind = type_of(dtype, lanes)
    if spelling == "copy":
        return args[0]
    if spelling == "select":
        condition = type_of("bool", lanes)
        return w.let(f"select {condition} {args[0]}, {kind} {args[1]}, {kind} {args[2]}")
    if spelling.startswith("libm:"):
        return vectormath.call(w, target, spelling[5:], dtype, args, lanes)
    if spelling.startswith("special:"):
        return _SPECIALS[spelling[8:]](w, target, dtype, args, lanes)
    if spelling.startswith("@"):
        given = [(kind, arg) for arg in args]
        if spelling == "@abs":
            given.append(("i1", "false"))  # the smallest integer is its own absolute value, as in NumPy
        return w.call(f"llvm.{spelling[1:]}.{mangled(dtype, lanes)}", kind, given)
    return w.let(f"{spelling} {kind} {', '.join(args)}")


def cast(w: Writer, source: str, dtype: str, operand: Operand, lanes: Lanes) -> Operand:
    """``operand`` of dtype ``source`` in another dtype, as `numpy.ndarray.astype` does it."""
    if source == dtype:
        return operand
    old, new = type_of(source, lanes), type_of(dtype, lanes)
    was, becomes = np.dtype(source), np.dtype(dtype)
    if becomes.kind == "b":
        compare = "fcmp une" if was.kind == "f" else "icmp ne"
        return w.let(f"{compare} {old} {operand}, {'zeroinitializer' if lanes else w.constant(source, 0, None)}")
    if was.kind == "f" and becomes.kind == "f":
        return w.let(f"{'fpext' if becomes.itemsize > was.itemsize else 'fptrunc'} {old} {operand} to {new}")
    if becomes.kind == "f":
        return w.let(f"{'sitofp' if was.kind == 'i' else 'uitofp'} {old} {operand} to {new}")
    if was.kind == "f":
        return _to_integer(w, source, dtype, operand, lanes)
    if becomes.itemsize < was.itemsize:
        return w.let(f"trunc {old} {operand} to {new}")
    if becomes.itemsize > was.itemsize or was.kind == "b":
        return w.let(f"{'sext' if was.kind == 'i' else 'zext'} {old} {operand} to {new}")
    return operand  # signed and unsigned of one width are one type


def _to_integer(w: Writer, source: str, dtype: str, operand: Operand, lanes: Lanes) -> Operand:
    """What does not fit is open, but some number: `freeze` turns LLVM's poison into one."""
    old = type_of(source, lanes)
    if dtype == "uint64":
        return w.let(f"freeze {type_of(dtype, lanes)} {w.let(f'fptoui {old} {operand} to {type_of(dtype, lanes)}')}")
    wide = "int32" if ITEMSIZE[dtype] < 4 or dtype == "int32" else "int64"
    found = w.let(f"fptosi {old} {operand} to {type_of(wide, lanes)}")
    frozen = w.let(f"freeze {type_of(wide, lanes)} {found}")
    return cast(w, wide, dtype, frozen, lanes)


# Specials.  What they must do is written beside the table of rows.


def _negative(w: Writer, target: Target, dtype: str, args: list[Operand], lanes: Lanes) -> Operand:
    return w.let(f"sub {type_of(dtype, lanes)} {w.constant(dtype, 0, lanes)}, {args[0]}")


def _invert(w: Writer, target: Target, dtype: str, args: list[Operand], lanes: Lanes) -> Operand:
    ones = w.constant(dtype, True if dtype == "bool" else -1, lanes)
    return w.let(f"xor {type_of(dtype, lanes)} {args[0]}, {ones}")


def _shift_left(w: Writer, target: Target, dtype: str, args: list[Operand], lanes: Lanes) -> Operand:
    kind, bits = type_of(dtype, lanes), type_of("bool", lanes)
    zero = w.constant(dtype, 0, lanes)
    inside = w.let(f"icmp ult {kind} {args[1]}, {w.constant(dtype, 8 * ITEMSIZE[dtype], lanes)}")
    distance = w.let(f"select {bits} {inside}, {kind} {args[1]}, {kind} {zero}")
    shifted = w.let(f"shl {kind} {args[0]}, {distance}")
    return w.let(f"select {bits} {inside}, {kind} {shifted}, {kind} {zero}")


def _shift_right(w: Writer, target: Target, dtype: str, args: list[Operand], lanes: Lanes) -> Operand:
    kind, bits = type_of(dtype, lanes), type_of("bool", lanes)
    width = 8 * ITEMSIZE[dtype]
    if np.dtype(dtype).kind == "i":  # shifting all the way leaves the sign, and so does a distance beyond that
        most = w.constant(dtype, width - 1, lanes)
        distance = w.call(f"llvm.umin.{mangled(dtype, lanes)}", kind, [(kind, args[1]), (kind, most)])
        return w.let(f"ashr {kind} {args[0]}, {distance}")
    zero = w.constant(dtype, 0, lanes)
    inside = w.let(f"icmp ult {kind} {args[1]}, {w.constant(dtype, width, lanes)}")
    distance = w.let(f"select {bits} {inside}, {kind} {args[1]}, {kind} {zero}")
    shifted = w.let(f"lshr {kind} {args[0]}, {distance}")
    return w.let(f"select {bits} {inside}, {kind} {shifted}, {kind} {zero}")


def _quotient(w: Writer, dtype: str, a: Operand, b: Operand, lanes: Lanes) -> tuple[Operand, Operand, Operand, Operand]:
    """The quotient and the rest cut off towards zero, the divisor that was used, and whether it really was zero.

    The processor traps on a division by zero and on the smallest integer by -1: both divide by 1 instead, which gives the
    second one's right answer.
    """
    kind, bits = type_of(dtype, lanes), type_of("bool", lanes)
    zero = w.let(f"icmp eq {kind} {b}, {w.constant(dtype, 0, lanes)}")
    unsafe = zero
    signed = np.dtype(dtype).kind == "i"
    if signed:
        smallest = w.let(f"icmp eq {kind} {a}, {w.constant(dtype, np.iinfo(dtype).min, lanes)}")
        minus = w.let(f"icmp eq {kind} {b}, {w.constant(dtype, -1, lanes)}")
        unsafe = w.let(f"or {bits} {zero}, {w.let(f'and {bits} {smallest}, {minus}')}")
    divisor = w.let(f"select {bits} {unsafe}, {kind} {w.constant(dtype, 1, lanes)}, {kind} {b}")
    if ITEMSIZE[dtype] < 8 and lanes:
        # No vector unit divides integers, but doubles hold the quotients of 32-bit numbers well enough: a quotient that
        # is no integer is further from the next one than the rounding of the division.
        real = type_of("float64", lanes)
        up = [cast(w, dtype, "float64", each, lanes) for each in (a, divisor)]
        exact = w.let(f"fdiv {real} {up[0]}, {up[1]}")
        wide = "int64" if dtype == "uint32" else "int32"
        quotient = cast(w, wide, dtype, w.let(f"fptosi {real} {exact} to {type_of(wide, lanes)}"), lanes)
    else:
        quotient = w.let(f"{'sdiv' if signed else 'udiv'} {kind} {a}, {divisor}")
    rest = w.let(f"sub {kind} {a}, {w.let(f'mul {kind} {quotient}, {divisor}')}")
    return quotient, rest, divisor, zero


def _rounded_up(w: Writer, dtype: str, rest: Operand, divisor: Operand, lanes: Lanes) -> Operand:
    """Whether cutting off rounded up: there is a rest, and its sign is not the divisor's."""
    kind, bits = type_of(dtype, lanes), type_of("bool", lanes)
    some = w.let(f"icmp ne {kind} {rest}, {w.constant(dtype, 0, lanes)}")
    mixed = w.let(f"icmp slt {kind} {w.let(f'xor {kind} {rest}, {divisor}')}, {w.constant(dtype, 0, lanes)}")
    return w.let(f"and {bits} {some}, {mixed}")


def _floor_divide(w: Writer, target: Target, dtype: str, args: list[Operand], lanes: Lanes) -> Operand:
    if np.dtype(dtype).kind == "f":
        return _divmod(w, target, dtype, args, lanes)[0]
    kind, bits = type_of(dtype, lanes), type_of("bool", lanes)
    quotient, rest, divisor, zero = _quotient(w, dtype, args[0], args[1], lanes)
    if np.dtype(dtype).kind == "i":
        up = _rounded_up(w, dtype, rest, divisor, lanes)
        quotient = w.let(f"add {kind} {quotient}, {w.let(f'sext {bits} {up} to {kind}')}")  # true is -1
    return w.let(f"select {bits} {zero}, {kind} {w.constant(dtype, 0, lanes)}, {kind} {quotient}")


def _remainder(w: Writer, target: Target, dtype: str, args: list[Operand], lanes: Lanes) -> Operand:
    if np.dtype(dtype).kind == "f":
        return _divmod(w, target, dtype, args, lanes)[1]
    kind, bits = type_of(dtype, lanes), type_of("bool", lanes)
    none = w.constant(dtype, 0, lanes)
    _, rest, divisor, zero = _quotient(w, dtype, args[0], args[1], lanes)
    if np.dtype(dtype).kind == "i":
        up = _rounded_up(w, dtype, rest, divisor, lanes)
        rest = w.let(f"add {kind} {rest}, {w.let(f'select {bits} {up}, {kind} {divisor}, {kind} {none}')}")
    return w.let(f"select {bits} {zero}, {kind} {none}, {kind} {rest}")


def _divmod(w: Writer, target: Target, dtype: str, args: list[Operand], lanes: Lanes) -> tuple[Operand, Operand]:
    """NumPy's division of floats with remainder (``npy_divmod``), in selects instead of branches."""
    a, b = args
    kind, bits = type_of(dtype, lanes), type_of("bool", lanes)
    zero, one = w.constant(dtype, 0.0, lanes), w.constant(dtype, 1.0, lanes)

    def choose(condition: Operand, chosen: Operand, other: Operand) -> Operand:
        return w.let(f"select {bits} {condition}, {kind} {chosen}, {kind} {other}")

    def copysign(size: Operand, sign: Operand) -> Operand:
        return w.call(f"llvm.copysign.{mangled(dtype, lanes)}", kind, [(kind, size), (kind, sign)])

    rest = vectormath.call(w, target, "fmod", dtype, args, lanes)
    ratio = w.let(f"fdiv {kind} {a}, {b}")
    quotient = w.let(f"fdiv {kind} {w.let(f'fsub {kind} {a}, {rest}')}, {b}")
    some = w.let(f"fcmp une {kind} {rest}, {zero}")
    below = w.let(f"fcmp olt {kind} {b}, {zero}")
    mixed = w.let(f"xor {bits} {below}, {w.let(f'fcmp olt {kind} {rest}, {zero}')}")
    correct = w.let(f"and {bits} {some}, {mixed}")
    quotient = choose(correct, w.let(f"fsub {kind} {quotient}, {one}"), quotient)
    signed_zero = copysign(zero, b)
    corrected = choose(correct, w.let(f"fadd {kind} {rest}, {b}"), choose(some, rest, signed_zero))
    floor = w.call(f"llvm.floor.{mangled(dtype, lanes)}", kind, [(kind, quotient)])
    over = w.let(f"fcmp ogt {kind} {w.let(f'fsub {kind} {quotient}, {floor}')}, {w.constant(dtype, 0.5, lanes)}")
    nearest = choose(over, w.let(f"fadd {kind} {floor}, {one}"), floor)
    not_zero = w.let(f"fcmp une {kind} {quotient}, {zero}")
    result = choose(not_zero, nearest, copysign(zero, ratio))
    by_zero = w.let(f"fcmp oeq {kind} {b}, {zero}")
    return choose(by_zero, ratio, result), choose(by_zero, rest, corrected)


def _pow(w: Writer, target: Target, dtype: str, args: list[Operand], lanes: Lanes) -> Operand:
    """Integers, by squaring, for as long as any lane's exponent has bits left."""
    kind, bits = type_of(dtype, lanes), type_of("bool", lanes)
    base, exponent = args
    zero, one = w.constant(dtype, 0, lanes), w.constant(dtype, 1, lanes)
    signed = np.dtype(dtype).kind == "i"
    below = w.let(f"icmp slt {kind} {exponent}, {zero}") if signed else ""
    left = w.let(f"select {bits} {below}, {kind} {zero}, {kind} {exponent}") if signed else exponent

    def square(now: list[Operand]) -> tuple[Operand, list[Operand]]:
        power, square, left = now
        odd = w.let(f"icmp ne {kind} {w.let(f'and {kind} {left}, {one}')}, {zero}")
        power = w.let(f"select {bits} {odd}, {kind} {w.let(f'mul {kind} {power}, {square}')}, {kind} {power}")
        square = w.let(f"mul {kind} {square}, {square}")
        left = w.let(f"lshr {kind} {left}, {one}")
        any_left = left
        if lanes is not None:
            any_left = w.call(f"llvm.vector.reduce.or.{mangled(dtype, lanes)}", type_of(dtype, None), [(kind, left)])
        return w.let(f"icmp ne {type_of(dtype, None)} {any_left}, 0"), [power, square, left]

    power = w.repeat([(kind, one), (kind, base), (kind, left)], square)[0]
    if not signed:
        return power
    # One over the power, cut off: only 1 and -1 have one that is not zero.
    odd = w.let(f"icmp ne {kind} {w.let(f'and {kind} {exponent}, {one}')}, {zero}")
    minus = w.constant(dtype, -1, lanes)
    alternating = w.let(f"select {bits} {odd}, {kind} {minus}, {kind} {one}")
    is_one = w.let(f"icmp eq {kind} {base}, {one}")
    is_minus = w.let(f"icmp eq {kind} {base}, {minus}")
    inverse = w.let(f"select {bits} {is_minus}, {kind} {alternating}, {kind} {zero}")
    inverse = w.let(f"select {bits} {is_one}, {kind} {one}, {kind} {inverse}")
    return w.let(f"select {bits} {below}, {kind} {inverse}, {kind} {power}")


_SPECIALS: Final[dict[str, Callable[[Writer, Target, str, list[Operand], Lanes], Operand]]] = {
    "floor_divide": _floor_divide,
    "invert": _invert,
    "negative": _negative,
    "pow": _pow,
    "remainder": _remainder,
    "shift_left": _shift_left,
    "shift_right": _shift_right,
}
