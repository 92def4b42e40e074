"""Compiled functions against NumPy, numexpr, numba, JAX and Dr.Jit: each computes the same, and the results are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pytest

import lifetimes
from bench.harness import Compare
from bench.jit_work import content, ours, prepare
from bench.measure import Loop
from bench.peers import require

LARGE: Final = 10_000_000


def compared(compare: Compare, program: str, peer: str, bar: float, dtype: str = "float64", count: int = LARGE) -> None:
    """One row: both compute it once a round; results agree to what summing in another order may change."""
    require("llvmlite")
    host = content(program, dtype, count)
    theirs = prepare(program, peer, host)
    assert theirs is not None, f"{peer} has no {program}"
    with lifetimes.open("host", memory_limit="8GiB") as device:
        compute, result = ours(program, device, host)
        compute()
        tolerance = 1e-11 if dtype == "float64" else 1e-4
        np.testing.assert_allclose(result(), np.asarray(theirs()), rtol=tolerance, atol=tolerance)
        compare(_loop(compute, "lifetimes jit"), _loop(theirs, peer), bar=bar)


def _loop(compute: Callable[[], Any], name: str) -> Loop:
    def loop(rounds: Iterator[None]) -> None:
        for _ in rounds:
            compute()

    loop.__name__ = name
    return loop


def bars(**of: float) -> pytest.MarkDecorator:
    """A row for each peer; ours takes at most this share of the peer's time."""
    return pytest.mark.parametrize(("peer", "bar"), of.items(), ids=of)


@bars(numpy=1 / 5, numba=1 / 4, numexpr=1 / 4, jax=1 / 4, drjit=1.25)
def bench_axy(compare: Compare, peer: str, bar: float) -> None:
    """a*x + y*sin(x), 10^7 float64"""
    compared(compare, "a*x + y*sin(x)", peer, bar)


@bars(numpy=1 / 10, jax=1 / 1.5, numba=1.0)
def bench_black_scholes(compare: Compare, peer: str, bar: float) -> None:
    """Black-Scholes, 10^7 float64"""
    compared(compare, "Black-Scholes", peer, bar)


@bars(numba=1.1, numpy=1 / 2)
def bench_distance(compare: Compare, peer: str, bar: float) -> None:
    """sum((a-b)**2), 10^7 float64"""
    compared(compare, "sum((a-b)**2)", peer, bar)


@pytest.mark.parametrize("peer", ["numpy", "jax"])
@pytest.mark.parametrize(
    "program", ["softmax of rows", "sums of columns", "sums of rows", "x*row + 1", "running sums of rows"]
)
def bench_rows(compare: Compare, program: str, peer: str) -> None:
    """10^7 float64"""
    compared(compare, program, peer, 1.0)


@pytest.mark.parametrize(
    ("into", "limit"), [(False, 7e-6), (True, 3e-6)], ids=["into a new array", "into an array that is there"]
)
def bench_launch(compare: Compare, into: bool, limit: float) -> None:
    """a*x + y*sin(x), one element"""
    require("llvmlite")
    jax = prepare("a*x + y*sin(x)", "jax", content("a*x + y*sin(x)", "float64", 1))
    assert jax is not None
    with lifetimes.open("host", memory_limit="64MiB") as device:
        compiled = lifetimes.jit(lambda x, y: 2.5 * x + y * np.sin(x))
        x, y, out = (device.asarray(np.ones(1)) for _ in range(3))

        def launch(rounds: Iterator[None]) -> None:
            for _ in rounds:
                compiled(x, y)

        def launch_into(rounds: Iterator[None]) -> None:
            for _ in rounds:
                compiled.into(out, x, y)

        compare(launch_into if into else launch, _loop(jax, "jax"), limit=limit)
