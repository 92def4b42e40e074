"""NumPy as the namespace of a program: with the functions that it lacks, written out plainly."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["eager", "quiet"]


@contextmanager
def quiet() -> Iterator[None]:
    """Without NumPy's warnings about infinities, NaN and means of nothing, which programs are full of."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


class _Eager:
    """NumPy, and what `lifetimes.compiler.functions` has besides."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def erf(x: Any) -> Any:
        return _by_element(math.erf, x)

    @staticmethod
    def erfc(x: Any) -> Any:
        return _by_element(math.erfc, x)

    @staticmethod
    def scatter_add(x: Any, indices: Any, updates: Any, *, axis: int = 0) -> Any:
        out = np.array(x)
        np.add.at(np.moveaxis(out, axis, 0), np.asarray(indices), np.moveaxis(np.asarray(updates), axis, 0))
        return out


def _by_element(function: Any, x: Any) -> Any:
    given = np.asarray(x)
    if given.dtype.kind != "f":
        raise TypeError(f"{function.__name__} of {given.dtype}: cast it to a float")
    flat = [function(float(each)) for each in given.ravel()]
    return np.array(flat, np.float64).reshape(given.shape).astype(given.dtype)


eager: Any = _Eager()
"""The namespace."""
