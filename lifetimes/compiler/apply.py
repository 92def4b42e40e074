"""An elementwise operation on traced values: promoted, cast and broadcast as NumPy would, then one node.

`apply` is what a function does (``add(x, y)``), `operate` what an operator does (``x + y``): they differ where all operands
are Python numbers, of which Python's operators make Python numbers and NumPy's functions make arrays.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

from lifetimes.compiler import ops
from lifetimes.compiler.ir import Shape
from lifetimes.compiler.ops import ROWS, Row
from lifetimes.compiler.problems import RangeProblem, ShapeProblem, ValueProblem
from lifetimes.compiler.promotion import Operand, default_dtype, is_weak_scalar, row_dtype
from lifetimes.compiler.tracer import Tracer, current_trace
from lifetimes.errors import TraceError

__all__ = ["apply", "array_of", "as_bool", "broadcast", "cast", "converted", "make", "operate"]

Number: TypeAlias = bool | int | float

BOOL: Final = np.dtype("bool")
INT64: Final = np.dtype("int64")
UINT64: Final = np.dtype("uint64")
FLOAT64: Final = np.dtype("float64")
COMPARISONS: Final = frozenset(row.name for row in ROWS.values() if row.result == "bool")
BITS: Final = frozenset({"bitwise_and", "bitwise_or", "bitwise_xor"})


def array_of(value: Any) -> Tracer:
    """The value as a traced one.  Errors: `TraceError` for what is no array."""
    return current_trace().lift(value)


def make(op: str, *args: Tracer, dtype: Any = None, shape: Shape | None = None, **attrs: Any) -> Tracer:
    """One node.  Errors: `ShapeProblem` and `TraceError` with the reason."""
    trace = current_trace()
    try:
        node = ops.make(trace.builder, op, *[each.node for each in args], dtype=dtype, shape=shape, **attrs)
    except ValueError as error:
        raise ShapeProblem(str(error)) from None
    except TypeError as error:
        raise TraceError(str(error)) from None
    return Tracer(trace, node)


def cast(value: Tracer, dtype: np.dtype[Any]) -> Tracer:
    """The value in that dtype, strong from now on."""
    if value.dtype == dtype:
        return Tracer(value.trace, value.node) if value.weak else value
    return make("cast", value, dtype=dtype)


def broadcast(value: Tracer, shape: Shape) -> Tracer:
    """The value in that shape.  Errors: `ShapeProblem` that names both shapes."""
    if value.shape == shape:
        return value
    return make("broadcast", value, shape=shape)


def apply(name: str, *operands: Any) -> Tracer:
    """The row ``name`` of the table, of anything that is an array or a number.

    Errors: `TraceError` for dtypes that do not go together; `ShapeProblem`; `RangeProblem` for a Python integer that the
    arrays' dtype cannot hold.
    """
    return _combine(ROWS[name], _lifted(operands), weak=False)


def operate(name: str, *operands: Any) -> Tracer:
    """What Python's operator does: as `apply`, but of Python numbers it makes a Python number again.  Errors: as `apply`."""
    row = ROWS.get(name)
    given = _lifted(operands)
    if name == "positive" and isinstance(given[0], Tracer) and given[0].weak:
        return operate("add", given[0], 0)  # of Python's bools it makes an integer
    if row is None:  # `positive` and `matmul` are no rows
        return getattr(current_trace().namespace, name)(*given)  # type: ignore[no-any-return]
    if all(not isinstance(each, Tracer) or each.weak for each in given):
        return _of_numbers(row, given)
    if name == "pow":
        base, exponent = given
        if isinstance(base, Tracer) and not isinstance(exponent, Tracer) and not base.weak:
            power = _easy_power(base, exponent)
            if power is not None:
                return power
    return _combine(row, given, weak=False)


def _lifted(operands: tuple[Any, ...]) -> list[Tracer | Number]:
    """Python numbers stay what they are until a dtype is known: then they are converted exactly, or refused."""
    trace = current_trace()
    return [each if is_weak_scalar(each) else trace.lift(each) for each in operands]


def _operand(value: Tracer | Number) -> Operand:
    return (value.dtype, value.weak) if isinstance(value, Tracer) else (default_dtype(value), True)


def _combine(row: Row, given: list[Tracer | Number], weak: bool, dtype: np.dtype[Any] | None = None) -> Tracer:
    condition = []
    if row.result == "select":
        condition, given = [as_bool(array_of(given[0]))], given[1:]
    shape = _common_shape(row.name, [each.shape for each in (*condition, *given) if isinstance(each, Tracer)])
    if dtype is None:
        if row.name in COMPARISONS:
            exact = _compare_exactly(row, given, shape)
            if exact is not None:
                return exact
        dtype = row_dtype(row, [_operand(each) for each in given])
    args = [*condition, *[converted(row.name, each, dtype) for each in given]]
    made = make(row.name, *[broadcast(each, shape) for each in args])
    made.weak = weak
    return made


def as_bool(value: Tracer) -> Tracer:
    """Whether elements are not zero."""
    if value.dtype == BOOL:
        return value
    return make("cast", value, dtype=BOOL)


def converted(op: str, value: Tracer | Number, dtype: np.dtype[Any]) -> Tracer:
    """The value in that dtype.  Errors: `RangeProblem` for a Python integer that it cannot hold."""
    if isinstance(value, Tracer):
        return cast(value, dtype)
    trace = current_trace()
    try:
        return Tracer(trace, trace.constant(value, dtype))
    except OverflowError:
        raise RangeProblem(
            f"{op}: the Python integer {value} is out of the bounds of {dtype}; use one of its own"
        ) from None


def _common_shape(op: str, shapes: list[Shape]) -> Shape:
    common: Shape = ()
    for shape in shapes:
        if shape != common:
            try:
                common = np.broadcast_shapes(common, shape)
            except ValueError:
                named = " and ".join(str(each) for each in dict.fromkeys(shapes) if each)
                raise ShapeProblem(f"{op}: shapes {named} do not broadcast to a common one") from None
    return common


# Python numbers among themselves.


def _of_numbers(row: Row, given: list[Tracer | Number]) -> Tracer:
    """Python's own rules: bools count as integers, ``/`` gives a float."""
    dtype = np.result_type(*[_operand(each)[0] for each in given])
    if row.name in BITS or row.name in COMPARISONS:
        if dtype.kind == "f" and row.name in BITS:
            dtype = row_dtype(row, [_operand(each) for each in given])  # raises, with the reason
    elif row.name == "divide" or (row.name == "pow" and _is_negative(given[1])):
        dtype = FLOAT64
    elif dtype == BOOL:
        dtype = INT64
    if dtype.kind not in row.kinds:
        row_dtype(row, [_operand(each) for each in given])
    return _combine(row, given, weak=True, dtype=dtype)


def _is_negative(value: Tracer | Number) -> bool:
    return not isinstance(value, Tracer) and value < 0


def _easy_power(base: Tracer, exponent: Number) -> Tracer | None:
    """The powers that NumPy's arrays compute without `pow` too; None for others."""
    whole = base.dtype.kind != "f"
    if whole and isinstance(exponent, float):
        return None
    if base.dtype.kind in "bi" and exponent < 0:
        raise ValueProblem(f"{base!r} ** {exponent}: integers have no negative powers; cast it to a float")
    if exponent == 2:
        narrow = cast(base, np.dtype("int8")) if base.dtype == BOOL else base  # as NumPy's arrays, not its scalars
        return make("multiply", narrow, narrow)
    if exponent == 1 and base.dtype != BOOL:
        return base
    if base.dtype.kind == "f" and exponent == 0.5:
        return make("sqrt", base)
    if base.dtype.kind == "f" and exponent == -1:
        return apply("divide", 1, base)
    return None


# Comparisons of integers are exact, whatever their widths and signs.


def _compare_exactly(row: Row, given: list[Tracer | Number], shape: Shape) -> Tracer | None:
    kinds = [_operand(each)[0].kind for each in given]
    if not set(kinds) <= {"i", "u"}:
        return None
    arrays = [each for each in given if isinstance(each, Tracer)]
    if len(arrays) == 1:
        return _compare_with_number(row, given, arrays[0], shape)
    a, b = arrays
    if not a.weak and not b.weak and np.result_type(a.dtype, b.dtype).kind != "f":
        return None
    # A Python integer that is not known yet may be anything: it is compared as the int64 that it is passed as.
    if UINT64 not in (a.dtype, b.dtype):
        return _combine(row, given, weak=False, dtype=INT64)
    if a.dtype == b.dtype:
        return None
    return _compare_signed_with_unsigned(row, a, b)


def _compare_with_number(row: Row, given: list[Tracer | Number], array: Tracer, shape: Shape) -> Tracer | None:
    number = next(each for each in given if not isinstance(each, Tracer))
    limits = np.iinfo(array.dtype)
    if limits.min <= number <= limits.max:
        return None
    beyond = 1 if number > 0 else -1  # every element is on the same side of it
    answer = row.reference(*[0 if isinstance(each, Tracer) else beyond for each in given])
    trace = current_trace()
    return broadcast(Tracer(trace, trace.constant(answer, BOOL)), shape)


def _compare_signed_with_unsigned(row: Row, a: Tracer, b: Tracer) -> Tracer:
    signed = a if a.dtype != UINT64 else b
    negative = apply("less", signed, 0)
    as_unsigned = apply(row.name, cast(a, UINT64), cast(b, UINT64))
    below = row.reference(*[-1 if each is signed else 0 for each in (a, b)])  # what a negative number would answer
    if below:
        return apply("bitwise_or", negative, as_unsigned)
    return apply("bitwise_and", apply("bitwise_invert", negative), as_unsigned)
