"""The elementwise operations: one row each.

Contract of a node whose operation is a row: all arguments have the node's shape; all have one dtype (`select` has a
condition of ``bool`` first), which the node has too, or ``bool`` for a comparison.  Conversions and broadcasts are nodes
of their own, so an emitter converts nothing.

**Spellings for LLVM**, by kind of the arguments' dtype (for `select`: of the second); a kind that is missing is not
computed with.  Elements of ``bool`` are ``i1``.

    ``fadd``           an instruction of that many operands: ``fadd T a, b``
    ``fcmp oeq``       a comparison
    ``@sqrt``          the intrinsic ``llvm.sqrt.T``
    ``libm:sin``       the function of the C library (``sinf`` for float32), or its vector form
    ``special:name``   written by the emitter; what it must do stands in the row's ``rule`` below
    ``copy``           the argument itself

**Spellings for the C family** are format strings over ``{0}``, ``{1}``, ``{2}``; ``special:name`` as above.  Function names
are those of OpenCL C and of CUDA C++, both of which overload them.

Specials, which no single instruction does as NumPy does:

    ``floor_divide``   integers: rounded down; by zero gives 0; the smallest by -1 gives the smallest.  floats: NumPy's
                       ``divmod`` (from ``fmod``, with the corrections), by zero gives ``a / b``
    ``remainder``      sign of the divisor; integers: by zero gives 0; floats: NaN by zero, a zero has the divisor's sign
    ``pow``            integers: wraps; a negative exponent gives the power rounded towards zero (1 and -1 have one)
    ``shift_left``     a distance that is negative or not below the width gives 0
    ``shift_right``    arithmetic for signed; such a distance gives 0, or -1 for negative numbers
    ``negative``       0 - x, which wraps
    ``invert``         every bit turned round (of a bool, its only one)

`maximum` and `minimum` give NaN if either is; which zero they give for 0.0 and -0.0 is open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np

__all__ = ["ROWS", "Cost", "Partials", "Row"]

Cost: TypeAlias = Literal["cheap", "divide", "call"]
"""``cheap``: about a cycle a vector; ``divide``: ten or so, as division and square root; ``call``: a function of its own."""

Partials: TypeAlias = Callable[..., tuple[Any, ...]] | str
"""The local derivatives by each argument, as expressions over arguments and result; or why there are none, in words."""


@dataclass(frozen=True, slots=True)
class Row:
    """One elementwise operation.

    ``result`` is ``same`` (as the arguments), ``bool``, or ``select``.  ``promotion`` says how the front end comes to one
    dtype: ``common`` (the arguments' common one; where only ``bool`` is missing it becomes ``int8``, as in NumPy),
    ``float`` (the common float), ``divide`` (integers become float64), ``strict`` (the common one, or an error).
    ``reference`` is the meaning, over NumPy arrays that have one dtype already.
    """

    name: str
    arity: int
    result: Literal["same", "bool", "select"]
    promotion: Literal["common", "float", "divide", "strict"]
    reference: Callable[..., Any]
    llvm: Mapping[str, str]
    c: Mapping[str, str]
    cost: Cost = "cheap"
    partials: Partials | None = None

    @property
    def kinds(self) -> str:
        """The kinds of dtype that it computes with."""
        return "".join(self.llvm)


def _kinds(kinds: str, spelling: str) -> dict[str, str]:
    return dict.fromkeys(kinds, spelling)


def _maths(name: str, reference: Callable[..., Any], function: str | None = None, arity: int = 1) -> Row:
    called = function or name
    c = f"{called}({', '.join(f'{{{n}}}' for n in range(arity))})"
    return Row(name, arity, "same", "float", reference, {"f": f"libm:{called}"}, {"f": c}, "call")


def _intrinsic(name: str, reference: Callable[..., Any], intrinsic: str | None = None, cost: Cost = "cheap") -> Row:
    used = intrinsic or name
    return Row(name, 1, "same", "float", reference, {"f": f"@{used}"}, {"f": f"{used}({{0}})"}, cost)


def _compare(name: str, reference: Callable[..., Any], condition: str, c: str) -> Row:
    equality = condition in ("eq", "ne")
    llvm = {
        "f": f"fcmp {'u' if condition == 'ne' else 'o'}{condition}",  # of NaN only "unequal" is true
        "i": f"icmp {'' if equality else 's'}{condition}",
        "u": f"icmp {'' if equality else 'u'}{condition}",
        "b": f"icmp {'' if equality else 'u'}{condition}",
    }
    return Row(name, 2, "bool", "common", reference, llvm, _kinds("fiub", f"{{0}} {c} {{1}}"))


def _bitwise(name: str, reference: Callable[..., Any], instruction: str, c: str) -> Row:
    return Row(name, 2, "same", "strict", reference, _kinds("iub", instruction), _kinds("iub", f"{{0}} {c} {{1}}"))


def _special(name: str, reference: Callable[..., Any], kinds: str, cost: Cost, floats: str | None = None) -> Row:
    spelling = _kinds(kinds, f"special:{name}")
    c = dict(spelling)
    if floats is not None:
        spelling["f"] = f"libm:{floats}"
        c["f"] = f"{floats}({{0}}, {{1}})"
    return Row(name, 2, "same", "common", reference, spelling, c, cost)


# References that no NumPy function gives as it stands.


def _erf(function: Callable[[float], float]) -> Callable[[Any], Any]:
    elementwise = np.vectorize(function, otypes=[np.float64])

    def reference(x: Any) -> Any:
        return np.asarray(elementwise(x)).astype(x.dtype) if x.size else x

    return reference


def _pow(base: Any, exponent: Any) -> Any:
    if base.dtype.kind != "i":
        return np.power(base, exponent)
    number = base.dtype.type  # Python's numbers had other rules before NumPy 2
    odd = np.bitwise_and(exponent, number(1)).astype(bool)
    inverse = np.where(base == 1, 1, np.where(base == -1, np.where(odd, -1, 1), 0)).astype(base.dtype)
    return np.where(exponent < 0, inverse, np.power(base, np.maximum(exponent, number(0))))


def _select(condition: Any, chosen: Any, other: Any) -> Any:
    return np.where(condition, chosen, other)


_LARGER: Final = "({0} > {1} || {0} != {0} ? {0} : {1})"
_SMALLER: Final = "({0} < {1} || {0} != {0} ? {0} : {1})"

_ROWS: Final = (
    # Arithmetic.
    Row("add", 2, "same", "common", np.add,
        {"f": "fadd", "i": "add", "u": "add", "b": "or"}, {**_kinds("fiu", "{0} + {1}"), "b": "{0} | {1}"}),
    Row("subtract", 2, "same", "strict", np.subtract,
        {"f": "fsub", "i": "sub", "u": "sub"}, _kinds("fiu", "{0} - {1}")),
    Row("multiply", 2, "same", "common", np.multiply,
        {"f": "fmul", "i": "mul", "u": "mul", "b": "and"}, {**_kinds("fiu", "{0} * {1}"), "b": "{0} & {1}"}),
    Row("divide", 2, "same", "divide", np.divide, {"f": "fdiv"}, {"f": "{0} / {1}"}, "divide"),
    _special("floor_divide", np.floor_divide, "fiu", "call"),
    _special("remainder", np.remainder, "fiu", "call"),
    _special("pow", _pow, "iu", "call", floats="pow"),
    Row("negative", 1, "same", "strict", np.negative,
        {"f": "fneg", "i": "special:negative", "u": "special:negative"}, _kinds("fiu", "-{0}")),
    Row("abs", 1, "same", "common", np.abs,
        {"f": "@fabs", "i": "@abs", "u": "copy", "b": "copy"},  # llvm.abs has a second operand: `i1 false` (wraps)
        {"f": "fabs({0})", "i": "({0} < 0 ? -{0} : {0})", "u": "{0}", "b": "{0}"}),
    Row("maximum", 2, "same", "common", np.maximum,
        {"f": "@maximum", "i": "@smax", "u": "@umax", "b": "or"}, {**_kinds("fiu", _LARGER), "b": "{0} | {1}"}),
    Row("minimum", 2, "same", "common", np.minimum,
        {"f": "@minimum", "i": "@smin", "u": "@umin", "b": "and"}, {**_kinds("fiu", _SMALLER), "b": "{0} & {1}"}),
    Row("copysign", 2, "same", "float", np.copysign, {"f": "@copysign"}, {"f": "copysign({0}, {1})"}),
    # Rounding.
    _intrinsic("floor", np.floor),
    _intrinsic("ceil", np.ceil),
    _intrinsic("trunc", np.trunc),
    _intrinsic("round", np.rint, "rint"),  # half to even
    # Mathematical functions.
    _intrinsic("sqrt", np.sqrt, cost="divide"),
    _maths("cbrt", np.cbrt),
    _maths("exp", np.exp),
    _maths("exp2", np.exp2),
    _maths("expm1", np.expm1),
    _maths("log", np.log),
    _maths("log2", np.log2),
    _maths("log10", np.log10),
    _maths("log1p", np.log1p),
    _maths("sin", np.sin),
    _maths("cos", np.cos),
    _maths("tan", np.tan),
    _maths("asin", np.arcsin),
    _maths("acos", np.arccos),
    _maths("atan", np.arctan),
    _maths("sinh", np.sinh),
    _maths("cosh", np.cosh),
    _maths("tanh", np.tanh),
    _maths("asinh", np.arcsinh),
    _maths("acosh", np.arccosh),
    _maths("atanh", np.arctanh),
    _maths("erf", _erf(math.erf)),
    _maths("erfc", _erf(math.erfc)),
    _maths("atan2", np.arctan2, arity=2),
    _maths("hypot", np.hypot, arity=2),
    _maths("nextafter", np.nextafter, arity=2),
    # Comparisons; NaN is unequal to everything.
    _compare("equal", np.equal, "eq", "=="),
    _compare("not_equal", np.not_equal, "ne", "!="),
    _compare("less", np.less, "lt", "<"),
    _compare("less_equal", np.less_equal, "le", "<="),
    _compare("greater", np.greater, "gt", ">"),
    _compare("greater_equal", np.greater_equal, "ge", ">="),
    # Bits.
    _bitwise("bitwise_and", np.bitwise_and, "and", "&"),
    _bitwise("bitwise_or", np.bitwise_or, "or", "|"),
    _bitwise("bitwise_xor", np.bitwise_xor, "xor", "^"),
    Row("bitwise_invert", 1, "same", "strict", np.invert,
        _kinds("iub", "special:invert"), {**_kinds("iu", "~{0}"), "b": "!{0}"}),  # xor with all bits set
    _special("shift_left", np.left_shift, "iu", "cheap"),
    _special("shift_right", np.right_shift, "iu", "cheap"),
    # Choice.
    Row("select", 3, "select", "common", _select, _kinds("fiub", "select"), _kinds("fiub", "{0} ? {1} : {2}")),
)  # fmt: skip

ROWS: Final[Mapping[str, Row]] = {row.name: row for row in _ROWS}
"""The table, by name."""
