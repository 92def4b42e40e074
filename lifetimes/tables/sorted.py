"""A dictionary and a sorted list of its keys: ordered, in pure Python, on sortedcontainers.

`SortedDict` is made of the same two parts.  They are put together here because it matters in which order they change:
see the note in `SortedTable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from sortedcontainers import SortedList

from lifetimes.tables._shared import Getter, held_already, must, mutate, no_value
from lifetimes.tables.protocol import KEY_MAX, check_key

if TYPE_CHECKING:
    from lifetimes.tables.protocol import OrderedTable

__all__ = ["SortedTable"]

V = TypeVar("V")


class SortedTable(Generic[V]):
    """A table in a ``dict``, with its keys in a `SortedList`.

    Complexity: `get` and `replace` O(1); `insert`, `pop`, `floor`, `ceiling` about O(log n); `range` O(log n + k) for k
    items; `snapshot` O(n).  Locks: none, the owner's lock covers it.

    >>> table = SortedTable()
    >>> for key in (30, 10, 20): table.insert(key, f"block at {key}")
    >>> table.floor(25), table.ceiling(31)
    ((20, 'block at 20'), None)
    >>> [key for key, value in table.range(10, 30)]
    [10, 20]
    """

    # Note: two parts in step.
    # The list is Python code that takes several steps.  Ctrl-C, or a finalizer that uses this table, may strike between
    # any two of them, and the list is then in no state to go on with.  So the dictionary alone is the truth.  A write
    # counts itself in `_writes`, changes the list if that was up to date, then the dictionary, and last says in
    # `_indexed` that the list has come so far.  Whatever happens before that leaves the dictionary as it was and the
    # list behind for good: later writes do not touch it, and the next question about order builds a new one.  A
    # finalizer may have built that one in the middle of a write, without its key; a count more makes it stale again.
    # Rejected: undoing, which can be interrupted as well; SortedDict, which cannot tell that its list was torn.

    __slots__ = ("_indexed", "_keys", "_map", "_writes", "get")

    get: Getter[V]
    """The dictionary's own bound method; it stays valid, so that it may be kept."""

    def __init__(self) -> None:
        self._map: dict[int, V] = {}
        self._keys: SortedList = SortedList()
        self._writes = 0  # changes of the set of keys, counted as they begin
        self._indexed = 0  # Invariant: _indexed == _writes implies list(_keys) == sorted(_map)
        self.get = self._map.get  # type: ignore[assignment]  # overloads, which allow every call that Getter allows

    def __contains__(self, key: int, /) -> bool:
        return key in self._map

    def __len__(self) -> int:
        return len(self._map)

    # A call of `check_key` costs more than the write itself; hence its hot case is spelled out in each write.

    def insert(self, key: int, value: V) -> None:
        if key.__class__ is not int or not 0 <= key <= KEY_MAX:
            key = check_key(key)
        if value is None:
            raise no_value(key)
        if key in self._map:
            raise held_already(key)
        keys = self._keys
        writes = self._writes = self._writes + 1
        in_step = self._indexed == writes - 1
        if in_step:
            keys.add(key)
            if key in self._map:  # by a finalizer
                raise held_already(key)
        self._map[key] = value
        if in_step and self._keys is keys:
            self._indexed = writes
        else:
            self._writes += 1

    def replace(self, key: int, value: V) -> V:
        if key.__class__ is not int or not 0 <= key <= KEY_MAX:
            key = check_key(key)
        if value is None:
            raise no_value(key)
        old = self._map[key]
        self._map[key] = value
        return old

    def pop(self, key: int) -> V:
        if key.__class__ is not int or not 0 <= key <= KEY_MAX:
            key = check_key(key)
        if key not in self._map:
            raise KeyError(key)
        keys = self._keys
        writes = self._writes = self._writes + 1
        in_step = self._indexed == writes - 1
        if in_step:
            keys.remove(key)
        value = self._map[key]
        del self._map[key]
        if in_step and self._keys is keys:
            self._indexed = writes
        else:
            self._writes += 1
        return value

    def mutate(self, key: int, fn: Callable[[V | None], V | None]) -> V | None:
        return mutate(self, key, fn)

    def clear(self) -> None:
        writes = self._writes = self._writes + 1
        keys = SortedList()
        self._map.clear()  # is empty before the first value dies; a finalizer that inserts moves `_writes` on
        self._keys = keys
        self._indexed = writes

    def snapshot(self) -> Sequence[tuple[int, V]]:
        """The items as they are now, ascending."""
        return self._items(list(self._index()))

    def floor(self, key: int) -> tuple[int, V] | None:
        keys = self._index()
        position = keys.bisect_right(key)
        if not position:
            return None
        found: int = keys[position - 1]
        return found, self._map[found]

    def ceiling(self, key: int) -> tuple[int, V] | None:
        keys = self._index()
        position = keys.bisect_left(key)
        if position == len(keys):
            return None
        found: int = keys[position]
        return found, self._map[found]

    def range(self, low: int, high: int) -> Iterator[tuple[int, V]]:
        return iter(self._items(list(self._index().irange(low, high, inclusive=(True, False)))))

    def _index(self) -> SortedList:
        """The keys in order: the list, or a new one if it was left behind."""
        while self._indexed != self._writes:
            writes = self._writes
            self._keys = SortedList(self._map)
            self._indexed = writes
        return self._keys

    def _items(self, keys: list[int]) -> list[tuple[int, V]]:
        # The tuples of a listing wake the collector, whose finalizers may pop a key that is still to come.
        return [(key, value) for key in keys if (value := self.get(key)) is not None]

    def check_invariants(self) -> None:
        """Complexity: O(n log n).  Errors: `InternalError` that says what is broken."""
        must(self._indexed <= self._writes, "the list is not ahead of the writes", (self._indexed, self._writes))
        keys = list(self._index())
        must(keys == sorted(self._map), "the list has the keys of the dictionary, ascending", (keys, self._map))
        self._keys._check()
        for key, value in self._map.items():
            must(type(key) is int and 0 <= key <= KEY_MAX, "a key is a plain int in 0..2^64-1", key)
            must(value is not None, "a value is not None", key)

    def __repr__(self) -> str:
        return f"<SortedTable of {len(self)}>"


if TYPE_CHECKING:
    _conforms: OrderedTable[object] = SortedTable[object]()
