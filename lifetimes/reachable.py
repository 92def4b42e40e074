"""Whether a finalizer can reach the handle it is attached to: then the handle would never die."""

from __future__ import annotations

import functools
from types import FunctionType, MethodType

__all__ = ["refers_to"]

_DEPTH = 4


def refers_to(thing: object, target: object, depth: int = _DEPTH) -> bool:
    """True if ``thing`` holds a strong reference to ``target``, looking into bound methods, closures, defaults, partials
    and the common containers, a few levels deep.  Weak references and proxies do not count.

    It finds the usual mistakes, not every path: the attributes of objects are not looked at.

    >>> class Thing:
    ...     def close(self): pass
    >>> thing = Thing()
    >>> refers_to(thing.close, thing), refers_to([{"x": thing}], thing), refers_to(print, thing)
    (True, True, False)
    """
    if thing is target:
        return True
    if not depth:
        return False
    inner: list[object]
    if type(thing) is MethodType:
        inner = [thing.__self__, thing.__func__]
    elif type(thing) is FunctionType:
        inner = [*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values()]
        for captured in thing.__closure__ or ():
            try:
                inner.append(captured.cell_contents)
            except ValueError:  # not assigned yet
                continue
    elif type(thing) is functools.partial:
        inner = [thing.func, *thing.args, *thing.keywords.values()]
    elif type(thing) in (tuple, list, set, frozenset):
        inner = list(thing)  # type: ignore[call-overload]
    elif type(thing) is dict:
        inner = [*thing.keys(), *thing.values()]
    else:
        return False
    return any(refers_to(each, target, depth - 1) for each in inner)
