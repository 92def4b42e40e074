"""`Spec`: what is known of an argument without its content, enough to trace with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lifetimes.compiler.ir import Shape
from lifetimes.compiler.promotion import check_dtype, default_dtype, is_weak_scalar
from lifetimes.errors import TraceError

__all__ = ["Spec", "describe", "spec"]


@dataclass(frozen=True, slots=True)
class Spec:
    """Shape and dtype of an argument; ``weak`` for a Python number, which takes an array's dtype."""

    shape: Shape
    dtype: np.dtype[Any]
    weak: bool = False


def spec(shape: Any, dtype: Any = "float64") -> Spec:
    """Stands for an array where only its shape and dtype matter, as in reflection.

    Errors: `TraceError` for a dtype that is not computed with, and for a shape that is none.

    >>> spec((2, 3), "float32").shape
    (2, 3)
    """
    given = shape if isinstance(shape, (tuple, list)) else (shape,)
    lengths = []
    for each in given:
        if isinstance(each, bool) or not hasattr(each, "__index__") or each.__index__() < 0:
            raise TraceError(f"shape {shape!r}: a length is an integer of 0 or more, not {each!r}")
        lengths.append(each.__index__())
    return Spec(tuple(lengths), check_dtype(dtype, "the spec"))


def describe(value: Any, what: str = "the value") -> Spec:
    """The spec of an array of any library, of a Python or NumPy number, or of a spec.

    Errors: `TraceError` for anything else, with what it is called.
    """
    if isinstance(value, Spec):
        return value
    if is_weak_scalar(value):
        return Spec((), default_dtype(value), weak=True)
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if not isinstance(shape, tuple) or not isinstance(dtype, np.dtype):
        raise TraceError(
            f"{what} is a {type(value).__name__}, which is neither an array nor a number: "
            f"make it an array, or name the argument in static=(...)"
        )
    return Spec(shape, check_dtype(dtype, what))
