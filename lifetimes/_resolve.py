"""Names for interchangeable parts: one way to say which table or which policy is meant.

A part is said by a registered name, by ``"package.module:Name"``, by a class or another callable without arguments,
or by an object that is one already.  Nothing is imported before it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import get_annotations
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

__all__ = ["Parts", "lacks", "load"]

T = TypeVar("T")


@runtime_checkable
class _Empty(Protocol[T]):  # type: ignore[misc]  # it uses its variable for nothing, and that is the point
    """A protocol that asks for nothing: what it has, every protocol has."""


def lacks(part: object, protocol: type) -> tuple[str, ...]:
    """The members of ``protocol`` that ``part`` does not have, in alphabetical order.

    >>> from collections.abc import Callable
    >>> class Bell(Protocol):
    ...     tone: int
    ...     def ring(self) -> None: ...
    >>> lacks("a string", Bell)
    ('ring', 'tone')
    """
    members = set(dir(protocol)).union(*(get_annotations(base) for base in protocol.__mro__))
    members -= {*dir(_Empty), "__annotations__"}
    return tuple(sorted(member for member in members if not hasattr(part, member)))


def load(path: str) -> Any:
    """The object that ``"package.module:Name"`` says; dots in the name go into nested ones.

    Errors: `ValueError` that shows the path and why it leads nowhere.

    >>> load("math:pi") > 3
    True
    """
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise ValueError(f"{path!r} is no import path; write 'package.module:Name'")
    try:
        found: Any = import_module(module_name)
        for step in name.split("."):
            found = getattr(found, step)
    except (ImportError, AttributeError, TypeError) as error:  # TypeError: a relative name
        raise ValueError(f"{path!r} cannot be imported: {error}") from error
    return found


class Parts(Generic[T]):
    """The registered parts of one kind.

    ``rows`` maps a name to its import path; ``extras`` maps a name to the extra of the distribution that it needs.
    Locks: none; register before threads start to make parts.

    >>> numbers = Parts("number", {"pi": "math:pi"}, extras={"tau": "more"})
    >>> numbers.names()
    ('pi',)
    >>> numbers.find("tau")
    Traceback (most recent call last):
    ValueError: unknown number 'tau': there is pi; tau comes with the extra device-lifetimes[more]; any other is given \
as an object, a class or 'package.module:Name'
    """

    def __init__(
        self, kind: str, rows: Mapping[str, str | Callable[[], T]], *, extras: Mapping[str, str] | None = None
    ) -> None:
        self.kind = kind
        self.rows = dict(rows)
        self.extras = dict(extras or {})

    def names(self) -> tuple[str, ...]:
        """Every registered name, the built-in ones first."""
        return tuple(self.rows)

    def register(self, name: str, factory: str | Callable[[], T]) -> None:
        """Let ``name`` stand for a class, a callable without arguments, or an import path (imported at first use).

        Registering the same again is fine.  Errors: `ValueError` for a name that is taken or not usable as one,
        `TypeError` for a factory that is neither callable nor a string.
        """
        if not isinstance(name, str) or not name or ":" in name:
            raise ValueError(f"a {self.kind} is registered under a non-empty string without a colon, not {name!r}")
        if not isinstance(factory, str) and not callable(factory):
            raise TypeError(f"{self.kind} {name!r}: give a class, a callable or 'package.module:Name', not {factory!r}")
        if isinstance(factory, str) and ":" not in factory:
            raise ValueError(f"{self.kind} {name!r}: {factory!r} is no import path; write 'package.module:Name'")
        if self.rows.setdefault(name, factory) != factory:
            raise ValueError(f"the {self.kind} name {name!r} is taken by {self.rows[name]!r}; choose another one")

    def find(self, name: str) -> Any:
        """What a registered name or an import path stands for.  Errors: `ValueError` that says what there is."""
        row = self.rows.get(name)
        if row is None:
            if ":" in name:
                return load(name)
            raise ValueError(f"unknown {self.kind} {name!r}: {self._what_there_is()}")
        if not isinstance(row, str):
            return row
        try:
            return load(row)
        except ValueError as error:
            extra = self.extras.get(name)
            remedy = f"install the extra device-lifetimes[{extra}]" if extra else self._what_there_is()
            raise ValueError(f"the {self.kind} {name!r} is not usable here: {error}; {remedy}") from error

    def make(self, spec: object, protocol: type) -> T:
        """The part that ``spec`` says; an object that satisfies ``protocol`` is returned as it is.

        Errors: those of `find`; `TypeError` for what says no part, with the members it lacks; what a factory raises,
        with a note.
        """
        found = self.find(spec) if isinstance(spec, str) else spec
        if isinstance(found, type) or (callable(found) and lacks(found, protocol)):
            try:
                found = found()
            except Exception as error:
                error.add_note(f"raised while the {self.kind} {spec!r} was made, without arguments")
                raise
        missing = lacks(found, protocol)
        if missing:
            what = f"{type(found).__name__} lacks {', '.join(missing)}"
            raise TypeError(f"{spec!r} is no {self.kind}: {what}; {self._what_there_is()}")
        part: T = found  # type: ignore[assignment]  # every member was looked up just now
        return part

    def _what_there_is(self) -> str:
        names = f"there {'is' if len(self.rows) == 1 else 'are'} {', '.join(self.rows)}"
        more = [f"{name} comes with the extra device-lifetimes[{extra}]" for name, extra in self.extras.items()]
        return "; ".join([names, *more, "any other is given as an object, a class or 'package.module:Name'"])
