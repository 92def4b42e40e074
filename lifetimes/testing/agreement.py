"""Whether results are those of a graph, when the last bits of every step are open.

A fixed tolerance is wrong for random programs: after a subtraction of near numbers nothing of a result may be certain,
and where a float decides a comparison a last bit changes everything.  So the graph is interpreted several times, each
time with other last bits, and how far the results move says how far they may differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lifetimes.compiler import ops
from lifetimes.compiler.interpret import interpret
from lifetimes.compiler.ir import Function, Node
from lifetimes.testing.eager import quiet

__all__ = ["assert_computes"]

SUMMING = ("reduce", "scan", "matmul", "scatter_add")
"""What adds up, in an order of its own: the arguments move, too, and not only the result."""


def assert_computes(
    function: Function,
    values: Sequence[Any],
    results: Sequence[Any],
    *,
    ulps: float = 4,
    rounds: int = 6,
    seed: int = 0,
) -> int:
    """Check that ``results`` are what ``function`` gives for ``values``, if each step is right to ``ulps`` last bits.

    Dtypes and shapes must be the same.  An element that changes altogether under other last bits (an integer or a bool, a
    float that is not always finite) is not compared.  Returns how many elements were.
    Errors: `AssertionError` that names the result and its worst element.

    >>> from lifetimes.compiler.spec import spec
    >>> from lifetimes.compiler.trace import trace
    >>> f = trace(lambda x: x * x, (spec(3),)).function
    >>> assert_computes(f, [np.arange(3.0)], [np.array([0.0, 1.0, 4.0 + 1e-15])])
    3
    """
    with quiet():
        plain = interpret(function, *values)
        random = np.random.default_rng(seed)
        moved = [_moved(function, values, random, ulps) for _ in range(rounds)]
        assert len(results) == len(plain), f"{len(results)} results instead of {len(plain)}"
        return sum(
            _compare(at, np.asarray(got), plain[at], [each[at] for each in moved], ulps)
            for at, got in enumerate(results)
        )


def _moved(function: Function, values: Sequence[Any], random: np.random.Generator, ulps: float) -> list[Any]:
    """The results of the graph, with other last bits after each step that rounds."""

    def move(value: Any) -> Any:
        if value.dtype.kind != "f":
            return value
        step = np.finfo(value.dtype).eps * ulps
        factor = 1 + step * random.uniform(-1, 1, value.shape)
        return np.asarray(value * factor.astype(value.dtype), value.dtype)

    known: dict[int, Any] = {id(param): np.asarray(value) for param, value in zip(function.params, values, strict=True)}
    for node in function.nodes():
        if node.op != "param":
            args = [known[id(arg)] for arg in node.args]
            known[id(node)] = move(_step(node, args, move)) if _rounds(node) else ops.evaluate(node, *args)
    return [known[id(out)] for out in function.outs]


def _step(node: Node, args: list[Any], move: Any) -> Any:
    summing = node.op in SUMMING and dict(node.attrs).get("kind") not in ("min", "max", "argmin", "argmax")
    return ops.evaluate(node, *[move(arg) for arg in args] if summing else args)


def _rounds(node: Node) -> bool:
    """Whether two right answers to the operation may differ in their last bits."""
    if node.op in (
        "negative",
        "abs",
        "select",
        "maximum",
        "minimum",
        "copysign",
        "nextafter",
        "floor",
        "ceil",
        "trunc",
        "round",
    ):
        return False
    return node.dtype.kind == "f" and (node.op in ops.ROWS or node.op in SUMMING)


def _compare(at: int, got: Any, plain: Any, moved: list[Any], ulps: float) -> int:
    assert (got.dtype, got.shape) == (plain.dtype, plain.shape), (
        f"result {at} is {got.dtype} {got.shape}, not {plain.dtype} {plain.shape}"
    )
    if plain.dtype.kind != "f":
        certain = np.all([each == plain for each in moved], axis=0)
        wrong = certain & (got != plain)
    else:
        finite = np.isfinite(plain)
        same = [
            (np.isfinite(each) == finite) & (finite | (each == plain) | (np.isnan(each) & np.isnan(plain)))
            for each in moved
        ]
        certain = np.all(same, axis=0)
        spread = np.max([np.abs(np.where(certain & finite, each - plain, 0)) for each in moved], axis=0)
        info = np.finfo(plain.dtype)
        # Few rounds find most of the spread, seldom the whole; below the normal numbers a step is as large as the smallest.
        allowed = 4 * spread + ulps * info.eps * np.abs(plain) + ulps * info.smallest_subnormal
        near = np.where(finite, np.abs(got - plain) <= allowed, (got == plain) | (np.isnan(got) & np.isnan(plain)))
        wrong = certain & ~near
    if np.any(wrong):
        where = tuple(int(each[0]) for each in np.nonzero(np.atleast_1d(wrong)))
        one, want = np.atleast_1d(got)[where], np.atleast_1d(plain)[where]
        raise AssertionError(
            f"result {at}, element {where}: {one!r} instead of {want!r} ({int(np.sum(wrong))} are wrong)"
        )
    return int(np.sum(certain))
