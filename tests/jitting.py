"""Runs functions compiled for the host, and holds them against the interpreter.  `tests/host/test_jit_*.py` use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import lifetimes
from lifetimes.compiler import functions
from lifetimes.compiler.passes import simplified, watching
from lifetimes.compiler.trace import trace
from lifetimes.compiler.verify import verify
from lifetimes.testing.agreement import assert_computes
from lifetimes.testing.eager import eager, quiet

TOLERANCE = {np.dtype("float32"): 4e-6, np.dtype("float64"): 4e-14}
"""For a program of one step: libmvec promises 4 units in the last place, and a sum may be added in another order."""
ULPS = 8.0


def check(device: lifetimes.Device, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Run ``function`` of NumPy arrays (and numbers) compiled, and hold it against the interpreter.  Returns the results.

    Arrays are given to the device with the strides that they have.
    """
    traced = trace(function, args)
    given = [placed(device, each) if isinstance(each, np.ndarray) else each for each in args]
    with watching(lambda name, before, after: verify(after)):
        results = lifetimes.jit(function)(*given)
    got = [each.numpy() for each in (results if isinstance(results, (tuple, list)) else (results,))]
    values = [np.asarray(each, param.dtype) for each, param in zip(args, traced.function.params, strict=False)]
    values += [np.asarray(each) for each in traced.captured]
    assert_computes(simplified(traced.function), values, got, ulps=ULPS)
    return got


def as_numpy_does(device: lifetimes.Device, program: Callable[..., Any], *args: Any) -> list[Any]:
    """As `check` for ``program(xp, *args)``; and the results are those of NumPy's own functions."""
    got = check(device, lambda *given: program(functions, *given), *args)
    with quiet():
        wanted = program(eager, *args)
    for each, want in zip(got, wanted if isinstance(wanted, (tuple, list)) else (wanted,), strict=True):
        want = np.asarray(want)
        assert (each.dtype, each.shape) == (want.dtype, want.shape)
        if want.dtype.kind == "f":
            tolerance = 100 * TOLERANCE[want.dtype]
            np.testing.assert_allclose(each, want, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(each, want)
    return got


def placed(device: lifetimes.Device, array: Any) -> lifetimes.Array:
    """An array of the device with the content and the strides of a NumPy array, views of views included."""
    steps = [(length - 1) * stride for length, stride in zip(array.shape, array.strides, strict=True)]
    if array.flags.c_contiguous or not array.size or not array.dtype.itemsize:
        return device.asarray(array)
    low, high = sum(step for step in steps if step < 0), sum(step for step in steps if step > 0)
    start = array.__array_interface__["data"][0] + low
    span = (high - low) // array.dtype.itemsize + 1
    base = device.asarray(_at(start, span, array.dtype))
    view = base._view(np.lib.stride_tricks.as_strided(np.empty(1, array.dtype), array.shape, array.strides))
    view.offset = -low
    return view


def _at(start: int, length: int, dtype: Any) -> Any:
    class Holder:
        def __init__(self) -> None:
            self.__array_interface__ = {
                "shape": (length,), "typestr": dtype.str, "data": (start, True), "version": 3,
            }  # fmt: skip

    return np.array(np.asarray(Holder()))
