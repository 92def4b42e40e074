"""Dense random graphs: views of views, rows and what becomes of them, several results, arguments of any layout.

For `tests/host/test_jit_fusion.py` and `tests/unit/compiler/test_lowering.py`.  Programs as one writes them
(`lifetimes.testing.programs`) seldom reach the corners of fusion.  These are made from a seed, step after step, each one
of a kind that changes how elements lie or who needs them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from lifetimes.testing.layouts import laid_out

__all__ = ["arguments", "graph"]

SHAPES: Final = ((4, 6), (6,), (4, 1), (24,), (2, 3, 4), (5, 7, 3), (1, 6), (), (13, 2), (40,), (70, 3), (2, 90))
LARGEST: Final = 4000


def arguments(seed: int) -> list[Any]:
    """Two to four arrays, most of them of one dtype, every other one a view of a larger one."""
    random = np.random.default_rng(seed)
    main = random.choice(["float64", "float64", "float32", "int32"])
    found = []
    for _ in range(random.integers(2, 5)):
        shape = SHAPES[random.integers(len(SHAPES))]
        dtype = main if random.random() < 0.85 else random.choice(["int64", "float32", "bool", "int8"])
        values = random.uniform(-3, 3, shape)
        plain = values > 0 if dtype == "bool" else values.astype(dtype)
        found.append(laid_out(plain, int(random.integers(1, 1000)) if random.random() < 0.5 else 0))
    return found


def graph(seed: int) -> Callable[..., Any]:
    """A function ``program(xp, *arrays)`` of the `arguments` of that seed."""

    def program(xp: Any, *arrays: Any) -> Any:
        random = np.random.default_rng(seed + 1_000_000)
        values = list(arrays)
        for _ in range(random.integers(4, 16)):
            step = STEPS[random.integers(len(STEPS))]
            # What came last is taken most often, so that graphs grow deep.
            at = len(values) - 1 - min(int(random.exponential(1.5)), len(values) - 1)
            made = step(xp, random, values, values[at])
            if made is not None and made.size <= LARGEST:
                values.append(made)
        made = values[len(arrays) :] or values
        chosen = {int(random.integers(len(made))) for _ in range(random.integers(1, 4))} | {len(made) - 1}
        return tuple([made[at] for at in sorted(chosen)])

    return program


def _is_float(x: Any) -> bool:
    return np.dtype(x.dtype).kind == "f"


def _unary(xp: Any, random: Any, values: list[Any], x: Any) -> Any:
    if np.dtype(x.dtype).kind == "b":
        return xp.logical_not(x)
    if not _is_float(x):
        return [lambda: -x, lambda: xp.abs(x), lambda: x * 3 - 1][random.integers(3)]()
    return [
        lambda: xp.sin(x),
        lambda: xp.tanh(x) * 2,
        lambda: xp.sqrt(xp.abs(x) + 1),
        lambda: x * 0.5 + 1.25,
        lambda: xp.exp(xp.minimum(x, 2)) - 1,
        lambda: 1 / (x * x + 1),
    ][random.integers(6)]()


def _binary(xp: Any, random: Any, values: list[Any], x: Any) -> Any:
    others = [y for y in values if _fits(x.shape, y.shape)]
    y = others[random.integers(len(others))]
    kinds = {np.dtype(x.dtype).kind, np.dtype(y.dtype).kind}
    if kinds == {"b"}:
        return xp.logical_or(x, y)
    which = random.integers(5)
    if which == 0:
        return xp.where(x > y if "b" not in kinds else xp.logical_not(x == y), x, y)
    if which == 1:
        return xp.maximum(x, y)
    return x + y if which < 4 or "b" in kinds else x * xp.tanh(y) if _is_float(y) else x - y


def _fits(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        return bool(np.prod(np.broadcast_shapes(a, b)) <= LARGEST)
    except ValueError:
        return False


def _axes(random: Any, x: Any) -> tuple[int, ...]:
    return tuple([axis for axis in range(x.ndim) if random.random() < 0.5])


def _reduce(xp: Any, random: Any, values: list[Any], x: Any) -> Any:
    keep = bool(random.random() < 0.6)
    axes = _axes(random, x)
    if np.dtype(x.dtype).kind == "b":
        return xp.any(x, axis=axes, keepdims=keep)
    which = random.integers(4) if x.size else 1  # nothing has neither a largest nor a smallest
    if which == 0 and x.ndim:
        return xp.argmax(x, axis=int(random.integers(x.ndim)), keepdims=keep)
    made = [xp.min, xp.sum, xp.max, xp.min][which](x, axis=axes, keepdims=keep)
    return made * 0.125 if _is_float(x) and which == 1 else made


def _row(xp: Any, random: Any, values: list[Any], x: Any) -> Any:
    """A reduction, and the same elements with it."""
    if not _is_float(x) or not x.ndim or not x.size:
        return None
    axes = _axes(random, x)
    which = random.integers(3)
    if which == 0:
        e = xp.exp(x - xp.max(x, axis=axes, keepdims=True))
        return e / xp.sum(e, axis=axes, keepdims=True)
    if which == 1:
        return (x - xp.mean(x, axis=axes, keepdims=True)) / (xp.max(xp.abs(x), axis=axes, keepdims=True) + 1)
    return x * xp.sqrt(xp.abs(xp.sum(x, axis=axes, keepdims=True)) + 1)


def _transpose(xp: Any, random: Any, values: list[Any], x: Any) -> Any:
    return xp.permute_dims(x, tuple(random.permutation(x.ndim).tolist()))


def _slice(xp: Any, random: Any, values: list[Any], x: Any) -> Any:
    index = []
    for length in x.shape:
        start = int(random.integers(0, max(length // 2, 1)))
        index.append(
            [slice(None), slice(start, None), slice(None, None, -1), slice(start, None, 2), slice(None, start, -1)][
                random.integers(5)
            ]
        )
    if index and random.random() < 0.3:
        at = int(random.integers(len(index)))
        if x.shape[at]:
            index[at] = int(random.integers(x.shape[at]))
    return x[tuple(index)]


def _reshape(xp: Any, random: Any, values: list[Any], x: Any) -> Any:
    left, shape = x.size, []
    if not left:
        return None
    for _ in range(random.integers(0, 3)):
        divisors = [n for n in range(1, left + 1) if left % n == 0]
        shape.append(int(divisors[random.integers(len(divisors))]))
        left //= shape[-1]
    return xp.reshape(x, (*shape, left))


def _grow(xp: Any, random: Any, values: list[Any], x: Any) -> Any:
    if random.random() < 0.5:
        return xp.expand_dims(x, axis=int(random.integers(x.ndim + 1)))
    return xp.broadcast_to(x, (int(random.integers(1, 4)), *x.shape))


def _count(xp: Any, random: Any, values: list[Any], x: Any) -> Any:
    """Elements that depend on where they are."""
    if not x.ndim or np.dtype(x.dtype).kind == "b":
        return None
    at = xp.arange(x.shape[-1])
    return x + at if np.dtype(x.dtype).kind == "f" else xp.where(at < x.shape[-1] // 2, x, -x)


def _move(xp: Any, random: Any, values: list[Any], x: Any) -> Any:
    if not x.ndim or not x.size:
        return None
    axis = int(random.integers(x.ndim))
    which = random.integers(5)
    if which == 0:
        return xp.concat([x, x[tuple([slice(None, None, -1)] * x.ndim)], x], axis=axis)
    if which == 1:
        return xp.take(x, np.array([0, -1, x.shape[axis] // 2]), axis=axis)
    if which == 2:
        return xp.cumulative_sum(x, axis=axis) if np.dtype(x.dtype).kind != "b" else None
    if which == 3 and np.dtype(x.dtype).kind != "b":
        index = np.array([0, x.shape[axis] - 1, 0, x.shape[axis] + 5])
        return xp.scatter_add(x, index, xp.take(x, np.array([0, 0, -1, -1]), axis=axis), axis=axis)
    if x.ndim == 2 and _is_float(x):
        return xp.matmul(x, xp.permute_dims(x, (1, 0))) * 0.1
    return xp.flip(x, axis=axis)


STEPS: Final = (
    _unary, _unary, _unary, _binary, _binary, _binary, _reduce, _reduce, _row, _row, _transpose, _slice, _slice, _reshape,
    _grow, _count, _move, _move,
)  # fmt: skip
