"""NumPy's own functions on traced arrays: which of ours each is, and its arguments as ours takes them.

NumPy calls here when one of its functions is given a traced array (its protocols ``__array_ufunc__`` and
``__array_function__``).  The names are mostly the same.  Arguments may be given in NumPy's order; those that ours lacks
may be given only as what they are by default.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import Any, Final

import numpy as np

from lifetimes.errors import TraceError

__all__ = ["call"]

_NAMES: Final = {
    "absolute": "abs",
    "amax": "max",
    "amin": "min",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "concatenate": "concat",
    "fabs": "abs",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "power": "pow",
    "right_shift": "bitwise_right_shift",
    "rint": "round",
    "true_divide": "divide",
}
"""Functions whose name in NumPy is another one."""
_ARGUMENTS: Final = {"a_min": "min", "a_max": "max"}
"""Arguments whose name in NumPy is another one."""
_MODULES: Final = ("numpy", "numpy.linalg")
"""Functions of the same name elsewhere mean something else."""


def call(namespace: ModuleType, function: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """What NumPy's ``function`` is in the namespace, of these arguments.

    Errors: `TraceError` where there is no such function, or it does not take these arguments.
    """
    name, module = function.__name__, getattr(function, "__module__", None) or "numpy"
    shown = f"{module.replace('numpy', 'np', 1)}.{name}"
    own = _NAMES.get(name, name)
    ours = _transpose if own == "transpose" else getattr(namespace, own, None)
    if module not in _MODULES or not callable(ours) or (own not in namespace.__all__ and ours is not _transpose):
        raise TraceError(
            f"{shown} cannot be traced: compiled functions have no such function; write it with those of "
            f"x.__array_namespace__(), or call it outside of the traced function"
        )
    signature = inspect.signature(ours)
    positional, named = _rearranged(function, signature, args, options)
    try:
        signature.bind(*positional, **named)
    except TypeError as error:
        raise TraceError(
            f"{shown} cannot be traced with these arguments ({error}): here it is {own}{_short(signature)}"
        ) from None
    return ours(*positional, **named)


def _transpose(x: Any, /, axes: Any = None) -> Any:
    return x.T if axes is None else x.transpose(axes)


def _short(signature: inspect.Signature) -> inspect.Signature:
    """Without types."""
    plain = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
    return signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)


def _rearranged(
    function: Any, ours: inspect.Signature, args: Sequence[Any], options: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Arguments as ours takes them: the first by position, the rest by name, without what is left as it is by default."""
    theirs = _parameters(function)
    if theirs is None or len(args) > len(theirs):
        return args, options
    given = {**dict(zip(theirs, args, strict=False)), **options}
    first = sum(each.kind is each.POSITIONAL_ONLY for each in ours.parameters.values())
    positional = [given.pop(name) for name in list(theirs)[:first] if name in given]
    named = {_ARGUMENTS.get(name, name): value for name, value in given.items()}
    defaults = {name: each.default for name, each in theirs.items()}
    return positional, {
        name: value for name, value in named.items() if name in ours.parameters or value is not defaults.get(name)
    }


@cache
def _parameters(function: Any) -> Mapping[str, inspect.Parameter] | None:
    """NumPy's arguments by name; None for a ufunc, whose arguments have no names, and for what takes any number."""
    if isinstance(function, np.ufunc):
        return None
    try:
        found = inspect.signature(function).parameters
    except ValueError:  # it is written in C
        return None
    return None if any(each.kind is each.VAR_POSITIONAL for each in found.values()) else found
