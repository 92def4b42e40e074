"""The text of a graph reads back as the graph, bit for bit; what is no graph is refused with its line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lifetimes.compiler import functions as xp
from lifetimes.compiler import ops
from lifetimes.compiler.interpret import interpret
from lifetimes.compiler.ir import DTYPES, Builder, Function, exact
from lifetimes.compiler.text import parse, to_text
from lifetimes.compiler.trace import trace
from lifetimes.compiler.verify import verify
from lifetimes.errors import VerifyError
from lifetimes.testing.programs import Program, programs
from tests.tracing import graph, same_bits

X = np.arange(6.0).reshape(2, 3)

GOLDEN = """\
function(%0: float64[2, 3], %1: int8[]) {
  %2: float64[] = const() {value=-0.0}
  %3: float64[2, 3] = broadcast(%2)
  %4: bool[2, 3] = less(%0, %3)
  %5: float64[] = cast(%1)
  %6: float64[2, 3] = broadcast(%5)
  %7: float64[2, 3] = select(%4, %0, %6)
  %8: float64[2] = reduce(%7) {axes=(1,), kind="sum"}
  %9: float64[3, 2] = transpose(%0) {axes=(1, 0)}
  return %8, %9
}"""


def test_a_graph_reads_as_one_would_write_it() -> None:
    function = graph(lambda x, n: (xp.sum(xp.where(x < -0.0, x, n), axis=1), x.T), X, np.int8(1))
    assert to_text(function) == GOLDEN
    assert to_text(parse(GOLDEN)) == GOLDEN


def literals() -> list[Any]:
    """BUG-062: infinities, NaN, zeros, denormals, ends of every range."""
    found: list[Any] = [np.True_, np.False_]
    for dtype in DTYPES:
        if dtype.kind in "iu":
            found += [dtype.type(end) for end in (np.iinfo(dtype).min, np.iinfo(dtype).max, 1)]
        if dtype.kind == "f":
            numbers = (
                np.inf,
                -np.inf,
                np.nan,
                0.0,
                -0.0,
                1.0,
                0.1,
                1 / 3,
                2.0**-126,
                1e-40,
                2.0**-149,
                float(np.finfo(dtype).max),
            )
            found += [dtype.type(number) for number in numbers]
    found += [np.float64(5e-324), np.float64(1e308), np.float64(1.5e300), np.float64(float.fromhex("0x1.fffffep127"))]
    bits = [0x7FF8000000000001, 0xFFF8000000000000, 0x7FF0000000000001]
    return [
        *found,
        *np.array(bits, np.uint64).view(np.float64),
        *np.array([0x7FC00001, 0xFFC00000], np.uint32).view(np.float32),
    ]


@pytest.mark.parametrize("value", literals(), ids=lambda value: f"{value!r}")
def test_a_literal_reads_back_bit_for_bit(value: Any) -> None:
    """BUG-062: AccelerateHS/accelerate#136, an infinity printed as a word that nobody knew."""
    builder = Builder()
    function = Function((), (ops.make(builder, "const", value=value),))
    again = parse(to_text(function))
    read = again.outs[0].attr("value")
    assert type(read) is type(value)
    assert read.tobytes() == value.tobytes()
    assert to_text(again) == to_text(function)


@given(st.integers(0, 2**32 - 1))
def test_every_float32_reads_back(bits: int) -> None:
    value = np.array(bits, np.uint32).view(np.float32)[()]
    read = parse(to_text(Function((), (ops.make(Builder(), "const", value=value),)))).outs[0].attr("value")
    assert read.tobytes() == value.tobytes()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, -0.0, 5e-324, 1e308, float.fromhex("0x1.fffffep127")])
def test_literals_keep_their_bits_in_a_function(value: float) -> None:
    """BUG-062: ``x + c`` and ``where(x > c, x, c)``, through text and back."""
    x = np.array([1.0, -0.0, np.inf, np.nan, -1e308])
    function = graph(lambda x: (x + value, xp.where(x > value, x, value)), x)
    with np.errstate(all="ignore"):
        wanted = (x + value, np.where(x > value, x, value))
    for got, want in zip(interpret(parse(to_text(function)), x), wanted, strict=True):
        same_bits(got, want)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(programs())
def test_random_graphs_read_back(program: Program) -> None:
    function = program.function
    first = trace(lambda *args: function(xp, *args), program.arguments).function
    text = to_text(first)
    again = verify(parse(text))
    assert to_text(again) == text
    # Not only the text: node by node the same question.
    for one, other in zip(first.nodes(), again.nodes(), strict=True):
        assert (one.op, one.dtype, one.shape, exact(one.attrs)) == (
            other.op,
            other.dtype,
            other.shape,
            exact(other.attrs),
        )
    assert [first.nodes().index(out) for out in first.outs] == [again.nodes().index(out) for out in again.outs]


def test_functions_of_one_text_are_made_alike_whatever_was_made_first() -> None:
    one = graph(lambda x: (x + 1) * (x - 1), X)
    other = graph(lambda x: (lambda minus, plus: plus * minus)(x - 1, x + 1), X)
    assert to_text(one) == to_text(other)


def test_a_function_without_parameters_or_with_several_results() -> None:
    text = "function() {\n  %0: int64[3] = iota()\n  return %0, %0\n}"
    assert to_text(parse(text)) == text


HEAD = "function(%0: float64[2]) {\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1, '': the text ends here|starts with"),
        ("nonsense", r"line 1, 'nonsense': a function starts with 'function\(...\) \{'"),
        ("function(0: f) {", "is no parameter"),
        ("function(%0: float64[2], %0: float64[2]) {\n  return %0\n}", "%0 is there twice"),
        (HEAD + "  %1: float64[2] = sin(%0)", "line 3, '': the text ends here"),
        (HEAD + "  %1: float64[2] = sin(%7)\n  return %1\n}", "line 2.*KeyError: '%7'"),
        (HEAD + "  %0: float64[2] = sin(%0)\n  return %0\n}", "line 2.*%0 is there twice"),
        (HEAD + "  %1: floats[2] = sin(%0)\n  return %1\n}", "line 2.*TypeError"),
        (HEAD + "  %1 = sin(%0)\n  return %1\n}", "line 2.*neither a node nor a return"),
        (HEAD + "  %1: float64[] = reduce(%0) {axes=0,), kind=}\n  return %1\n}", "line 2"),
        (HEAD + "  %1: float64[] = const() {value=word}\n  return %1\n}", "line 2.*ValueError"),
        (HEAD + "  %1: int8[] = const() {value=300}\n  return %1\n}", "line 2.*(OverflowError|300)"),
        (HEAD + "  %1: bool[] = const() {value=1}\n  return %1\n}", "line 2.*KeyError"),
        (HEAD + "  return %3\n}", "line 2.*KeyError: '%3'"),
        (HEAD + "  return %0\n", "line 3.*the end of the function"),
        (HEAD + "  return %0\n}\nmore", "the end of the function is expected"),
    ],
)
def test_what_is_no_graph_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(VerifyError, match=says):
        parse(text)
