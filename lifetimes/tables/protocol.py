"""The table protocol: unsigned 64-bit key -> object.

Writes check and normalise their key; reads are defined for in-range ints only, so that an implementation can hand
out the container's own bound method.  Tables hold no locks: whoever owns the table covers it with its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import index
from typing import Protocol, TypeVar, runtime_checkable

__all__ = ["KEY_MAX", "OrderedTable", "Table", "check_key"]

V = TypeVar("V")
T = TypeVar("T")

KEY_MAX = 2**64 - 1


def check_key(key: object) -> int:
    """``key`` as a plain int in 0..2^64-1.

    Errors: `TypeError` for what is no integer and for bool (True is no address), `OverflowError` out of range.

    >>> check_key(7), check_key(KEY_MAX) == KEY_MAX
    (7, True)
    >>> check_key(True)
    Traceback (most recent call last):
    TypeError: a table key must be an integer, not the bool True
    """
    if key.__class__ is int:  # the hot case, without a call
        number: int = key
    else:
        if isinstance(key, bool):
            raise TypeError(f"a table key must be an integer, not the bool {key}")
        try:
            number = index(key)  # type: ignore[arg-type]
        except TypeError:
            raise TypeError(f"a table key must be an integer, not {type(key).__name__} {key!r}") from None
    if 0 <= number <= KEY_MAX:
        return number
    raise OverflowError(f"a table key must lie in 0..2**64-1, not {number}")


@runtime_checkable
class Table(Protocol[V]):
    """Unsigned 64-bit integer -> object.  ``get`` may be an attribute holding the container's bound method."""

    def get(self, key: int, default: V | None = None, /) -> V | None:
        """must: the value, or ``default``.  A ``get`` that was kept stays right as long as the table lives, past `clear`."""
        ...

    def __contains__(self, key: int, /) -> bool:
        """must."""
        ...

    def __len__(self) -> int:
        """must."""
        ...

    def insert(self, key: int, value: V) -> None:
        """must: add a new key.  Errors: `KeyError` for a duplicate (nothing changes), those of `check_key`."""
        ...

    def replace(self, key: int, value: V) -> V:
        """must: a present key's new value; returns the old one.  Errors: `KeyError` when absent."""
        ...

    def pop(self, key: int) -> V:
        """must: remove and return.  Errors: `KeyError` when absent."""
        ...

    def mutate(self, key: int, fn: Callable[[V | None], V | None]) -> V | None:
        """must: ``fn(old or None)`` becomes the value; None removes it.  If ``fn`` raises, nothing changes."""
        ...

    def clear(self) -> None:
        """must: forget everything.  A ``get`` that was kept stays right, so the container is emptied, not replaced."""
        ...

    def snapshot(self) -> Sequence[tuple[int, V]]:
        """must: the items as they are now (ascending where the table is ordered).  The only iteration there is."""
        ...


@runtime_checkable
class OrderedTable(Table[V], Protocol[V]):
    """A table that also answers neighbour queries."""

    def floor(self, key: int) -> tuple[int, V] | None:
        """must: the item with the greatest key <= ``key``, or None."""
        ...

    def ceiling(self, key: int) -> tuple[int, V] | None:
        """must: the item with the smallest key >= ``key``, or None."""
        ...

    def range(self, low: int, high: int) -> Iterator[tuple[int, V]]:
        """must: the items with ``low`` <= key < ``high``, ascending, as they were at the call."""
        ...
