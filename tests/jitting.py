"""Runs functions compiled for the host, and holds them against the interpreter.  `tests/host/test_jit_*.py` use it.

How near is near enough depends on the program: ``sin(sinh(tan(x)))`` turns the last bit of its argument into its second
digit.  So the interpreter runs again with every float in it moved by a few units in the last place, at random; what
that changes is what the compiler may be away, several times over, and a little more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import lifetimes
from lifetimes.compiler import functions, ops
from lifetimes.compiler.ir import Function
from lifetimes.compiler.passes import simplified
from lifetimes.compiler.trace import trace
from lifetimes.testing.eager import eager, quiet

TOLERANCE = {np.dtype("float32"): 4e-6, np.dtype("float64"): 4e-14}
"""For a program of one step: libmvec promises 4 units in the last place, and a sum may be added in another order."""
ULPS = 8.0
TRIES = 3


def agree(got: Sequence[Any], function: Function, values: Sequence[Any]) -> None:
    """The results are the interpreter's: dtype and shape, integers exactly, floats as near as the program allows."""
    plain = evaluated(function, values)
    assert len(got) == len(plain)
    try:
        for each, wanted in zip(got, plain, strict=True):
            near(each, wanted)
    except AssertionError:  # only then is it worth asking how near it could be
        moved = [evaluated(function, values, seed) for seed in range(TRIES)]
        for at, (each, wanted) in enumerate(zip(got, plain, strict=True)):
            near(each, wanted, [others[at] for others in moved])


def near(got: Any, wanted: Any, moved: Sequence[Any] = ()) -> None:
    """``got`` is ``wanted``, up to what the ``moved`` ones are away from it and a little more."""
    assert got.dtype == wanted.dtype, f"{got.dtype} instead of {wanted.dtype}"
    assert got.shape == wanted.shape, f"{got.shape} instead of {wanted.shape}"
    if got.dtype.kind != "f":
        unsure = np.zeros(wanted.shape, bool)
        for other in moved:  # where a rounding decides a comparison
            unsure |= other != wanted
        np.testing.assert_array_equal(np.where(unsure, wanted, got), wanted)
        return
    with np.errstate(all="ignore"):
        wide, exact = got.astype(np.float64), wanted.astype(np.float64)
        away = np.zeros(exact.shape)
        unsure = np.zeros(exact.shape, bool)
        for other in moved:
            away = np.fmax(away, np.abs(other.astype(np.float64) - exact))
            unsure |= np.isfinite(other) != np.isfinite(exact)
            unsure |= np.isnan(other) != np.isnan(exact)
        base = TOLERANCE[got.dtype] * (np.abs(exact) + float(np.finfo(got.dtype).tiny))
        same = (wide == exact) | (np.isnan(wide) & np.isnan(exact)) | unsure
        fine = same | (np.abs(wide - exact) <= base + 16 * away)
    assert fine.all(), f"at {np.argwhere(~fine)[:5].tolist()}: {got[~fine][:5]} instead of {wanted[~fine][:5]}"


def evaluated(function: Function, values: Sequence[Any], seed: int | None = None) -> list[Any]:
    """The interpreter's results; with a seed, every float on the way is moved by up to `ULPS` units in the last place."""
    random = np.random.default_rng(seed)
    known: dict[int, Any] = {id(param): np.asarray(value) for param, value in zip(function.params, values, strict=True)}
    for node in function.nodes():
        if node.op == "param":
            continue
        value = ops.evaluate(node, *[known[id(arg)] for arg in node.args])
        if (
            seed is not None
            and node.dtype.kind == "f"
            and (node.op in ops.ROWS or node.op in ("reduce", "scan", "matmul"))
        ):
            # A sum may be off by what its largest terms round to, however small it is itself.
            scale = np.abs(value)
            if node.op in ("reduce", "scan", "matmul") and value.size:
                largest = max((float(np.max(np.abs(known[id(arg)]), initial=0)) for arg in node.args), default=0.0)
                scale = np.maximum(scale, largest if np.isfinite(largest) else 0)
            with np.errstate(all="ignore"):
                step = (random.random(value.shape) * 2 - 1) * ULPS * np.finfo(value.dtype).eps
                value = np.asarray(np.where(np.isfinite(value), value + step * scale, value), value.dtype)
        known[id(node)] = value
    return [np.array(known[id(out)]) for out in function.outs]


def check(device: lifetimes.Device, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Run ``function`` of NumPy arrays (and numbers) compiled, and hold it against the interpreter.  Returns the results.

    Arrays are given to the device with the strides that they have.
    """
    traced = trace(function, args)
    given = [placed(device, each) if isinstance(each, np.ndarray) else each for each in args]
    results = lifetimes.jit(function)(*given)
    got = [each.numpy() for each in (results if isinstance(results, (tuple, list)) else (results,))]
    values = [np.asarray(each, param.dtype) for each, param in zip(args, traced.function.params, strict=False)]
    values += [np.asarray(each) for each in traced.captured]
    agree(got, simplified(traced.function), values)
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
