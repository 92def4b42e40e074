"""What a function uses beside its arguments: closures and globals, read anew at each call.

Numbers and the like that a traced function uses become constants of its graph, so their values belong to the key of what
is compiled.  Which they are is read from the function's bytecode once: names of closures and globals, with the
attributes that follow them (``config.scale``).  Functions that it uses are looked into as well.

Arrays are not constants: a graph takes them as parameters, and of those of a device only the layout is part of the key.

What cannot be seen in the bytecode is read when the function is traced, and not again: elements of containers that
change in place are seen (containers are taken apart); attributes of what a local name, an element of a container or the
result of a call stands for are not.
"""

from __future__ import annotations

import builtins
import dis
from collections.abc import Callable, Iterator
from functools import cache, partial
from types import BuiltinMethodType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final, Literal, TypeAlias

import numpy as np

__all__ = ["Captures", "frozen"]

Path: TypeAlias = tuple[Literal["closure", "global", "own"], str, tuple[str, ...]]
"""Whose name it is (``own``: the object of a method), the name, and attributes."""

_LIBRARIES: Final = ("lifetimes", "numpy", "math", "builtins", "functools", "operator")
_DEPTH: Final = 4
_MISSING: Final = object()


class Captures:
    """Of one function.  ``values()`` are what it uses now, in a fixed order.

    >>> scale = 2.0
    >>> def double(x): return x * scale
    >>> Captures(double).values()
    [2.0]
    """

    __slots__ = ("_function", "_looked_at", "_read", "there")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._read: list[Callable[[], Any]] = []
        self._looked_at: list[tuple[Callable[[], Any], Any]] = []
        """Functions that are looked into, and names that were not there: what they are now decides what else is used."""
        self._look_into(function, set(), 0)
        self.there = bool(self._read)
        """Whether it uses anything."""

    def values(self) -> list[Any]:
        """What the function uses now."""
        for read, known in self._looked_at:
            now = read()
            if now is not known and frozen(now) != frozen(known):  # a method is another object each time
                fresh = Captures(self._function)
                self._read, self._looked_at = fresh._read, fresh._looked_at
                break
        return [read() for read in self._read]

    def _look_into(self, function: Any, seen: set[int], depth: int) -> None:
        owner = None
        if isinstance(function, partial):
            self._read.append(partial(_itself, (function.args, function.keywords)))
            return self._look_into(function.func, seen, depth)
        if not isinstance(function, (FunctionType, MethodType)):
            if hasattr(function, "__wrapped__"):  # a jitted function
                return self._look_into(function.__wrapped__, seen, depth)
            function = getattr(function, "__call__", None)  # noqa: B004 (of an object that is called like a function)
        if isinstance(function, MethodType):
            owner, function = function.__self__, function.__func__
        if not isinstance(function, FunctionType) or id(function) in seen or depth > _DEPTH:
            return
        seen.add(id(function))
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        names = function.__globals__
        own = None
        if owner is not None and function.__code__.co_argcount:
            own = function.__code__.co_varnames[0]
            self._read.append(lambda: owner)
        for where, name, attributes in _paths(function.__code__, own):
            if where == "own":
                read = _reader(None, {name: owner}, name, attributes)
            else:
                read = _reader(cells.get(name) if where == "closure" else None, names, name, attributes)
            value = read()
            if _is_constant(names, cells, where, name) or (value is _MISSING and hasattr(builtins, name)):
                continue
            self._read.append(read)
            if value is _MISSING or (callable(value) and not _library(value)):
                self._looked_at.append((read, value))
            if callable(value) and not _library(value):
                self._look_into(value, seen, depth + 1)
        for default in [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]:
            self._read.append(partial(_itself, default))


def _is_constant(names: dict[str, Any], cells: dict[str, CellType], where: str, name: str) -> bool:
    """Whether a path begins at a module of those that do not change, as ``np.pi`` does."""
    first = names.get(name) if where == "global" else cells[name].cell_contents if name in cells else None
    return isinstance(first, ModuleType) and first.__name__.partition(".")[0] in _LIBRARIES


def _itself(value: Any) -> Any:
    return value


def _library(value: Any) -> bool:
    module = getattr(value, "__module__", None)
    return isinstance(module, str) and module.partition(".")[0] in _LIBRARIES and not hasattr(value, "__wrapped__")


def _reader(cell: CellType | None, names: dict[str, Any], name: str, attributes: tuple[str, ...]) -> Callable[[], Any]:
    def read() -> Any:
        try:
            value = names[name] if cell is None else cell.cell_contents
            for attribute in attributes:
                if isinstance(value, np.ndarray) or hasattr(value, "__array__"):
                    return value  # what follows is a method of an array
                value = getattr(value, attribute)
        except (KeyError, ValueError, AttributeError):  # not there (yet), or one of Python's own names
            return _MISSING
        return value

    return read


@cache
def _paths(code: CodeType, own: str | None) -> tuple[Path, ...]:
    """Every closure and global that the code names, its inner functions included, each once."""
    return tuple(dict.fromkeys(_walk(code, frozenset(code.co_freevars), own)))


def _walk(code: CodeType, free: frozenset[str], own: str | None) -> Iterator[Path]:
    start: tuple[Literal["closure", "global", "own"], str] | None = None
    attributes: list[str] = []
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD") and start is not None:
            attributes.append(str(step.argval))
            continue
        if start is not None and step.opname not in ("CACHE", "EXTENDED_ARG"):
            yield (*start, tuple(attributes))
            start, attributes = None, []
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            start = ("global", str(step.argval))
        elif step.opname in ("LOAD_DEREF", "LOAD_CLASSDEREF") and step.argval in free:
            start = ("closure", str(step.argval))
        elif own is not None and step.opname.startswith("LOAD_FAST"):  # two at once in newer versions: the last counts
            name = step.argval[-1] if isinstance(step.argval, tuple) else step.argval
            start = ("own", own) if name == own else None
    if start is not None:
        yield (*start, tuple(attributes))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _walk(constant, free & frozenset(constant.co_freevars), None)


class _Same:
    """A thing as a key: equal to itself only.  It holds the thing, so nothing else can come to stand at its address."""

    __slots__ = ("thing",)

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __hash__(self) -> int:
        return hash(id(self.thing))  # alive as long as the key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.thing is self.thing


def frozen(value: Any, depth: int = 0) -> Any:
    """A value as part of a key: equal keys have equal values of equal types (1, True and 1.0 differ, 0.0 and -0.0 too).

    What it does not know how to compare is itself and nothing else.
    """
    kind = type(value)
    if kind is float:
        return (kind, value.hex())
    if kind in (int, bool, str, bytes) or value is None or value is Ellipsis:
        return (kind, value)
    if isinstance(value, np.generic):
        return (value.dtype, value.tobytes())
    if kind is slice:
        return (kind, frozen(value.start), frozen(value.stop), frozen(value.step))
    if isinstance(value, np.dtype):
        return (np.dtype, value)
    if depth < _DEPTH and kind in (tuple, list):
        return (kind, tuple([frozen(each, depth + 1) for each in value]))
    if depth < _DEPTH and kind is dict:
        return (kind, tuple([(frozen(key), frozen(each, depth + 1)) for key, each in value.items()]))
    if isinstance(value, MethodType):
        return (kind, frozen(value.__func__), _Same(value.__self__))
    if isinstance(value, BuiltinMethodType):
        return (kind, value.__name__, _Same(value.__self__))
    if isinstance(value, FunctionType) and value.__closure__ is None:
        return (FunctionType, value.__code__, _Same(value.__globals__))
    return _Same(value)
