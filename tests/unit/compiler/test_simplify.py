"""Each rule of the simplifier, what it makes and what it must leave alone; and that it keeps every value."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from lifetimes.compiler import functions as xp
from lifetimes.compiler.interpret import interpret
from lifetimes.compiler.ir import Function
from lifetimes.compiler.passes.simplify import simplify
from lifetimes.compiler.rewrites import arithmetic, views
from lifetimes.compiler.text import to_text
from lifetimes.compiler.trace import trace
from lifetimes.compiler.verify import verify
from lifetimes.testing.programs import Program, programs
from tests.tracing import graph, same_bits

FLOATS = np.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 5e-324, 1.7e308])
SINGLES = FLOATS[:7].astype(np.float32)
INTS = np.array([0, 1, -1, 7, -128, 127], np.int8)
UINTS = np.array([0, 1, 255, 128], np.uint8)
BOOLS = np.array([True, False])
CUBE = np.arange(24.0).reshape(2, 3, 4)


def operations(function: Function) -> list[str]:
    """The operations that are left, constants and their broadcasts apart."""
    return [node.op for node in simplify(function).nodes() if node.op not in ("param", "const", "broadcast")]


# What it does: a function, an argument, and the operations that are left of it.
SIMPLER: list[tuple[Any, Any, list[str]]] = [
    (lambda x: x + -0.0, FLOATS, []),
    (lambda x: -0.0 + x, FLOATS, []),
    (lambda x: x + 0, INTS, []),
    (lambda x: x - 0.0, FLOATS, []),
    (lambda x: x - 0, INTS, []),
    (lambda x: x - x, INTS, []),
    (lambda x: x * 1.0, FLOATS, []),
    (lambda x: 1 * x, INTS, []),
    (lambda x: x * 0, INTS, []),
    (lambda x: x / 1, FLOATS, []),
    (lambda x: x / 4, FLOATS, ["multiply"]),
    (lambda x: x / -0.5, SINGLES, ["multiply"]),
    (lambda x: x // 1, INTS, []),
    (lambda x: x + -x, FLOATS, ["subtract"]),
    (lambda x: -x + 2, INTS, ["subtract"]),
    (lambda x: x - -x, FLOATS, ["add"]),
    (lambda x: xp.negative(-x), FLOATS, []),
    (lambda x: xp.negative(-x), UINTS, []),
    (lambda x: ~(~x), INTS, []),
    (lambda x: ~(x < 3), INTS, ["greater_equal"]),
    (lambda x: ~(x == 1.5), FLOATS, ["not_equal"]),
    (lambda x: abs(-x), FLOATS, ["abs"]),
    (lambda x: abs(abs(x)), INTS, ["abs"]),
    (abs, UINTS, []),
    (lambda x: xp.floor(xp.ceil(x)), FLOATS, ["ceil"]),
    (lambda x: xp.pow(x, 1), FLOATS, []),
    (lambda x: xp.maximum(x, x), FLOATS, []),
    (lambda x: xp.minimum(x, x), INTS, []),
    (lambda x: x & x, INTS, []),
    (lambda x: x & -1, INTS, []),
    (lambda x: x & 0, INTS, []),
    (lambda x: x & 255, UINTS, []),
    (lambda x: x | 0, INTS, []),
    (lambda x: x | -1, INTS, []),
    (lambda x: x & True, BOOLS, []),
    (lambda x: x | True, BOOLS, []),
    (lambda x: x + False, BOOLS, []),
    (lambda x: x * x, BOOLS, []),
    (lambda x: x ^ x, INTS, []),
    (lambda x: x ^ 0, INTS, []),
    (lambda x: x << 0, INTS, []),
    (lambda x: x == x, INTS, []),
    (lambda x: x < x, UINTS, []),
    (lambda x: xp.where(x > 0, x, x), FLOATS, []),
    (lambda x: xp.where(np.True_, x, 2), FLOATS, []),
    (lambda x: xp.where(~(x > 0), x, 2), FLOATS, ["greater", "select"]),
    (lambda x: x.astype("float64").astype("float32"), SINGLES, []),
    (lambda x: x.astype("int64").astype("int16"), INTS, ["cast"]),
    (lambda x: x.astype("float32").astype("float64"), INTS, ["cast"]),
    (lambda x: x.astype("int32").astype("bool"), INTS, ["cast"]),
    (lambda x: x.astype("int8").astype("bool"), BOOLS, []),
    (lambda x: x.T.T, CUBE, []),
    (lambda x: xp.permute_dims(xp.permute_dims(x, (1, 2, 0)), (2, 1, 0)), CUBE, ["transpose"]),
    (lambda x: x[1:][:, ::2][:, ::-1], CUBE, ["slice"]),
    (lambda x: x[::-1][::-1], CUBE, []),
    (lambda x: xp.squeeze(x[:, None], axis=1), CUBE, []),
    (lambda x: x.reshape(6, 4).reshape(4, 6), CUBE, ["reshape"]),
    (lambda x: x.reshape(24).reshape(2, 3, 4), CUBE, []),
    (lambda x: x.reshape(2, 1, 3, 4), CUBE, ["expand"]),
    (lambda x: x[:1, :1].reshape(4), CUBE, ["slice", "squeeze"]),
    (lambda x: x[0, 0].reshape(1, 4, 1), CUBE, ["slice", "squeeze", "expand"]),
    (lambda x: xp.sum(x[:, :1], axis=1), CUBE, ["slice", "squeeze"]),
    (lambda x: xp.sum(x, axis=()), CUBE, []),
    (lambda x: xp.argmax(x[:, :1], axis=1), CUBE, []),
    (lambda x: xp.cumulative_sum(x[:1], axis=0), CUBE, ["slice"]),
    (lambda x: xp.concat([x, x[:0], x]), CUBE, ["concat"]),
    (lambda x: xp.concat([x[:0], x]), CUBE, []),
    (lambda x: xp.add(xp.sin(xp.zeros(3)), xp.exp(0.0)), CUBE, []),
    (lambda x: xp.max(xp.ones((3, 2)), axis=0), CUBE, []),
    (lambda x: xp.add(xp.full((3, 2), 7).T[0], 1), CUBE, []),
    (lambda x: xp.astype(xp.full((3,), 2.9), "int8"), CUBE, []),
    (lambda x: x[None] + xp.zeros((1, 2, 3, 4)), INTS[:4], ["expand", "cast", "add"]),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(SIMPLER)))
def test_a_rule_makes_less_of_it_and_keeps_the_value(case: int) -> None:
    use, x, left = SIMPLER[case]
    traced = trace(use, (x,))
    assert operations(traced.function) == left
    values = [x, *traced.captured]
    for got, wanted in zip(
        interpret(verify(simplify(traced.function)), *values), interpret(traced.function, *values), strict=True
    ):
        same_bits(got, wanted)


# What looks alike and would change a value.
LEFT: list[tuple[Any, Any, list[str]]] = [
    (lambda x: x + 0.0, FLOATS, ["add"]),  # -0.0 becomes 0.0
    (lambda x: x - -0.0, FLOATS, ["subtract"]),
    (lambda x: x * 0.0, FLOATS, ["multiply"]),  # NaN of infinity
    (lambda x: x - x, FLOATS, ["subtract"]),
    (lambda x: x / x, FLOATS, ["divide"]),
    (lambda x: x / 3, FLOATS, ["divide"]),
    (lambda x: x / 2.0**1023, FLOATS, ["divide"]),  # whose inverse is not a normal number
    (lambda x: x / 0.0, FLOATS, ["divide"]),
    (lambda x: x // 1, FLOATS, ["floor_divide"]),
    (lambda x: ~(x < 3), FLOATS, ["less", "bitwise_invert"]),  # of NaN both are false
    (lambda x: x == x, FLOATS, ["equal"]),
    (lambda x: abs(-x), UINTS, ["negative"]),
    (lambda x: x.astype("float32").astype("float64"), FLOATS[:5], ["cast", "cast"]),
    (lambda x: x.astype("int8").astype("int64"), np.array([300, -1]), ["cast", "cast"]),
    (lambda x: x.astype("float64").astype("int64"), np.array([2**53 + 1]), ["cast", "cast"]),
    (lambda x: x.astype("bool").astype("int8"), INTS, ["cast", "cast"]),
    (lambda x: x.astype("float32").astype("uint8"), INTS[:2], ["cast", "cast"]),  # of -1 the answer is the target's own
    (lambda x: xp.astype(xp.full((), np.inf), "int8"), FLOATS, ["cast"]),
    (lambda x: xp.astype(xp.full((), 300.0), "int8"), FLOATS, ["cast"]),
    (lambda x: xp.sum(xp.ones(3)), FLOATS, ["reduce"]),
    (lambda x: xp.concat([xp.zeros(1), xp.full(1, -0.0)]), FLOATS, ["concat"]),
    (lambda x: x[::2], CUBE, ["slice"]),
    (lambda x: x[:, ::-1][::-1], CUBE[:, :1][:1].repeat(2, 0), ["slice"]),
    (lambda x: x.reshape(3, 2, 4), CUBE, ["reshape"]),
    (lambda x: xp.squeeze(x[None], axis=1), CUBE[:, :1][:1], ["expand", "squeeze"]),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(LEFT)))
def test_what_would_change_a_value_is_left_alone(case: int) -> None:
    use, x, left = LEFT[case]
    assert operations(graph(use, x)) == left


ALIKE = {"round", "trunc", "shift_right", "less_equal", "greater_equal", "greater", "not_equal"}
"""Which share the rule of another."""


def test_every_rule_has_a_case() -> None:
    tried = {node.op for use, x, _ in SIMPLER for node in graph(use, x).nodes()}
    assert set(arithmetic.REWRITES) | set(views.REWRITES) <= tried | ALIKE


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(programs())
def test_random_programs_keep_their_values_and_are_simple_at_once(program: Program) -> None:
    function = program.function
    traced = trace(lambda *args: function(xp, *args), program.arguments)
    values = [*program.arguments, *traced.captured]
    simple = verify(simplify(traced.function))
    for got, wanted in zip(interpret(simple, *values), interpret(traced.function, *values), strict=True):
        same_bits(got, wanted)
    assert to_text(simplify(simple)) == to_text(simple)
    assert len(simple.nodes()) <= 2 * len(traced.function.nodes())


def test_a_wrong_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison is checked: the tempting rule ``x + 0.0 -> x`` is planted."""
    module = importlib.import_module("lifetimes.compiler.passes.simplify")  # the package has the function by that name
    right = arithmetic.REWRITES["add"]
    monkeypatch.setitem(
        module._REWRITES, "add", lambda b, node: node.args[0] if arithmetic._is(node.args[1], 0.0) else right(b, node)
    )
    wrong = graph(lambda x: x + 0.0, FLOATS)
    with pytest.raises(AssertionError):
        same_bits(interpret(simplify(wrong), FLOATS)[0], interpret(wrong, FLOATS)[0])


def test_a_deep_chain_is_simplified() -> None:
    def chain(x: Any) -> Any:
        for _ in range(3000):
            x = -x * 1.0
        return x

    assert operations(graph(chain, FLOATS)) == []
