"""The builtin dictionary: the fastest point access while it is small.  Not ordered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from lifetimes.tables._shared import Getter, held_already, must, mutate, no_value
from lifetimes.tables.protocol import KEY_MAX, check_key

if TYPE_CHECKING:
    from lifetimes.tables.protocol import Table

__all__ = ["DictTable"]

V = TypeVar("V")


class DictTable(Generic[V]):
    """A table in a ``dict``.

    Complexity: everything O(1), `snapshot` and `clear` O(n).  Locks: none, the owner's lock covers it.

    >>> table = DictTable()
    >>> table.insert(7, "seven")
    >>> table.get(7), table.get(8), len(table)
    ('seven', None, 1)
    """

    __slots__ = ("_map", "get")

    get: Getter[V]
    """The dictionary's own bound method; it stays valid, so that it may be kept."""

    def __init__(self) -> None:
        self._map: dict[int, V] = {}
        self.get = self._map.get  # type: ignore[assignment]  # overloads, which allow every call that Getter allows

    def __contains__(self, key: int, /) -> bool:
        return key in self._map

    def __len__(self) -> int:
        return len(self._map)

    # A call of `check_key` costs more than the write itself; hence its hot case is spelled out, and what is found needs no
    # check of its range.

    def insert(self, key: int, value: V) -> None:
        held = self._map
        if key in held or value is None or key.__class__ is not int or not 0 <= key <= KEY_MAX:
            key = self._insertable(key, value)
        held[key] = value

    def _insertable(self, key: int, value: V) -> int:
        """The key as a plain int.  Errors: those of `insert`."""
        key = check_key(key)
        if value is None:
            raise no_value(key)
        if key in self._map:
            raise held_already(key)
        return key

    def replace(self, key: int, value: V) -> V:
        held = self._map
        if key.__class__ is not int:
            key = check_key(key)
        if value is None:
            raise no_value(key)
        try:
            old = held[key]
        except KeyError:
            check_key(key)
            raise
        held[key] = value
        return old

    def pop(self, key: int) -> V:
        held = self._map
        if key.__class__ is not int:
            key = check_key(key)
        try:
            value = held[key]
        except KeyError:
            check_key(key)
            raise
        del held[key]  # unlike its pop, no call after which Ctrl-C could strike with the value in nobody's hands
        return value

    def mutate(self, key: int, fn: Callable[[V | None], V | None]) -> V | None:
        return mutate(self, key, fn)

    def clear(self) -> None:
        self._map.clear()  # empties the dictionary before the first value dies

    def snapshot(self) -> Sequence[tuple[int, V]]:
        """The items as they are now, in order of insertion."""
        # The tuples of a listing wake the collector, whose finalizers may write here and end the iteration with an
        # error.  Nobody else can reach the copy.
        return list(self._map.copy().items())

    def check_invariants(self) -> None:
        """Complexity: O(n).  Errors: `InternalError` that says what is broken."""
        for key, value in self.snapshot():
            must(type(key) is int and 0 <= key <= KEY_MAX, "a key is a plain int in 0..2^64-1", key)
            must(value is not None, "a value is not None", key)

    def __repr__(self) -> str:
        return f"<DictTable of {len(self)}>"


if TYPE_CHECKING:
    _conforms: Table[object] = DictTable[object]()
