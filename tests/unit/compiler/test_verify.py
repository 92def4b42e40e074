"""The verifier finds every planted fault and passes what is traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lifetimes.compiler import functions as xp
from lifetimes.compiler import ops
from lifetimes.compiler.ir import Builder, Function, Node
from lifetimes.compiler.text import parse
from lifetimes.compiler.verify import faults, verify
from lifetimes.errors import VerifyError
from tests.tracing import graph

F8 = np.dtype("float64")


def start() -> tuple[Builder, Node]:
    builder = Builder()
    return builder, ops.make(builder, "param", dtype="float64", shape=(2, 3), index=0)


def test_a_good_graph_is_passed_on() -> None:
    function = graph(lambda x: xp.sum(xp.sin(x), axis=0) @ x[0], np.ones((2, 3)))
    assert verify(function) is function
    assert list(faults(Function((), ()))) == []


def raw(
    op: str, args: tuple[Node, ...] = (), dtype: Any = F8, shape: Any = (2, 3), attrs: Any = (), number: int = 99
) -> Node:
    """A node that no builder has made."""
    return Node(op, args, np.dtype(dtype), shape, attrs, number)


PLANTED: dict[str, tuple[Callable[[Builder, Node], Node | Function], str]] = {
    "an unknown operation": (lambda b, x: b.node("sine", (x,), F8, (2, 3)), "there is no operation 'sine'"),
    "a dtype that the rule does not give": (lambda b, x: b.node("sin", (x,), "float32", (2, 3)), "should be float64"),
    "a shape that the rule does not give": (lambda b, x: b.node("sin", (x,), F8, (3, 2)), r"should be float64\[2, 3\]"),
    "a dtype that is not computed with": (
        lambda b, x: b.node("cast", (x,), "float16", (2, 3)),
        "a dtype that is not computed",
    ),
    "too few arguments": (lambda b, x: b.node("add", (x,), F8, (2, 3)), "add takes 2 arguments"),
    "an attribute too many": (lambda b, x: b.node("sin", (x,), F8, (2, 3), axis=0), "no attributes, not 1 and"),
    "an attribute missing": (lambda b, x: b.node("transpose", (x,), F8, (3, 2)), "transpose has the attributes"),
    "an attribute of a wrong form": (lambda b, x: b.node("reduce", (x,), F8, (), axes=0, kind="sum"), "<reduce"),
    "an attribute that is no plain value": (
        lambda b, x: b.node("reduce", (x,), F8, (2,), axes=(1,), kind=np.add),
        "attribute kind is <ufunc 'add'>",
    ),
    "attributes out of order": (
        lambda b, x: raw("reduce", (x,), shape=(2,), attrs=(("kind", "sum"), ("axes", (1,)))),
        "are not sorted",
    ),
    "a shape that is a list": (lambda b, x: raw("sin", (x,), shape=[2, 3]), "a shape is a tuple"),
    "a negative length": (lambda b, x: raw("sin", (x,), shape=(2, -3)), "a shape is a tuple of integers from 0"),
    "a length of NumPy's": (lambda b, x: raw("sin", (x,), shape=(np.int64(2), 3)), "a shape is a tuple of integers"),
    "arguments of two dtypes": (
        lambda b, x: b.node("add", (x, ops.make(b, "cast", x, dtype="float32")), F8, (2, 3)),
        "arguments of one dtype",
    ),
    "arguments of two shapes": (
        lambda b, x: b.node("add", (x, ops.make(b, "const", value=np.float64(1))), F8, (2, 3)),
        "arguments of one shape",
    ),
    "a kind that the row lacks": (
        lambda b, x: b.node("bitwise_and", (x, x), F8, (2, 3)),
        "bitwise_and does not compute with float64",
    ),
    "a condition that is no bool": (
        lambda b, x: b.node("select", (x, x, x), F8, (2, 3)),
        "select takes arguments of one dtype",
    ),
    "an axis that there is not": (
        lambda b, x: b.node("reduce", (x,), F8, (2,), axes=(2,), kind="sum"),
        "are not sorted, different axes of 2",
    ),
    "axes out of order": (
        lambda b, x: b.node("reduce", (x,), F8, (), axes=(1, 0), kind="sum"),
        "are not sorted, different",
    ),
    "a reduction that there is not": (
        lambda b, x: b.node("reduce", (x,), F8, (), axes=(0, 1), kind="median"),
        "'median' is not one of the reductions",
    ),
    "a slice that reaches outside": (
        lambda b, x: b.node("slice", (x,), F8, (2, 3), start=(0, 1), step=(1, 1)),
        "reach outside",
    ),
    "a slice that stands still": (
        lambda b, x: b.node("slice", (x,), F8, (2, 3), start=(0, 0), step=(1, 0)),
        "reach outside",
    ),
    "a broadcast that does not fit": (lambda b, x: b.node("broadcast", (x,), F8, (3, 3)), "does not broadcast to"),
    "a reshape of other size": (lambda b, x: b.node("reshape", (x,), F8, (5,)), "cannot become"),
    "a transpose with an axis twice": (
        lambda b, x: b.node("transpose", (x,), F8, (2, 2), axes=(0, 0)),
        "no permutation",
    ),
    "a squeeze of a longer axis": (lambda b, x: b.node("squeeze", (x,), F8, (3,), axes=(0,)), "not all of length 1"),
    "an index that is no int64": (lambda b, x: b.node("gather", (x, x), F8, (2, 3, 3), axis=0), "an index is int64"),
    "a constant that is a Python number": (
        lambda b, x: b.node("const", (), F8, (), value=1.0),
        "attribute value is 1.0",
    ),
    "a constant of another dtype": (
        lambda b, x: b.node("const", (), F8, (), value=np.float32(1)),
        r"should be float32\[\]",
    ),
    "a parameter beside the parameters": (
        lambda b, x: ops.make(b, "param", dtype="float64", shape=(2, 3), index=1),
        "is none of the parameters",
    ),
    "an argument made later": (lambda b, x: raw("sin", (x,), number=0), "is older than its argument"),
    "a node of another builder": (
        lambda b, x: raw("sin", (raw("param", number=x.number),)),
        "they are of different builders",
    ),
    "two nodes that ask the same": (
        lambda b, x: raw("add", (raw("sin", (x,), number=5), raw("sin", (x,), number=6))),
        "equal nodes are one",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str) -> None:
    builder, x = start()
    plant, says = PLANTED[name]
    planted = plant(builder, x)
    assert isinstance(planted, Node)
    with pytest.raises(VerifyError, match=says):
        verify(Function((x,), (planted,)))


def test_parameters_out_of_order_are_found() -> None:
    builder, x = start()
    y = ops.make(builder, "param", dtype="float64", shape=(), index=1)
    with pytest.raises(VerifyError, match="parameter 0 is numbered 1"):
        verify(Function((y, x), (x,)))
    with pytest.raises(VerifyError, match="parameter 0 is <sin"):
        verify(Function((ops.make(builder, "sin", x),), ()))


def test_a_circle_is_found() -> None:
    _, x = start()
    a = raw("sin", (x,))
    a.args = (raw("cos", (a,)),)
    with pytest.raises(VerifyError, match="go round in a circle"):
        verify(Function((x,), (a,)))


def test_every_fault_is_said_at_once() -> None:
    text = "function(%0: float64[2]) {\n  %1: float64[3] = sin(%0)\n  %2: int8[3] = cosine(%1)\n  return %2\n}"
    with pytest.raises(VerifyError, match=r"(?s)should be float64\[2\].*there is no operation 'cosine'"):
        verify(parse(text))
