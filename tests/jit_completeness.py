"""Every operation with every dtype, compiled and run for one target: ``python -m tests.jit_completeness avx2``.

LLVM aborts the process where a target cannot do something, so `tests/host/test_jit_ops.py` runs this in a process of its
own.  Each line says what is about to be tried, so the last line names what the process died of.  Several operations
share a kernel, unless ``singly`` is said.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

import lifetimes
from lifetimes.compiler import apply, settings
from lifetimes.compiler import functions as xp
from lifetimes.compiler.ir import DTYPES
from lifetimes.compiler.ops import ROWS
from lifetimes.compiler.ops.structural import REDUCTIONS, SCANS
from tests.jitting import check

LENGTHS = (0, 1, 203)  # nothing; a single element, which has no vectors; full vectors, unrolled ones, and a tail
DOMAINS = {
    "acosh": (1.0, 50.0), "asin": (-1.0, 1.0), "acos": (-1.0, 1.0), "atanh": (-0.99, 0.99), "log": (0.0, 50.0),
    "log2": (0.0, 50.0), "log10": (0.0, 50.0), "log1p": (-0.9, 50.0), "sqrt": (0.0, 50.0), "pow": (0.1, 4.0),
}  # fmt: skip


def sample(dtype: np.dtype[Any], length: int, at: int, low: float = -8.0, high: float = 8.0) -> Any:
    """Ordinary values, and in long samples the extremes."""
    random = np.random.default_rng(7 + at)
    if dtype.kind == "b":
        return random.integers(0, 2, length).astype(bool)
    if dtype.kind == "f":
        values = random.uniform(low, high, length).astype(dtype)
        if length > 100:
            extremes = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -1.0, np.finfo(dtype).tiny, 0.5, -0.5, 2.0, -2.0]
            places = range(0, length, 17)[: len(extremes)]
            values[places] = extremes[: len(places)]
        return values
    limits = np.iinfo(dtype)
    values = random.integers(max(limits.min, -9), 10, length).astype(dtype)
    if length > 100:
        values[::13] = random.choice(
            np.array([limits.min, limits.max, 0, 1, limits.max // 2], dtype), len(values[::13])
        )
    return values


QUICK = ("bool", "int8", "uint32", "float32", "float64")
"""A dtype of each kind and of the widths that differ most."""

Case: TypeAlias = tuple[str, Callable[..., Any], list[Any]]
"""A name, a function, and the arguments that it is tried with."""


def rows(dtype: np.dtype[Any]) -> Iterator[Case]:
    """Every row that computes with the dtype."""
    for row in ROWS.values():
        if dtype.kind not in row.kinds:
            continue
        for length in LENGTHS:
            bounds = DOMAINS.get(row.name, (-8.0, 8.0))
            args = [sample(dtype, length, at, *bounds) for at in range(row.arity)]
            if row.result == "select":
                args[0] = sample(np.dtype(bool), length, 9)
            yield f"{row.name} {dtype} {length}", partial(apply.make, row.name), args


def casts(source: np.dtype[Any], dtypes: Sequence[np.dtype[Any]]) -> Iterator[Case]:
    """To every dtype.  What does not fit an integer, and NaN, is open."""
    for dtype in dtypes:
        values = sample(source, 203, 0)
        if source.kind == "f" and dtype.kind in "iu":
            low = -8 if dtype.kind == "i" else 0
            values = np.random.default_rng(1).uniform(low, 8, 203).astype(source)
        yield f"cast {source} {dtype}", lambda x, dtype=dtype: apply.cast(x, dtype), [values]


def along_axes(dtype: np.dtype[Any]) -> Iterator[Case]:
    """Reductions and scans, with the lanes along what is reduced and across it."""
    for shape, axes in (((203,), (0,)), ((7, 29), (0,)), ((3, 5, 19), (0, 2)), ((1,), (0,))):
        values = sample(dtype, int(np.prod(shape)), 0, 0.5, 1.5).reshape(shape)
        for kind in REDUCTIONS:
            if (kind in ("any", "all")) != (dtype.kind == "b"):
                continue
            given = values
            if kind == "prod" and dtype.kind == "f":
                given = np.where(np.isfinite(values) & (np.abs(values) > 0.1), values, dtype.type(1))
            yield f"{kind} {dtype} {shape} {axes}", partial(apply.make, "reduce", kind=kind, axes=axes), [given]
    for shape, axis in (((203,), 0), ((29, 7), 0), ((7, 29), 1)):
        values = np.clip(sample(dtype, int(np.prod(shape)), 0, 0.9, 1.1), 0, 3).reshape(shape).astype(dtype)
        for kind in SCANS if dtype.kind != "b" else ():
            yield f"scan {kind} {dtype} {shape} {axis}", partial(apply.make, "scan", kind=kind, axis=axis), [values]


def others(dtype: np.dtype[Any]) -> Iterator[Case]:
    """What moves elements, and products of matrices."""
    values = sample(dtype, 60, 0).reshape(5, 12)
    index = np.array([0, 3, -2, 11, 99, 3])
    updates = sample(dtype, 30, 1).reshape(5, 6)
    square = sample(dtype, 144, 0, 0.5, 1.5).reshape(12, 12)
    square = np.where(np.isfinite(square), square, dtype.type(1)) if dtype.kind == "f" else square
    yield f"gather {dtype}", lambda x, i: (xp.take(x, i, axis=1), xp.take(x, i, axis=0)), [values, index]
    yield f"scatter_add {dtype}", lambda x, i, u: xp.scatter_add(x, i, u, axis=1), [values, index, updates]
    yield f"concat {dtype}", lambda x, y: xp.concat([x, y, x], axis=0), [values, values[1:3]]
    yield f"matmul {dtype}", lambda x: xp.matmul(x, x), [square]


def together(cases: Iterator[Case], most: int = 12) -> Iterator[Case]:
    """Several at once, which compiles faster: functions of several results, of all that have as many elements."""
    waiting: dict[tuple[int, ...], list[Case]] = {}
    for case in cases:
        sizes = tuple([each.size for each in case[2]][:1])
        waiting.setdefault(sizes, []).append(case)
    for group in waiting.values():
        for at in range(0, len(group), most):
            yield _joined(group[at : at + most])


def _joined(cases: list[Case]) -> Case:
    def function(*args: Any) -> Any:
        found: list[Any] = []
        rest = list(args)
        for _, each, own in cases:
            made = each(*rest[: len(own)])
            found += made if isinstance(made, tuple) else (made,)
            del rest[: len(own)]
        return tuple(found)

    return "; ".join(title for title, _, _ in cases), function, [arg for _, _, own in cases for arg in own]


def main(name: str, quick: bool, singly: bool) -> int:
    """Try everything; the status is the number of failures, 100 at most.  ``singly`` names what fails."""
    failed = 0
    dtypes = [dtype for dtype in DTYPES if not quick or dtype.name in QUICK]
    with settings.using(name), lifetimes.open("host", memory_limit="16MiB") as device:
        for dtype in dtypes:
            for cases in (rows(dtype), casts(dtype, dtypes), along_axes(dtype), others(dtype)):
                for title, function, args in cases if singly else together(cases):
                    print(title, flush=True)
                    try:
                        check(device, function, *args)
                    except Exception as error:
                        failed += 1
                        print(f"FAILED {title}: {type(error).__name__}: {error}", flush=True)
    print("all was tried", flush=True)
    return min(failed, 100)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "quick" in sys.argv, "singly" in sys.argv))
