"""A chain of references in words: ``train.kept[0].buffer``, ``closure variable 'x' of on_done (train.py:12)``.

Reading it must not run anybody's code, so no ``repr``, no ``getattr`` and no comparison of the objects on the way: identity,
the slots of types, and the dicts themselves.
"""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Sequence
from types import (
    AsyncGeneratorType,
    CellType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodType,
    TracebackType,
)
from typing import Any, Final

from lifetimes.holders import Pin
from lifetimes.leaks.roots import local_variables, place_of

__all__ = ["GENERATORS", "LRU_CACHE", "in_words", "reason_of"]

GENERATORS: Final = (GeneratorType, CoroutineType, AsyncGeneratorType)
LRU_CACHE: Final[type] = type(functools.lru_cache(lambda: None))
THREAD_LOCAL: Final = "_thread._local"
HIDDEN: Final = "_lifetimes_handle"
"""The attribute that ties a handle to a foreign object which is tracked: no step of its own."""
_SHORT: Final = (str, int, float, bytes, bool, type(None))


def in_words(chain: Sequence[object], root: str) -> str:
    """The references from ``chain[0]`` (which ``root`` names) to ``chain[-1]``, each object holding the next."""
    words = root
    for index in range(len(chain) - 1):
        before = chain[index - 1] if index else None
        further = chain[index - 2] if index > 1 else None
        step = _step(chain[index], chain[index + 1], before, further)
        words += step if step[:1] in ("", ".", "[") or not words else f" -> {step}"
    return words


def reason_of(chain: Sequence[object], root: str) -> str:
    """The most telling thing about a chain, in one word."""
    kinds = [type(each) for each in chain]
    if any(issubclass(kind, Pin) for kind in kinds):
        return "pin"
    if any(issubclass(kind, (TracebackType, FrameType)) for kind in kinds):
        return "traceback"
    if any(issubclass(kind, GENERATORS) for kind in kinds):
        return "generator"
    if any(_is_thread_local(each) for each in chain):
        return "thread-local"
    words = in_words(chain, root).lower()
    if any(issubclass(kind, LRU_CACHE) for kind in kinds) or "cache" in words or "memo" in words:
        return "cache"
    if any(issubclass(kind, CellType) for kind in kinds):
        return "closure"
    return next((word for word in ("local variable", "context variable") if root.startswith(word)), "global")


def _step(holder: Any, held: object, before: Any, further: Any) -> str:
    """How ``holder`` refers to ``held``; ``before`` and ``further`` come before it.  Empty for a step of no interest."""
    kind = type(holder)
    if issubclass(kind, dict):
        return _entry(holder, held, before, further)
    if issubclass(kind, (list, tuple, deque)):
        return _index(holder, held, before)
    if issubclass(kind, (set, frozenset)):
        return "[...]"
    if kind is CellType:
        return _captured(holder, before, further)
    if kind is FunctionType:
        return "" if type(held) in (tuple, dict) else f"function {holder.__qualname__}"
    if kind is MethodType:
        return f"bound method {getattr(holder.__func__, '__qualname__', 'of')}"
    if issubclass(kind, FrameType):
        return _variable(holder, held)
    if issubclass(kind, TracebackType):
        return ""
    if issubclass(kind, BaseException):
        if type(held) is TracebackType:
            return f"the traceback of {kind.__name__}"
        for attribute in ("args", "__cause__", "__context__"):
            if vars(BaseException)[attribute].__get__(holder, kind) is held:
                return f".{attribute}"
    if issubclass(kind, GENERATORS):
        return _suspended(holder, held)
    if issubclass(kind, LRU_CACHE):
        return f"the lru_cache of {getattr(holder, '__qualname__', 'a function')}"
    if issubclass(kind, functools.partial):
        return ".args" if held is holder.args else ".keywords" if held is holder.keywords else ".func"
    if _is_thread_local(holder):
        return "thread-local"
    if issubclass(kind, type):
        return ""
    return _attribute_step(holder, held)


def _attribute_step(holder: Any, held: object) -> str:
    name = _attribute(holder, held)
    if name is None:
        return f"an object of type {type(holder).__qualname__}"
    return "" if name in (HIDDEN, "__dict__") or issubclass(type(holder), Pin) else f".{name}"


def _entry(holder: dict[Any, Any], held: object, before: Any, further: Any) -> str:
    if before is not None and issubclass(type(before), LRU_CACHE):
        return ""
    name = next((key for key, value in list(dict.items(holder)) if value is held), None)
    if type(before) is FunctionType and before.__kwdefaults__ is holder:
        return f"a default of {before.__qualname__}"
    if _is_thread_local(before) and type(held) is dict:
        return ""  # a thread-local has a dict a thread, in a dict
    attribute = (
        isinstance(before, type) or _is_thread_local(further) or (before is not None and _has_dict(before, holder))
    )
    if attribute and isinstance(name, str):
        return "" if name == HIDDEN else f".{name}"
    if name is None and any(key is held for key in list(dict.keys(holder))):
        return "[a key]"
    if name is None:
        return _attribute_step(holder, held)
    return f"[{_key(name)}]"


def _key(key: object) -> str:
    """A key, without asking objects of other people's types for their ``repr``."""
    if type(key) in _SHORT:
        text = repr(key)
        return text if len(text) <= 40 else f"{text[:36]}...{text[0]}"
    if type(key) is tuple and len(key) <= 4:
        return ", ".join(map(_key, key))
    return f"a {type(key).__qualname__}"


def _index(holder: Any, held: object, before: Any) -> str:
    if type(before) is FunctionType:
        return "" if type(held) is CellType else f"a default of {before.__qualname__}"
    for number, each in enumerate(list(holder)):
        if each is held:
            return f"[{number}]"
    return "[...]"


def _captured(cell: CellType, before: Any, further: Any) -> str:
    if type(further) is not FunctionType:
        return "a closure"
    code = further.__code__
    name = next((name for name, each in zip(code.co_freevars, before, strict=False) if each is cell), "?")
    place = f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"
    return f"closure variable {name!r} of {further.__qualname__} ({place})"


def _variable(frame: FrameType, held: object) -> str:
    name = next((name for name, value in local_variables(frame).items() if value is held), None)
    what = "a value" if name is None else f"local variable {name!r}"
    return f"{what} of {place_of(frame)}"


def _suspended(holder: Any, held: object) -> str:
    frame = getattr(holder, "gi_frame", None) or getattr(holder, "cr_frame", None) or getattr(holder, "ag_frame", None)
    sort = {GeneratorType: "generator", CoroutineType: "coroutine"}.get(type(holder), "async generator")
    if frame is None:
        return f"a {sort}"
    if frame.f_lasti < 0:
        sort = f"unstarted {sort}"
    else:
        sort = f"suspended {sort}"
    name = next((name for name, value in local_variables(frame).items() if value is held), None)
    inside = "" if name is None else f", variable {name!r}"
    return f"{sort} {place_of(frame)}{inside}"


def _attribute(holder: Any, held: object) -> str | None:
    for cls in type(holder).__mro__:
        for name, member in list(vars(cls).items()):
            if type(member) is MemberDescriptorType:
                try:
                    if member.__get__(holder, cls) is held:
                        return name
                except AttributeError:  # not set
                    continue
    for name, value in list(_dict_of(holder).items()):
        if value is held:
            return name
    return "__dict__" if _dict_of(holder) is held else None


def _dict_of(holder: Any) -> dict[str, Any]:
    try:
        found = object.__getattribute__(holder, "__dict__")
    except Exception:
        return {}
    return found if type(found) is dict else {}


def _has_dict(holder: Any, namespace: object) -> bool:
    return _dict_of(holder) is namespace


def _is_thread_local(thing: object) -> bool:
    return any(f"{cls.__module__}.{cls.__qualname__}" == THREAD_LOCAL for cls in type(thing).__mro__)
