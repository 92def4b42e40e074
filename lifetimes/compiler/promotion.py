"""Which dtype an operation works in.

The rules are NumPy 2's (NEP 50): arrays promote by kind and size, Python scalars are *weak*, which means that they take
the array's dtype if their kind allows it.  Source: the array API standard's promotion tables, and NEP 50 for what the
standard leaves open (integers mixed with floats, uint64 with signed).  They are written out here, because NumPy before
2 looked at the values of scalars.

Two things differ from NumPy.  Where NumPy goes to float16, as in the square root of an int8, the result is float32:
float16 is not computed with.  And a result that would be an object array is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from lifetimes.compiler.ir import DTYPES
from lifetimes.compiler.ops import Row
from lifetimes.errors import TraceError

__all__ = [
    "Operand",
    "check_dtype",
    "common_dtype",
    "default_dtype",
    "float_dtype",
    "is_weak_scalar",
    "row_dtype",
    "sum_dtype",
]

Operand: TypeAlias = tuple[np.dtype[Any], bool]
"""A dtype, and whether it is only that of a Python number."""

BOOL: Final = np.dtype("bool")
INT8: Final = np.dtype("int8")
INT64: Final = np.dtype("int64")
UINT64: Final = np.dtype("uint64")
FLOAT32: Final = np.dtype("float32")
FLOAT64: Final = np.dtype("float64")

_RANK: Final = {"b": 0, "i": 1, "u": 1, "f": 2}


def is_weak_scalar(value: object) -> bool:
    """Python's own numbers: NumPy scalars know their dtype."""
    return type(value) in (bool, int, float)


def default_dtype(value: object) -> np.dtype[Any]:
    """The dtype of a Python number where nothing else decides."""
    if isinstance(value, bool):
        return BOOL
    return INT64 if isinstance(value, int) else FLOAT64


def check_dtype(dtype: Any, what: str) -> np.dtype[Any]:
    """``dtype`` in native byte order.  Errors: `TraceError` for one that the compiler does not compute with."""
    try:
        checked: np.dtype[Any] = np.dtype(dtype).newbyteorder("=")
    except TypeError:
        raise TraceError(f"{what} has dtype {dtype!r}, which is none") from None
    if checked not in DTYPES:
        raise TraceError(
            f"{what} has dtype {checked}; compiled functions compute with {', '.join(each.name for each in DTYPES)}"
        )
    return checked


def common_dtype(op: str, operands: Sequence[Operand]) -> np.dtype[Any]:
    """The dtype that holds them all.  Errors: `TraceError` where there is none.

    >>> common_dtype("add", [(np.dtype("float32"), False), (np.dtype("float64"), True)])
    dtype('float32')
    """
    strong = [dtype for dtype, weak in operands if not weak]
    if not strong:
        return np.result_type(*[dtype for dtype, _ in operands])
    common = np.result_type(*strong)
    for dtype, weak in operands:
        if weak and _RANK[dtype.kind] > _RANK[common.kind]:
            common = dtype  # bools meet an int: int64; integers meet a float: float64
    if common not in DTYPES:
        raise TraceError(f"{op}: {_named(operands)} promote to {common}, which is not computed with; cast one of them")
    return common


def float_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The float that a function such as `sin` makes of a dtype.

    >>> [str(float_dtype(np.dtype(name))) for name in ("int8", "uint16", "int32", "float32")]
    ['float32', 'float32', 'float64', 'float32']
    """
    if dtype.kind == "f":
        return dtype
    return FLOAT32 if dtype.itemsize <= 2 else FLOAT64


def row_dtype(row: Row, operands: Sequence[Operand]) -> np.dtype[Any]:
    """The dtype that the arguments of an elementwise operation are cast to.

    Errors: `TraceError` that names the dtypes, where NumPy has a `TypeError`.
    """
    if row.promotion == "float":
        return _common_float(row.name, operands)
    common = common_dtype(row.name, operands)
    if row.promotion == "divide":
        return common if common.kind == "f" else FLOAT64
    if common.kind in row.kinds:
        return common
    if row.promotion == "common" and common == BOOL:
        return INT8
    raise TraceError(f"{row.name} of {_named(operands)} is not defined{_ADVICE.get((row.name, common.kind), '')}")


def sum_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What a sum, product or scan of a dtype is computed in: integers and bools in 64 bits, floats as they are.

    >>> [str(sum_dtype(np.dtype(name))) for name in ("bool", "int8", "uint32", "float32")]
    ['int64', 'int64', 'uint64', 'float32']
    """
    return {"b": INT64, "i": INT64, "u": UINT64}.get(dtype.kind, dtype)


def _common_float(op: str, operands: Sequence[Operand]) -> np.dtype[Any]:
    # NumPy takes the first float loop that each argument fits in, so each goes to its own float first: int16 with uint16
    # is float32, although their common dtype is int32.
    strong = [dtype for dtype, weak in operands if not weak]
    common_dtype(op, operands)  # refuses what is refused
    highest = max((_RANK[dtype.kind] for dtype in strong), default=-1)
    deciding = strong + [dtype for dtype, weak in operands if weak and _RANK[dtype.kind] > highest]
    return np.result_type(*[float_dtype(dtype) for dtype in deciding])


_ADVICE: Final = {
    ("subtract", "b"): "; use logical_xor, or cast one to an integer",
    ("negative", "b"): "; use logical_not, or cast it to an integer",
    ("bitwise_and", "f"): "; bits are those of integers and bools",
    ("bitwise_or", "f"): "; bits are those of integers and bools",
    ("bitwise_xor", "f"): "; bits are those of integers and bools",
    ("bitwise_invert", "f"): "; bits are those of integers and bools",
}


def _named(operands: Sequence[Operand]) -> str:
    return " and ".join(f"a Python {_PYTHON[dtype.kind]}" if weak else str(dtype) for dtype, weak in operands)


_PYTHON: Final = {"b": "bool", "i": "int", "f": "float"}
