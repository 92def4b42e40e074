"""Runs a Python function as a graph, and holds the results against NumPy's.  `tests/unit/compiler` uses it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lifetimes.compiler import functions
from lifetimes.compiler.interpret import interpret
from lifetimes.compiler.ir import Function
from lifetimes.compiler.passes.simplify import simplify
from lifetimes.compiler.trace import Traced, trace
from lifetimes.compiler.verify import verify
from lifetimes.testing.eager import eager, quiet

TOLERANCE = {np.dtype("float32"): 1e-5, np.dtype("float64"): 1e-12}


def graph(function: Callable[..., Any], *args: Any) -> Function:
    """The verified graph of a function of arrays, numbers or specs."""
    return verify(trace(function, args).function)


def interpreted(function: Callable[..., Any], *args: Any) -> list[Any]:
    """The results of the graph by the interpreter; the simplified graph must give the same bits."""
    traced = trace(function, args)
    leaves = [np.asarray(each) for each in args]
    return results(traced, leaves)


def results(traced: Traced, leaves: Sequence[Any]) -> list[Any]:
    values = [*leaves, *[np.asarray(each) for each in traced.captured]]
    plain = interpret(verify(traced.function), *values)
    for before, after in zip(plain, interpret(verify(simplify(traced.function)), *values), strict=True):
        same_bits(after, before)
    return plain


def as_numpy_does(program: Callable[..., Any], *args: Any) -> None:
    """``program(xp, *args)`` gives the same dtype, shape and values traced as with NumPy."""
    with quiet():
        wanted = program(eager, *args)
    wanted = wanted if isinstance(wanted, (tuple, list)) else (wanted,)
    got = interpreted(lambda *traced: program(functions, *traced), *args)
    assert len(got) == len(wanted)
    for each, want in zip(got, wanted, strict=True):
        agree(each, np.asarray(want))


def agree(got: Any, wanted: Any, factor: float = 1) -> None:
    """Same dtype, shape and values; floats up to the order in which a sum was added."""
    assert got.dtype == wanted.dtype, f"{got.dtype} instead of {wanted.dtype}"
    assert got.shape == wanted.shape, f"{got.shape} instead of {wanted.shape}"
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, wanted)
        return
    tolerance = factor * TOLERANCE[got.dtype]
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


def same_bits(got: Any, wanted: Any) -> None:
    """Same dtype, shape and values, -0.0 told from 0.0; any NaN is as good as another."""
    assert got.dtype == wanted.dtype, f"{got.dtype} instead of {wanted.dtype}"
    assert got.shape == wanted.shape, f"{got.shape} instead of {wanted.shape}"
    np.testing.assert_array_equal(got, wanted)
    if got.dtype.kind == "f":
        numbers = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(wanted)[numbers])
