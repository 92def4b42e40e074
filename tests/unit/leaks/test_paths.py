"""The chain of references in words, for each sort of container that Python has."""

from __future__ import annotations

import contextvars
import functools
import queue
import types
from collections import ChainMap, OrderedDict, UserDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from lifetimes import Lifetime, live, why


@dataclass(slots=True)
class Slotted:
    buffer: object


class Lazy:
    @functools.cached_property
    def buffer(self) -> Lifetime[str]:
        return make()


class Owner:
    buffer: object = None

    def method(self) -> object:
        return self.buffer


Pair = namedtuple("Pair", "x y")


def make() -> Lifetime[str]:
    return Lifetime("x", label="here")


def lazy() -> Lazy:
    found = Lazy()
    assert found.buffer is not None
    return found


def bound() -> Any:
    owner = Owner()
    owner.buffer = make()
    return owner.method


def of_class() -> type:
    return type("Made", (), {"buffer": make()})


def function(default: bool = False, keyword: bool = False) -> Any:
    x = make()
    if default:

        def by_position(x: object = x) -> None: ...

        return by_position
    if keyword:

        def by_name(*, x: object = x) -> None: ...

        return by_name

    def plain() -> None: ...

    plain.buffer = x  # type: ignore[attr-defined]
    return plain


def suspended() -> Any:
    def steps() -> Any:
        buffer = make()
        yield buffer.key

    found = steps()
    next(found)
    return found


FORMS: dict[str, tuple[Callable[[], Any], str]] = {
    "list": (lambda: [0, [make()]], "[1][0]"),
    "tuple": (lambda: (make(),), "[0]"),
    "deque": (lambda: deque([0, make()]), "[1]"),
    "namedtuple": (lambda: Pair(1, make()), "[1]"),
    "dict": (lambda: {"a": {(1, "b"): make()}}, "['a'][1, 'b']"),
    "long key": (lambda: {"k" * 50: make()}, f"['{'k' * 35}...']"),
    "key of another type": (lambda: {Owner: make()}, "[a type]"),
    "key": (lambda: {make(): 1}, "[a key]"),
    "defaultdict": (lambda: defaultdict(list, k=[make()]), "['k'][0]"),
    "OrderedDict": (lambda: OrderedDict(a=make()), "['a']"),
    "ChainMap": (lambda: ChainMap({"a": make()}), ".maps[0]['a']"),
    "UserDict": (lambda: UserDict(a=make()), ".data['a']"),
    "set": (lambda: {make()}, "[...]"),
    "namespace": (lambda: types.SimpleNamespace(x=make()), ".x"),
    "mapping proxy": (lambda: types.MappingProxyType({"a": make()}), " -> an object of type mappingproxy['a']"),
    "slots": (lambda: Slotted(make()), ".buffer"),
    "cached property": (lazy, ".buffer"),
    "bound method": (bound, " -> bound method Owner.method.buffer"),
    "class": (of_class, ".buffer"),
    "default": (lambda: function(default=True), " -> a default of function.<locals>.by_position"),
    "keyword default": (lambda: function(keyword=True), " -> a default of function.<locals>.by_name"),
    "attribute of a function": (function, ".buffer"),
    "partial": (lambda: functools.partial(print, make()), ".args[0]"),
    "exception": (lambda: ValueError(make()), ".args[0]"),
    "iterator": (lambda: iter([make()]), " -> an object of type list_iterator[0]"),
    "generator": (suspended, " -> suspended generator suspended.<locals>.steps (test_paths.py:"),
}
"""What is held in a global variable, and how the words go on from its name."""

holder: Any = None


@pytest.mark.parametrize("form", FORMS)
def test_each_sort_of_container(form: str) -> None:
    global holder
    plant, words = FORMS[form]
    holder = plant()
    try:
        (row,) = live(label="here")
        found = why(row)
        assert found.held_by.startswith(f"tests.unit.leaks.test_paths.holder{words}"), found.held_by
        assert found.root == "tests.unit.leaks.test_paths"
    finally:
        holder = None


def test_a_queue_is_followed_to_its_items() -> None:
    global holder
    holder = queue.Queue()
    holder.put(make())
    try:
        assert why(live(label="here")[0]).held_by == "tests.unit.leaks.test_paths.holder.queue[0]"
    finally:
        holder = None


def test_a_context_variable_is_named() -> None:
    """Its values are in no container that the collector can be asked about by name."""
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("current buffer")
    token = variable.set({"one": make()})
    try:
        found = why(live(label="here")[0])
        assert (found.reason, found.held_by) == ("context variable", "context variable 'current buffer'['one']")
        assert found.root == ""
    finally:
        variable.reset(token)
        del token
