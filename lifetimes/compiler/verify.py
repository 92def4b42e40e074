"""Whether a graph keeps its rules.  Run between passes under test, and by whoever takes a graph from outside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lifetimes.compiler import ops
from lifetimes.compiler.ir import DTYPES, Function, Node, exact
from lifetimes.errors import VerifyError

__all__ = ["faults", "verify"]


def verify(function: Function) -> Function:
    """The function itself.  Errors: `VerifyError` with every fault, a line each.

    Complexity: linear in nodes and attributes.
    """
    found = list(faults(function))
    if found:
        raise VerifyError("the graph breaks its rules:\n" + "\n".join(found))
    return function


def faults(function: Function) -> Iterator[str]:
    """What is wrong, a sentence each.

    - Parameters are `param` nodes, numbered by position, and no other `param` is below the results.
    - Arguments were made before their users, by one builder (so there is no circle), and no two nodes are equal.
    - Dtypes are among those computed with, shapes are tuples of integers, attributes sorted and of plain values.
    - Dtype and shape are what the operation's rule gives.
    """
    nodes, circle = _below((*function.params, *function.outs))
    if circle:
        yield "the nodes go round in a circle"
        return
    for at, param in enumerate(function.params):
        if param.op != "param":
            yield f"parameter {at} is {param!r}"
        elif dict(param.attrs).get("index") != at:
            yield f"parameter {at} is numbered {dict(param.attrs).get('index')}"
    own = {id(param) for param in function.params}
    numbers: dict[int, Node] = {}
    questions: dict[object, Node] = {}
    for node in nodes:
        if node.op == "param" and id(node) not in own:
            yield f"{node!r} is none of the parameters"
        form = list(_form(node))
        yield from form
        if form:
            continue
        yield from _rule(node)
        twin = numbers.setdefault(node.number, node)
        if twin is not node:
            yield f"{node!r} and {twin!r} have one number: they are of different builders"
        question = (node.op, tuple([id(arg) for arg in node.args]), node.dtype, node.shape, exact(node.attrs))
        equal = questions.setdefault(question, node)
        if equal is not node:
            yield f"{node!r} asks the same as {equal!r}: equal nodes are one"


def _below(roots: tuple[Node, ...]) -> tuple[list[Node], bool]:
    """The nodes below, arguments first, and whether there is a circle (`walk` takes for granted that there is none)."""
    found: list[Node] = []
    state: dict[int, bool] = {}  # False while its arguments are being walked
    stack = [(root, False) for root in roots]
    while stack:
        node, ready = stack.pop()
        if ready:
            state[id(node)] = True
            found.append(node)
        elif id(node) not in state:
            state[id(node)] = False
            stack.append((node, True))
            for arg in node.args:
                if state.get(id(arg)) is False:
                    return found, True
                stack.append((arg, False))
    return found, False


def _form(node: Node) -> Iterator[str]:
    if node.dtype not in DTYPES:
        yield f"{node!r} has a dtype that is not computed with"
    if not isinstance(node.shape, tuple) or any(type(length) is not int or length < 0 for length in node.shape):
        yield f"{node!r}: a shape is a tuple of integers from 0 on"
    if list(node.attrs) != sorted(node.attrs, key=lambda attr: attr[0]):
        yield f"{node!r}: attributes {node.attrs} are not sorted"
    yield from (f"{node!r}: attribute {name} is {value!r}" for name, value in node.attrs if not _is_plain(value))
    yield from (f"{node!r} is older than its argument {arg!r}" for arg in node.args if arg.number >= node.number)


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(_is_plain(each) for each in value)
    return type(value) in (int, str, bool) or isinstance(value, np.generic)


def _rule(node: Node) -> Iterator[str]:
    try:
        inferred = ops.infer(node.op, node.args, dict(node.attrs), node.dtype, node.shape)
    except KeyError:
        yield f"{node!r}: there is no operation {node.op!r}"
    except (TypeError, ValueError, IndexError, AttributeError) as error:  # the last two: attributes of a wrong form
        yield f"{node!r}: {error}"
    else:
        if inferred != (node.dtype, node.shape):
            yield f"{node!r} should be {inferred[0]}{list(inferred[1])}"
