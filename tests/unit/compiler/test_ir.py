"""Nodes, the builder that makes each once, and functions built from functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lifetimes.compiler.ir import Builder, Function, Node, copy_node, rebuild, walk


def param(builder: Builder, index: int = 0) -> Node:
    return builder.node("param", (), "float64", (3,), index=index)


def payload(bits: int) -> Any:
    return np.array(bits, np.uint64).view(np.float64)[()]


DIFFERENT = [
    np.float64(1), np.float32(1), np.int64(1), np.int8(1), np.bool_(True), np.float64(0.0), np.float64(-0.0),
    np.float64("nan"), payload(0x7FF8000000000001), payload(0xFFF8000000000000), 1, True, 1.0, 0.0, -0.0, "1", (1,), (True,),
    (1.0,), (0.0,), (-0.0,), ((1,),),
]  # fmt: skip


def test_a_node_is_made_once() -> None:
    b = Builder()
    x = param(b)
    assert b.node("add", [x, x], "float64", (3,)) is b.node("add", (x, x), np.dtype("f8"), (3,))
    assert b.node("sum", (x,), "float64", (), axes=(0,), kind="sum") is b.node(
        "sum", (x,), "float64", (), kind="sum", axes=(0,)
    )


def test_constants_that_compare_equal_are_different_nodes() -> None:
    b = Builder()
    nodes = [b.node("const", (), "float64", (), value=value) for value in DIFFERENT]
    assert len({id(node) for node in nodes}) == len(DIFFERENT)
    again = [b.node("const", (), "float64", (), value=value) for value in DIFFERENT]
    assert all(one is other for one, other in zip(nodes, again, strict=True))


@pytest.mark.parametrize("change", [{"dtype": "float32"}, {"shape": (4,)}, {"index": 1}])
def test_dtype_shape_and_attributes_are_part_of_the_question(change: dict[str, Any]) -> None:
    b = Builder()
    question: dict[str, Any] = {"dtype": "float64", "shape": (3,), "index": 0}
    assert b.node("param", (), **question) is not b.node("param", (), **(question | change))


def test_an_attribute_is_found_by_name() -> None:
    x = param(Builder())
    assert x.attr("index") == 0
    with pytest.raises(KeyError, match="param has no attribute 'axis'"):
        x.attr("axis")
    assert x.size == 3
    assert x.ndim == 1


def test_a_walk_gives_arguments_first_and_each_node_once() -> None:
    b = Builder()
    x, y = param(b), param(b, 1)
    total = b.node("add", (x, y), "float64", (3,))
    both = b.node("multiply", (total, x), "float64", (3,))
    assert list(walk((both, total))) == [x, y, total, both]


def test_a_deep_graph_is_no_problem() -> None:
    b = Builder()
    node = x = param(b)
    for _ in range(20_000):
        node = b.node("negative", (node,), "float64", (3,))
    copied = rebuild(Function((x,), (node,)), copy_node)
    assert len(copied.nodes()) == 20_001


def test_a_rebuilt_function_lacks_what_nobody_needs_and_keeps_its_parameters() -> None:
    b = Builder()
    x, y = param(b), param(b, 1)
    b.node("negative", (y,), "float64", (3,))
    out = b.node("sin", (x,), "float64", (3,))
    copied = rebuild(Function((x, y), (out, out)), copy_node)
    assert [node.op for node in copied.nodes()] == ["param", "param", "sin"]
    assert copied.outs[0] is copied.outs[1]
