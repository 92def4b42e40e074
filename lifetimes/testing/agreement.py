"""Whether results are those of a graph, when the last bits of every step are open.

A fixed tolerance is wrong for random programs: after a subtraction of near numbers nothing of a result may be certain,
and where a float decides a comparison a last bit changes everything.  So where results are not near at once, the graph is
interpreted several times, each time with other last bits and with sums added in another order, and how far the results
move says how far they may differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from lifetimes.compiler import ops
from lifetimes.compiler.interpret import interpret
from lifetimes.compiler.ir import Function, Node
from lifetimes.testing.eager import quiet

__all__ = ["assert_computes"]

SUMMING: Final = ("reduce", "scan", "matmul", "scatter_add")
"""What adds up, in an order of its own: the arguments move, too, and not only the result."""
EXACT: Final = frozenset({
    "negative", "abs", "select", "maximum", "minimum", "copysign", "nextafter", "floor", "ceil", "trunc", "round",
})  # fmt: skip
"""Rows of floats that have one right answer."""


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
        assert len(results) == len(plain), f"{len(results)} results instead of {len(plain)}"
        got = [np.asarray(each) for each in results]
        for at, (each, want) in enumerate(zip(got, plain, strict=True)):
            assert (each.dtype, each.shape) == (want.dtype, want.shape), (
                f"result {at} is {each.dtype} {each.shape}, not {want.dtype} {want.shape}"
            )
        if all(_near(each, want, 0, ulps).all() for each, want in zip(got, plain, strict=True)):
            return sum(each.size for each in plain)
        random = np.random.default_rng(seed)
        moved = [_moved(function, values, random, ulps) for _ in range(rounds)]
        return sum(_compare(at, got[at], plain[at], [each[at] for each in moved], ulps) for at in range(len(plain)))


def _near(got: Any, plain: Any, spread: Any, ulps: float) -> Any:
    """For each element whether it is near enough, ``spread`` being how far it moves."""
    if plain.dtype.kind != "f":
        return got == plain
    info = np.finfo(plain.dtype)
    # Few rounds find most of the spread, seldom the whole; below the normal numbers a step is as large as the smallest.
    allowed = 4 * spread + ulps * info.eps * np.abs(plain) + ulps * info.smallest_subnormal
    same = (got == plain) | (np.isnan(got) & np.isnan(plain))
    return same | (np.isfinite(plain) & (np.abs(got - plain) <= allowed))


def _moved(function: Function, values: Sequence[Any], random: np.random.Generator, ulps: float) -> list[Any]:
    """The results of the graph, with other last bits after each step that rounds, and sums in another order."""

    def move(value: Any, terms: int = 1) -> Any:
        if value.dtype.kind != "f":
            return value
        # What is added up step by step is away by about the square root of the number of steps.
        step = np.finfo(value.dtype).eps * ulps * max(1.0, np.sqrt(terms) / 4)
        factor = 1 + step * random.uniform(-1, 1, value.shape)
        return np.asarray(value * factor.astype(value.dtype), value.dtype)

    known: dict[int, Any] = {id(param): np.asarray(value) for param, value in zip(function.params, values, strict=True)}
    for node in function.nodes():
        if node.op == "param":
            continue
        args = [known[id(arg)] for arg in node.args]
        if _rounds(node):
            if node.op in SUMMING:
                args = [move(arg) for arg in _in_another_order(node, args, random)]
            plain = _scanned_in_blocks(node, args[0], random) if node.op == "scan" else ops.evaluate(node, *args)
            known[id(node)] = move(plain, _terms(node))
        else:
            known[id(node)] = ops.evaluate(node, *args)
    return [known[id(out)] for out in function.outs]


def _in_another_order(node: Node, args: list[Any], random: np.random.Generator) -> list[Any]:
    """What is reduced, shuffled along the axes that go: with infinities on the way, the order decides."""
    if node.op != "reduce":
        return args
    (value,) = args
    for axis in node.attr("axes"):
        value = np.take(value, random.permutation(value.shape[axis]), axis)
    return [value]


def _scanned_in_blocks(node: Node, value: Any, random: np.random.Generator) -> Any:
    """The running sum or product of each block, of a few elements, continued from the end of the block before."""
    axis = int(node.attr("axis"))
    cuts = 1 + np.flatnonzero(random.random(max(value.shape[axis] - 1, 0)) < 0.4)
    running, join = (np.cumsum, np.add) if node.attr("kind") == "sum" else (np.cumprod, np.multiply)
    made: list[Any] = []
    for block in np.split(value, cuts, axis):
        own = running(block, axis=axis, dtype=node.dtype)
        made.append(join(np.take(made[-1], [-1], axis), own) if made else own)
    return np.concatenate(made, axis)


def _terms(node: Node) -> int:
    """About how many numbers are added up for one element."""
    if node.op == "scan":
        return node.shape[int(node.attr("axis"))]
    if node.op == "matmul":
        return node.args[0].shape[-1]
    if node.op in ("reduce", "scatter_add"):
        return node.args[-1].size // max(node.size, 1)
    return 1


def _rounds(node: Node) -> bool:
    """Whether two right answers to the operation may differ in their last bits."""
    if node.dtype.kind != "f" or node.op in EXACT:
        return False
    if node.op in SUMMING:
        return dict(node.attrs).get("kind") not in ("min", "max")
    return node.op in ops.ROWS


def _compare(at: int, got: Any, plain: Any, moved: list[Any], ulps: float) -> int:
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
        wrong = certain & ~_near(got, plain, spread, ulps)
    if np.any(wrong):
        where = tuple(int(each[0]) for each in np.nonzero(np.atleast_1d(wrong)))
        one, want = np.atleast_1d(got)[where], np.atleast_1d(plain)[where]
        raise AssertionError(
            f"result {at}, element {where}: {one!r} instead of {want!r} ({int(np.sum(wrong))} are wrong)"
        )
    return int(np.sum(certain))
