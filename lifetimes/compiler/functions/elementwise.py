"""Functions of elements: the rows of the table under the standard's names, and those that are made of rows."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from lifetimes.compiler.apply import apply, array_of, as_bool, broadcast, cast, make
from lifetimes.compiler.promotion import common_dtype, float_dtype
from lifetimes.compiler.tracer import Tracer
from lifetimes.errors import TraceError

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "cbrt",
    "ceil",
    "clip",
    "copysign",
    "cos",
    "cosh",
    "divide",
    "equal",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "nextafter",
    "not_equal",
    "positive",
    "pow",
    "reciprocal",
    "remainder",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "trunc",
    "where",
]  # fmt: skip

BOOL = np.dtype("bool")
INT8 = np.dtype("int8")


class _Unary(Protocol):
    def __call__(self, x: Any, /) -> Tracer: ...


class _Binary(Protocol):
    def __call__(self, x1: Any, x2: Any, /) -> Tracer: ...


def _name(function: Any, name: str, words: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = words
    return function


def _unary(name: str, words: str) -> _Unary:
    return _name(lambda x, /: apply(name, x), name, words)  # type: ignore[no-any-return]


def _binary(op: str, words: str, name: str | None = None) -> _Binary:
    return _name(lambda x1, x2, /: apply(op, x1, x2), name or op, words)  # type: ignore[no-any-return]


add = _binary("add", "The sum; of bools, whether either is true.")
subtract = _binary("subtract", "The difference; bools have none.")
multiply = _binary("multiply", "The product; of bools, whether both are true.")
divide = _binary("divide", "The quotient, always a float.")
floor_divide = _binary("floor_divide", "The quotient rounded down; of integers by zero 0.")
remainder = _binary("remainder", "What `floor_divide` leaves, with the divisor's sign.")
pow = _binary("pow", "The power.  An integer to a negative power is rounded towards zero.")
atan2 = _binary("atan2", "The angle of the point (x2, x1), from -pi to pi.")
hypot = _binary("hypot", "The square root of the sum of the squares, without overflow on the way.")
copysign = _binary("copysign", "The size of the first with the sign of the second.")
nextafter = _binary("nextafter", "The next float from the first towards the second.")
maximum = _binary("maximum", "The larger; NaN if either is.")
minimum = _binary("minimum", "The smaller; NaN if either is.")
equal = _binary("equal", "Whether they are equal.")
not_equal = _binary("not_equal", "Whether they differ; NaN differs from everything.")
less = _binary("less", "Whether the first is smaller.")
less_equal = _binary("less_equal", "Whether the first is not larger.")
greater = _binary("greater", "Whether the first is larger.")
greater_equal = _binary("greater_equal", "Whether the first is not smaller.")
bitwise_and = _binary("bitwise_and", "The bits that both have.")
bitwise_or = _binary("bitwise_or", "The bits that either has.")
bitwise_xor = _binary("bitwise_xor", "The bits that one of them has.")
bitwise_left_shift = _binary(
    "shift_left", "Multiplied by a power of two, in the width that it has.", "bitwise_left_shift"
)
bitwise_right_shift = _binary("shift_right", "Divided by a power of two, rounded down.", "bitwise_right_shift")

abs = _unary("abs", "The absolute value; of the smallest integer of a signed dtype, itself.")
negative = _unary("negative", "With the other sign; unsigned integers wrap.")
bitwise_invert = _unary("bitwise_invert", "Every bit turned round.")
sqrt = _unary("sqrt", "The square root.")
cbrt = _unary("cbrt", "The cube root.")
exp = _unary("exp", "The exponential function.")
exp2 = _unary("exp2", "Two to the power of it.")
expm1 = _unary("expm1", "exp(x) - 1, exact for small ones.")
log = _unary("log", "The natural logarithm.")
log2 = _unary("log2", "The logarithm to the base of two.")
log10 = _unary("log10", "The logarithm to the base of ten.")
log1p = _unary("log1p", "log(1 + x), exact for small ones.")
sin = _unary("sin", "The sine.")
cos = _unary("cos", "The cosine.")
tan = _unary("tan", "The tangent.")
asin = _unary("asin", "The inverse sine.")
acos = _unary("acos", "The inverse cosine.")
atan = _unary("atan", "The inverse tangent.")
sinh = _unary("sinh", "The hyperbolic sine.")
cosh = _unary("cosh", "The hyperbolic cosine.")
tanh = _unary("tanh", "The hyperbolic tangent.")
asinh = _unary("asinh", "The inverse hyperbolic sine.")
acosh = _unary("acosh", "The inverse hyperbolic cosine.")
atanh = _unary("atanh", "The inverse hyperbolic tangent.")
erf = _unary("erf", "The error function (not in the standard).")
erfc = _unary("erfc", "1 - erf(x), exact for large ones (not in the standard).")


def where(condition: Any, x1: Any, x2: Any, /) -> Tracer:
    """The elements of ``x1`` where the condition is true (not zero), of ``x2`` elsewhere."""
    return apply("select", condition, x1, x2)


def clip(x: Any, /, min: Any = None, max: Any = None) -> Tracer:
    """Not below ``min`` and not above ``max``, either of which may be left out; NaN stays."""
    clipped = x if min is None else maximum(x, min)
    return positive(clipped) if max is None else minimum(clipped, max)


# Rounding leaves integers as they are.


def _rounding(op: str, words: str) -> _Unary:
    def function(x: Any, /) -> Tracer:
        value = array_of(x)
        return cast(value, value.dtype) if value.dtype.kind in "iub" else apply(op, value)

    return _name(function, op, words)  # type: ignore[no-any-return]


floor = _rounding("floor", "The largest whole number that is not larger; integers stay integers.")
ceil = _rounding("ceil", "The smallest whole number that is not smaller; integers stay integers.")
trunc = _rounding("trunc", "Without what is behind the point; integers stay integers.")
round = _rounding("round", "The nearest whole number, of two the even one; integers stay integers.")


# What is made of rows.


def positive(x: Any, /) -> Tracer:
    """The value itself.  Bools have no sign."""
    value = array_of(x)
    if value.dtype == BOOL:
        raise TraceError("positive of bool is not defined; cast it to an integer")
    return value


def square(x: Any, /) -> Tracer:
    """The product with itself."""
    value = array_of(x)
    return apply("multiply", *[cast(value, INT8)] * 2) if value.dtype == BOOL else apply("multiply", value, value)


def reciprocal(x: Any, /) -> Tracer:
    """One divided by it.  Errors: `TraceError` for integers, which have none."""
    value = array_of(x)
    if value.dtype.kind != "f":
        raise TraceError(f"reciprocal of {value.dtype} is not defined; cast it to a float")
    return apply("divide", 1, cast(value, value.dtype))


def sign(x: Any, /) -> Tracer:
    """-1, 0 or 1; NaN of NaN."""
    value = array_of(x)
    if value.dtype == BOOL:
        raise TraceError("sign of bool is not defined; cast it to an integer")
    number = value.dtype.type
    # What is neither above nor below nor zero is NaN and stays; of zeros the answer is 0.0, whatever their sign.
    rest = (
        number(0)
        if value.dtype.kind == "u"
        else where(less(value, 0), number(-1), where(equal(value, 0), number(0), value))
    )
    return where(greater(value, 0), number(1), rest)


def signbit(x: Any, /) -> Tracer:
    """Whether the sign is minus, that of -0.0 and of NaN too."""
    value = array_of(x)
    if value.dtype.kind == "f":
        return less(copysign(value.dtype.type(1), cast(value, value.dtype)), 0)
    return less(value, 0) if value.dtype.kind == "i" else _all_false(value)


def isnan(x: Any, /) -> Tracer:
    """Whether it is not a number."""
    value = array_of(x)
    return make("not_equal", value, value) if value.dtype.kind == "f" else _all_false(value)


def isinf(x: Any, /) -> Tracer:
    """Whether it is one of the infinities."""
    value = array_of(x)
    return equal(abs(value), np.inf) if value.dtype.kind == "f" else _all_false(value)


def isfinite(x: Any, /) -> Tracer:
    """Whether it is neither an infinity nor NaN."""
    value = array_of(x)
    return less(abs(value), np.inf) if value.dtype.kind == "f" else logical_not(_all_false(value))


def _all_false(value: Tracer) -> Tracer:
    return broadcast(array_of(np.False_), value.shape)


def logaddexp(x1: Any, x2: Any, /) -> Tracer:
    """log(exp(x1) + exp(x2)), without overflow on the way."""
    a, b = array_of(x1), array_of(x2)
    difference = subtract(*_floats("logaddexp", a, b))
    larger = maximum(*_floats("logaddexp", a, b))
    # Of equal ones, infinities too, the difference says nothing.
    apart = add(larger, log1p(exp(negative(abs(difference)))))
    return where(equal(a, b), add(larger, larger.dtype.type(np.log(2))), apart)


def _floats(op: str, a: Tracer, b: Tracer) -> tuple[Tracer, Tracer]:
    dtype = float_dtype(common_dtype(op, [(a.dtype, a.weak), (b.dtype, b.weak)]))
    return cast(a, dtype), cast(b, dtype)


def logical_and(x1: Any, x2: Any, /) -> Tracer:
    """Whether both are true (not zero)."""
    return apply("bitwise_and", as_bool(array_of(x1)), as_bool(array_of(x2)))


def logical_or(x1: Any, x2: Any, /) -> Tracer:
    """Whether either is true (not zero)."""
    return apply("bitwise_or", as_bool(array_of(x1)), as_bool(array_of(x2)))


def logical_xor(x1: Any, x2: Any, /) -> Tracer:
    """Whether exactly one is true (not zero)."""
    return apply("bitwise_xor", as_bool(array_of(x1)), as_bool(array_of(x2)))


def logical_not(x: Any, /) -> Tracer:
    """Whether it is zero."""
    return apply("bitwise_invert", as_bool(array_of(x)))
