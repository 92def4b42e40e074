"""Whether a finalizer can reach the handle it is attached to: then the handle would never die."""

from __future__ import annotations

import functools
from types import BuiltinMethodType, FunctionType, MethodType, ModuleType

__all__ = ["refers_to"]

_DEPTH = 4
_ATOMS = (int, str, bytes, float, bool, type(None), type, ModuleType)


def refers_to(thing: object, target: object) -> bool:
    """True if ``thing`` holds a strong reference to ``target``, looking into bound methods, closures, defaults, partials
    and the common containers, a few levels deep.  Weak references and proxies do not count.

    It finds the usual mistakes, not every path: the attributes of objects are not looked at, nor is a variable of a
    closure that is assigned only later.

    Complexity: O(what is looked at); a container that is reached twice is looked into once.

    >>> class Thing:
    ...     def close(self): pass
    >>> thing = Thing()
    >>> refers_to(thing.close, thing), refers_to([{"x": thing}], thing), refers_to(print, thing)
    (True, True, False)
    """
    level = [thing]
    seen: set[int] = set()
    for _ in range(_DEPTH + 1):
        deeper: list[object] = []
        for each in level:
            if each is target:
                return True
            if type(each) not in _ATOMS and id(each) not in seen:
                seen.add(id(each))
                deeper += _held_by(each)
        if not deeper:
            return False
        level = deeper
    return False


def _held_by(thing: object) -> list[object]:
    kind = type(thing)
    if kind is FunctionType:
        return _held_by_function(thing)  # type: ignore[arg-type]
    if kind is MethodType:
        return [thing.__self__, thing.__func__]  # type: ignore[attr-defined]
    if kind is BuiltinMethodType:  # a method of an object in C, or a function with its module
        return [thing.__self__]  # type: ignore[attr-defined]
    if kind is functools.partial:
        return [thing.func, *thing.args, *thing.keywords.values()]  # type: ignore[attr-defined]
    if kind in (tuple, list, set, frozenset):
        return list(thing)  # type: ignore[call-overload,no-any-return]
    if kind is dict:
        return [*thing.keys(), *thing.values()]  # type: ignore[attr-defined]
    return []


def _held_by_function(function: FunctionType) -> list[object]:
    held = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for captured in function.__closure__ or ():
        try:
            held.append(captured.cell_contents)
        except ValueError:  # not assigned yet
            continue
    return held
