"""The array graph: immutable nodes, built once each, in functions.

A `Node` says what is computed: an operation on other nodes, with a dtype and a shape of plain integers.  A `Builder`
makes nodes and gives the same node for the same question, so common subexpressions are shared by construction; a pass
reads one `Function` and builds another.  What the operations are: `lifetimes.compiler.ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

__all__ = ["DTYPES", "Attrs", "Builder", "Function", "Node", "Rule", "Shape", "copy_node", "exact", "rebuild", "walk"]

Shape: TypeAlias = tuple[int, ...]
Attrs: TypeAlias = tuple[tuple[str, Any], ...]

DTYPES: Final = tuple(
    np.dtype(name)
    for name in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
)
"""What the compiler computes with.  The letter ``dtype.kind`` is the kind of the tables: ``b``, ``i``, ``u`` or ``f``."""


class Node:
    """One value of the graph.  Made by a `Builder`; equal nodes of one builder are the same object.

    ``attrs`` are the operation's constants, sorted by name.  ``number`` counts the nodes of the builder in order of
    making, so arguments have smaller numbers than their users.
    """

    __slots__ = ("args", "attrs", "dtype", "number", "op", "shape")

    def __init__(
        self, op: str, args: tuple[Node, ...], dtype: np.dtype[Any], shape: Shape, attrs: Attrs, number: int
    ) -> None:
        self.op = op
        self.args = args
        self.dtype = dtype
        self.shape = shape
        self.attrs = attrs
        self.number = number

    def attr(self, name: str) -> Any:
        """A constant of the operation.  Errors: `KeyError`."""
        for key, value in self.attrs:
            if key == name:
                return value
        raise KeyError(f"{self.op} has no attribute {name!r}")

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        size = 1
        for length in self.shape:
            size *= length
        return size

    def __repr__(self) -> str:
        return f"<{self.op} %{self.number}: {self.dtype}{list(self.shape)}>"


class Builder:
    """Makes nodes, each once.

    It takes what it is given: `lifetimes.compiler.ops.make` works out dtype and shape and checks them.

    >>> b = Builder()
    >>> x = b.node("param", (), "float64", (3,), index=0)
    >>> b.node("add", (x, x), x.dtype, x.shape) is b.node("add", (x, x), x.dtype, x.shape)
    True
    """

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Node] = {}
        self._count = 0

    def node(self, op: str, args: Iterable[Node], dtype: Any, shape: Shape, **attrs: Any) -> Node:
        """The node of that question.  ``attrs`` must be hashable."""
        arguments = tuple(args)
        kind = np.dtype(dtype)
        constants = tuple(sorted(attrs.items()))
        key = (op, tuple([each.number for each in arguments]), kind, shape, exact(constants))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Node(op, arguments, kind, shape, constants, self._count)
            self._count += 1
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """Parameters and results.  ``params`` are nodes of the operation ``param``, in order."""

    params: tuple[Node, ...]
    outs: tuple[Node, ...]

    def nodes(self) -> list[Node]:
        """Every node that the results need, and all parameters; arguments before users."""
        return list(walk((*self.params, *self.outs)))


def walk(roots: Iterable[Node]) -> Iterator[Node]:
    """The nodes below ``roots``, arguments before users.  A loop, so that a deep expression is no problem."""
    seen: set[int] = set()
    stack = [(root, False) for root in reversed(tuple(roots))]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif id(node) not in seen:  # nodes of one walk are alive, so their ids are their own
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((arg, False) for arg in reversed(node.args))


Rule: TypeAlias = Callable[[Builder, Node, tuple[Node, ...]], Node]
"""``rule(builder, node, new arguments)`` gives what stands for ``node`` in the function that ``builder`` makes."""


def rebuild(function: Function, rule: Rule, builder: Builder | None = None) -> Function:
    """A new function, each node replaced by what ``rule`` gives for it.  What nobody needs goes; parameters stay.

    ``builder`` makes the nodes; a fresh `Builder` by default.
    """
    if builder is None:
        builder = Builder()
    new: dict[int, Node] = {}
    for node in walk((*function.params, *function.outs)):
        new[id(node)] = rule(builder, node, tuple([new[id(arg)] for arg in node.args]))
    return Function(
        tuple([new[id(node)] for node in function.params]), tuple([new[id(node)] for node in function.outs])
    )


def copy_node(builder: Builder, node: Node, args: tuple[Node, ...]) -> Node:
    """The rule of `rebuild` that changes nothing."""
    return builder.node(node.op, args, node.dtype, node.shape, **dict(node.attrs))


def exact(attrs: Attrs) -> tuple[object, ...]:
    """Constants as a key that tells 1, True and 1.0 apart, 0.0 and -0.0, and one NaN from another."""
    return tuple([(name, _exact_value(value)) for name, value in attrs])


def _exact_value(value: Any) -> object:
    if isinstance(value, np.generic):
        return (value.dtype, value.tobytes())
    if isinstance(value, float):
        return (float, np.float64(value).tobytes())
    if isinstance(value, tuple):
        return (tuple, tuple([_exact_value(each) for each in value]))
    return (type(value), value)
