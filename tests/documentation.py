"""Finds what has to be documented and the code that documents.  `tests/test_documentation.py` runs it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine

FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```[ ]*$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run: (?P<reason>\S.*?) -->\s*\Z")
RUNNABLE = ("python", "pycon")
NOTHING = (lambda: None).__code__
"""Stands for an ``__init__`` that is not there: it names no attribute."""


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of Python in a page."""

    page: Path
    line: int
    language: str
    source: str
    not_run: str
    """Why the block is not run, as the comment before it says; empty for one that is."""


def blocks(page: Path) -> Iterator[Block]:
    """The fenced Python blocks of a page.

    A block runs unless an HTML comment right before it, ``<!-- not run: reason -->``, says why it cannot.  Anything
    after ``python`` on the fence itself is refused: it is how a block is quietly left out elsewhere.
    """
    text = page.read_text()
    for match in FENCE.finditer(text):
        language, _, options = match["info"].strip().partition(" ")
        line = text.count("\n", 0, match.start()) + 1
        if language.lower() not in RUNNABLE:
            if language.lower().startswith(("py", "{")):
                raise ValueError(f"{page}:{line}: a Python block starts with one of {RUNNABLE}, not {match['info']!r}")
            continue
        if options:
            raise ValueError(f"{page}:{line}: {options!r} on the fence; say <!-- not run: reason --> before the block")
        reason = NOT_RUN.search(text, 0, match.start())
        yield Block(page, line, language.lower(), dedent(match["body"]), reason["reason"] if reason else "")


def public_names(module: ModuleType) -> list[str]:
    """``__all__``, or else the names without underscore that the module itself defines."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    return [name for name, value in vars(module).items() if name[0] != "_" and home(value) == module.__name__]


def home(value: Any) -> str | None:
    """The module that a class or function was defined in; None for data, which has no docstring of its own."""
    return getattr(value, "__module__", None) if inspect.isclass(value) or inspect.isroutine(value) else None


def undocumented(module: ModuleType, protocols: list[type]) -> list[str]:
    """The public classes, functions and methods of a module that say nothing about themselves.

    A class that has every member of one of the ``protocols`` may leave the words on those members to the protocol.  The
    name of a test in a published suite is its sentence, and so are the rules of a published state machine.
    """
    found = []
    for name in public_names(module):
        value = getattr(module, name)  # a listed name that is not there raises, as it should
        if home(value) != module.__name__:
            continue  # documented where it lives, or data
        if not has_words(value):
            found.append(f"{module.__name__}.{name}")
        if inspect.isclass(value) and not issubclass(value, RuleBasedStateMachine):
            spoken_for = set().union(*(members(protocol) for protocol in protocols if implements(value, protocol)))
            own = [m for m, what in vars(value).items() if not m.startswith(("_", "test_")) and is_method(what)]
            silent = [
                member for member in own if member not in spoken_for and not inspect.getdoc(getattr(value, member))
            ]
            found += [f"{module.__name__}.{name}.{member}" for member in silent]
    return found


def has_words(value: Any) -> bool:
    """Whether there is a docstring of its own; the signature that ``@dataclass`` writes into an empty one is none."""
    words = value.__doc__ or ""
    return bool(words.strip()) and not words.startswith(f"{value.__name__}(")


def is_method(value: Any) -> bool:
    return inspect.isfunction(value) or isinstance(value, (property, classmethod, staticmethod))


def members(protocol: type) -> set[str]:
    """The members that a protocol asks for, those of the protocols it extends included."""
    found: set[str] = set()
    for base in protocol.__mro__:
        if getattr(base, "_is_protocol", False):
            found |= {name for name, value in vars(base).items() if is_method(value)}
            found |= set(vars(base).get("__annotations__", ()))
    return found - {"__init__", "__subclasshook__", "__class_getitem__"}


def implements(cls: type, protocol: type) -> bool:
    """Whether the class has each member: as an attribute, a slot, an annotation, or set by ``__init__``."""
    if cls is protocol or getattr(cls, "_is_protocol", False):
        return False
    elsewhere: set[str] = set()
    for base in cls.__mro__:
        elsewhere |= set(vars(base).get("__annotations__", ()))
        elsewhere |= set(getattr(vars(base).get("__init__"), "__code__", NOTHING).co_names)
    return all(hasattr(cls, name) or name in elsewhere for name in members(protocol))
