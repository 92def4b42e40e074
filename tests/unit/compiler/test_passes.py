"""The list of passes: each keeps values and the rules of graphs, has a golden before and after, and can be watched."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from lifetimes.compiler import functions as xp
from lifetimes.compiler import passes
from lifetimes.compiler.interpret import interpret
from lifetimes.compiler.ir import Function
from lifetimes.compiler.passes import PIPELINE, Pass, simplified, watching
from lifetimes.compiler.text import parse, to_text
from lifetimes.compiler.trace import trace
from lifetimes.compiler.verify import verify
from lifetimes.errors import VerifyError
from lifetimes.testing.programs import Program, programs
from tests.tracing import graph, same_bits

X = np.linspace(-2, 2, 6).reshape(2, 3)

GOLDEN = {
    "simplify": (
        """\
function(%0: float64[2, 3], %1: float64[3]) {
  %2: float64[1, 3] = expand(%1) {axes=(0,)}
  %3: float64[2, 3] = broadcast(%2)
  %4: float64[2, 3] = negative(%3)
  %5: float64[2, 3] = add(%0, %4)
  %6: float64[] = const() {value=1.0}
  %7: float64[2, 3] = broadcast(%6)
  %8: float64[2, 3] = multiply(%5, %7)
  %9: float64[2, 3] = add(%7, %7)
  %10: float64[2, 3] = divide(%8, %9)
  return %10
}""",
        """\
function(%0: float64[2, 3], %1: float64[3]) {
  %2: float64[2, 3] = broadcast(%1)
  %3: float64[2, 3] = subtract(%0, %2)
  %4: float64[] = const() {value=0.5}
  %5: float64[2, 3] = broadcast(%4)
  %6: float64[2, 3] = multiply(%3, %5)
  return %6
}""",
    ),
}
"""For each pass of the list: a graph that shows what it does, and what it makes of that."""


@pytest.mark.parametrize("each", PIPELINE, ids=lambda each: each.name)
def test_before_and_after(each: Pass) -> None:
    before, after = GOLDEN[each.name]
    assert to_text(each.run(parse(before))) == after


@pytest.mark.parametrize("each", PIPELINE, ids=lambda each: each.name)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(program=programs())
def test_a_pass_keeps_values_types_and_rules(each: Pass, program: Program) -> None:
    function = program.function
    traced = trace(lambda *args: function(xp, *args), program.arguments)
    values = [*program.arguments, *traced.captured]
    before = to_text(traced.function)
    after = verify(each.run(traced.function))
    assert to_text(traced.function) == before  # what a pass is given stays as it is
    assert [(each.dtype, each.shape) for each in after.params] == [(p.dtype, p.shape) for p in traced.function.params]
    for got, wanted in zip(interpret(after, *values), interpret(traced.function, *values), strict=True):
        same_bits(got, wanted)


def test_the_names_differ() -> None:
    assert len({each.name for each in PIPELINE}) == len(PIPELINE)


def test_each_pass_can_be_watched() -> None:
    told: list[tuple[str, str, str]] = []
    function = graph(lambda x: xp.negative(-x), X)
    with watching(lambda name, before, after: told.append((name, to_text(before), to_text(after)))):
        after = simplified(function)
    assert [name for name, _, _ in told] == [each.name for each in PIPELINE]
    assert told[0][1] == to_text(function)
    assert told[-1][2] == to_text(after)
    assert [before for _, before, _ in told[1:]] == [after for _, _, after in told[:-1]]
    simplified(function)
    assert len(told) == len(PIPELINE)


def test_watchers_are_told_in_their_order_and_in_every_thread() -> None:
    told: list[str] = []
    function = graph(lambda x: x + 1, X)
    with watching(lambda *_: told.append("first")), watching(lambda *_: told.append("second")):
        thread = threading.Thread(target=simplified, args=(function,))
        thread.start()
        thread.join()
    assert told == ["first", "second"] * len(PIPELINE)


def broken(function: Function) -> Function:
    """A pass that forgets a dtype."""
    return parse(to_text(function).replace("float64[2, 3] = sin", "float32[2, 3] = sin"))


def test_the_verifier_between_passes_finds_what_a_pass_broke() -> None:
    function = graph(lambda x: xp.sin(x), X)
    with (
        watching(lambda name, before, after: verify(after)),
        pytest.raises(VerifyError, match=r"should be float64\[2, 3\]"),
    ):
        passes.run(function, [*PIPELINE, Pass("broken", broken)])
    assert not passes._watchers


def test_another_list_of_passes_can_be_run() -> None:
    function = graph(lambda x: xp.negative(-x), X)
    assert passes.run(function, []) is function
    twice = passes.run(function, [*PIPELINE, *PIPELINE])
    assert to_text(twice) == to_text(simplified(function))
