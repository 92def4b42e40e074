"""A graph as text, and back.  Two graphs with the same text compute the same, so the text can be hashed as a key.

    function(%0: float64[3], %1: float64[]) {
      %2: float64[3] = sin(%0)
      %3: float64[3] = broadcast(%1)
      %4: float64[3] = add(%2, %3)
      %5: float64[] = reduce(%4) {axes=(0,), kind="sum"}
      return %5
    }

Nodes are numbered in the order of `walk`, parameters first.  Numbers are written so that reading gives the same bits: floats
with the digits of float64, whatever their dtype; a NaN that is not the usual one as ``nan(0x...)`` with all its bits.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from lifetimes.compiler.ir import Builder, Function, Node
from lifetimes.errors import VerifyError

__all__ = ["parse", "to_text"]


def to_text(function: Function) -> str:
    """The text of a graph.

    >>> from lifetimes.compiler.spec import spec
    >>> from lifetimes.compiler.trace import trace
    >>> print(to_text(trace(lambda x: -x, (spec(2, "int8"),)).function))
    function(%0: int8[2]) {
      %1: int8[2] = negative(%0)
      return %1
    }
    """
    nodes = function.nodes()
    names = {id(node): f"%{at}" for at, node in enumerate(nodes)}
    lines = [f"function({', '.join(f'{names[id(each)]}: {_type(each)}' for each in function.params)}) {{"]
    for node in nodes:
        if node.op != "param":
            args = ", ".join([names[id(arg)] for arg in node.args])
            attrs = ", ".join([f"{name}={_value(value)}" for name, value in node.attrs])
            lines.append(f"  {names[id(node)]}: {_type(node)} = {node.op}({args})" + (f" {{{attrs}}}" if attrs else ""))
    lines.append(f"  return {', '.join([names[id(out)] for out in function.outs])}")
    return "\n".join([*lines, "}"])


def _type(node: Node) -> str:
    return f"{node.dtype}[{', '.join(map(str, node.shape))}]"


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_value, value))}{',' * (len(value) == 1)})"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, np.floating) and np.isnan(value):
        bits = int(value.view(f"u{value.dtype.itemsize}"))
        return "nan" if bits == _nan_bits(value.dtype) else f"nan({bits:#x})"
    # Of a float32 more digits than it needs, but none is lost on the way through a float.
    return repr(value.item() if isinstance(value, np.generic) else value)


def _nan_bits(dtype: np.dtype[Any]) -> int:
    return int(dtype.type("nan").view(f"u{dtype.itemsize}"))


# Reading.

_HEAD: Final = re.compile(r"function\((.*)\) \{")
_PARAM: Final = re.compile(r"(%\d+): (\w+)\[([\d, ]*)\]")
_LINE: Final = re.compile(r"(%\d+): (\w+)\[([\d, ]*)\] = (\w+)\(([%\d, ]*)\)(?: \{(.*)\})?")
_RETURN: Final = re.compile(r"return(?: (%\d+(?:, %\d+)*))?")
_ATTR: Final = re.compile(r"(\w+)=(\((?:[^()]*)\)|\"[^\"]*\"|nan\(0x[0-9a-f]+\)|[^,]+)(?:, |$)")


def parse(text: str) -> Function:
    r"""The graph that a text describes.  Errors: `VerifyError` with the line that is none, or that names what is not there.

    The types are taken as they are written: `verify` holds them against the rules.

    >>> print(to_text(parse("function(%0: int8[2]) {\n  return %0, %0\n}")))
    function(%0: int8[2]) {
      return %0, %0
    }
    """
    reader = _Reader(text)
    reader.read(_HEAD, reader.head)
    while not reader.read(_RETURN, reader.results):
        if not reader.read(_LINE, reader.node):
            raise reader.problem("neither a node nor a return")
    if reader.lines[reader.at :] != ["}"]:
        raise reader.problem("the end of the function is expected after its return")
    return Function(tuple(reader.params), tuple(reader.outs))


class _Reader:
    def __init__(self, text: str) -> None:
        self.lines = [line.strip() for line in text.strip().splitlines()]
        self.at = 0
        self.builder = Builder()
        self.nodes: dict[str, Node] = {}
        self.params: list[Node] = []
        self.outs: list[Node] = []

    def read(self, form: re.Pattern[str], take: Callable[..., None]) -> bool:
        """Read the next line if it has that form."""
        if self.at >= len(self.lines):
            raise self.problem("the text ends here")
        found = form.fullmatch(self.lines[self.at])
        if found is None:
            if form is _HEAD:
                raise self.problem("a function starts with 'function(...) {'")
            return False
        try:
            take(*found.groups())
        except (KeyError, ValueError, TypeError, OverflowError, SyntaxError) as error:
            raise self.problem(f"{type(error).__name__}: {error}") from None
        self.at += 1
        return True

    def problem(self, what: str) -> VerifyError:
        line = self.lines[self.at] if self.at < len(self.lines) else ""
        return VerifyError(f"line {self.at + 1}, {line!r}: {what}")

    def head(self, params: str) -> None:
        rest = params
        while rest:
            found = _PARAM.match(rest)
            if found is None or (rest := rest[found.end() :].removeprefix(", ")) == params:
                raise ValueError(f"{rest!r} is no parameter")
            name, dtype, shape = found.groups()
            node = self.builder.node("param", (), np.dtype(dtype), _shape(shape), index=len(self.params))
            self.params.append(node)
            self.name(name, node)

    def node(self, name: str, dtype: str, shape: str, op: str, args: str, attrs: str | None) -> None:
        kind = np.dtype(dtype)
        given = [self.nodes[arg] for arg in args.split(", ")] if args else []
        self.name(name, self.builder.node(op, given, kind, _shape(shape), **_attrs(attrs or "", kind)))

    def results(self, names: str | None) -> None:
        self.outs = [self.nodes[name] for name in names.split(", ")] if names else []

    def name(self, name: str, node: Node) -> None:
        if name in self.nodes:
            raise ValueError(f"{name} is there twice")
        self.nodes[name] = node


def _shape(text: str) -> tuple[int, ...]:
    return tuple([int(length) for length in text.split(", ")]) if text else ()


def _attrs(text: str, dtype: np.dtype[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    rest = text
    while rest:
        match = _ATTR.match(rest)
        if match is None:
            raise ValueError(f"{rest!r} is no attribute")
        name, value = match.groups()
        # A constant has the node's dtype; every other attribute is Python's own.
        found[name] = _scalar(value, dtype) if name == "value" else ast.literal_eval(value)
        rest = rest[match.end() :]
    return found


def _scalar(text: str, dtype: np.dtype[Any]) -> Any:
    if text.startswith("nan("):
        return np.array(int(text[4:-1], 16), f"u{dtype.itemsize}").view(dtype)[()]
    if dtype.kind == "b":
        return np.bool_({"True": True, "False": False}[text])
    if dtype.kind == "f":
        return dtype.type(float(text))
    number = int(text)
    if not np.iinfo(dtype).min <= number <= np.iinfo(dtype).max:  # NumPy before 2 would wrap it
        raise OverflowError(f"{number} is out of the bounds of {dtype}")
    return dtype.type(number)
