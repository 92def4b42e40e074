"""Putting something else into the place of a library's classes and functions, and taking it back."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

__all__ = ["StandIn", "Substitutes", "subclass_of"]


class Substitutes:
    """The names of a package's modules that were bound to something else, and to what they were bound before."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._before: list[tuple[ModuleType, str, Any]] = []

    def put(self, original: object, instead: object) -> None:
        """Bind every name of the package's loaded modules that is bound to ``original`` to ``instead``."""
        for module in self._modules():
            for name, value in list(vars(module).items()):
                if value is original:
                    self._before.append((module, name, original))
                    setattr(module, name, instead)

    def take_back(self) -> None:
        """Bind them all as before."""
        while self._before:
            module, name, original = self._before.pop()
            setattr(module, name, original)

    def _modules(self) -> list[ModuleType]:
        inside = f"{self._package}."
        return [
            module
            for name, module in list(sys.modules.items())
            if (name == self._package or name.startswith(inside)) and isinstance(module, ModuleType)
        ]


class StandIn:
    """Stands for a class and makes instances of a subclass of it.

    A metaclass of our own would be the usual way, but the metaclass of classes written in C++ need not allow that.  So this is
    an ordinary object that does what programs do with a class: call it, ask `isinstance`, look up its attributes,
    derive from it, write ``Buffer | None``.

    >>> class Counted(list): pass
    >>> List = StandIn(list, Counted)
    >>> type(List("ab")).__name__, isinstance([], List), issubclass(Counted, List), List.append is list.append, type([]) == List
    ('Counted', True, True, True, True)
    >>> class Mine(List): pass
    >>> Mine.__mro__[1].__name__
    'Counted'
    """

    def __init__(self, original: type, substitute: type) -> None:
        self.__dict__.update(
            __original__=original,
            __substitute__=substitute,
            __name__=original.__name__,
            __qualname__=original.__qualname__,
            __module__=original.__module__,
            __doc__=original.__doc__,
        )

    __original__: type
    __substitute__: type

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.__substitute__(*args, **options)

    def __instancecheck__(self, thing: object) -> bool:
        return isinstance(thing, self.__original__)

    def __subclasscheck__(self, other: type) -> bool:
        return issubclass(other, self.__original__)

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type]:
        return (self.__substitute__,)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__original__, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.__original__, name, value)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self.__original__ or other is self.__substitute__

    def __hash__(self) -> int:
        return hash(self.__original__)

    def __or__(self, other: Any) -> Any:
        return self.__original__ | other

    def __ror__(self, other: Any) -> Any:
        return other | self.__original__

    def __repr__(self) -> str:
        return repr(self.__original__)


def subclass_of(original: type, **members: Any) -> StandIn:
    """What to bind in the place of ``original``: a stand-in for a subclass of that name with these members."""
    about = {"__module__": original.__module__, "__qualname__": original.__qualname__, "__doc__": original.__doc__}
    return StandIn(original, type(original)(original.__name__, (original,), {**about, **members}))
