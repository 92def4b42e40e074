"""What the built-in tables share: the shape of a bound ``get``, refusals, `mutate` by parts, a failed invariant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from lifetimes.errors import InternalError
from lifetimes.tables.protocol import Table, check_key

__all__ = ["Getter", "held_already", "must", "mutate", "no_value"]

V = TypeVar("V")


class Getter(Protocol[V]):
    """`Table.get` as an attribute: a container's own bound method."""

    def __call__(self, key: int, default: V | None = None, /) -> V | None: ...


def no_value(key: int) -> TypeError:
    """None is refused by every table, so that they stay interchangeable (Judy cannot hold it).

    It also makes ``get(key) is None`` an exact test for absence, and `mutate` can use it for removal.
    """
    return TypeError(f"a table holds no None (key {key}); pop() removes a key")


def held_already(key: int) -> KeyError:
    """The error of a duplicate `insert`."""
    return KeyError(f"the table holds key {key} already; replace() changes it")


def mutate(table: Table[V], key: int, fn: Callable[[V | None], V | None]) -> V | None:
    """`Table.mutate` in terms of the other members.  ``fn`` may change the table itself: its result is written last."""
    key = check_key(key)
    value = fn(table.get(key))
    if value is None:
        if key in table:
            table.pop(key)
    elif key in table:
        table.replace(key, value)
    else:
        table.insert(key, value)
    return value


def must(holds: bool, rule: str, state: object) -> None:
    """Raise `InternalError` with the rule that is broken and the state that breaks it."""
    if not holds:
        raise InternalError(f"this must hold: {rule}.  State: {state!r}")
