"""A wrapper that checks everything: keys on reads too, what comes back, order, counts.

For tests, for a new table, and for the day on which a table is under suspicion.  Tables stay fast by not checking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Generic, TypeVar

from lifetimes.tables._shared import must
from lifetimes.tables.protocol import KEY_MAX, OrderedTable, Table, check_key

__all__ = ["Checked", "CheckedOrdered", "checked"]

V = TypeVar("V")


class Checked(Generic[V]):
    """The table ``upstream``, whose every answer is checked against its other answers.

    Errors: those of `check_key`, on reads too; `InternalError` with the broken rule when ``upstream`` contradicts
    itself.  Complexity: a few calls of ``upstream`` for each of its own; `snapshot`, `clear` and `check_invariants`
    O(n) of them.  Locks: none, the owner's lock covers it.

    >>> from lifetimes.tables import make
    >>> table = Checked(make("dict"))
    >>> table.insert(7, "seven")
    >>> table.get(7)
    'seven'
    >>> table.get(-1)
    Traceback (most recent call last):
    OverflowError: a table key must lie in 0..2**64-1, not -1
    """

    def __init__(self, upstream: Table[V]) -> None:
        self.upstream = upstream

    def get(self, key: int, default: V | None = None, /) -> V | None:
        key = check_key(key)
        value = self.upstream.get(key, default)
        if key in self.upstream:
            self._must(value is not None and value is self.upstream.get(key), "get finds a key that is in", key)
        else:
            self._must(value is default, "get gives the default for a key that is not in", (key, value))
            self._must(self.upstream.get(key) is None, "get gives None for a key that is not in", key)
        return value

    def __contains__(self, key: int, /) -> bool:
        key = check_key(key)
        found = key in self.upstream
        self._must(found == (self.upstream.get(key) is not None), "`in` and get agree", key)
        return found

    def __len__(self) -> int:
        return len(self.upstream)

    def insert(self, key: int, value: V) -> None:
        normal = check_key(key)
        old, count = self.upstream.get(normal), len(self)
        try:
            self.upstream.insert(key, value)
        except (KeyError, TypeError):
            self._must(value is None or old is not None, "insert refuses duplicates and None only", normal)
            self._unchanged(normal, old, count)
            raise
        self._must(old is None, "insert refuses a duplicate", normal)
        self._must(value is not None, "insert refuses None", normal)
        self._holds(normal, value, count + 1)

    def replace(self, key: int, value: V) -> V:
        normal = check_key(key)
        old, count = self.upstream.get(normal), len(self)
        try:
            given = self.upstream.replace(key, value)
        except (KeyError, TypeError):
            self._must(value is None or old is None, "replace refuses absent keys and None only", normal)
            self._unchanged(normal, old, count)
            raise
        self._must(old is not None and given is old, "replace needs a present key and gives the old value", normal)
        self._must(value is not None, "replace refuses None", normal)
        self._holds(normal, value, count)
        return given

    def pop(self, key: int) -> V:
        normal = check_key(key)
        old, count = self.upstream.get(normal), len(self)
        try:
            given = self.upstream.pop(key)
        except KeyError:
            self._must(old is None, "pop takes a key that is in", normal)
            self._unchanged(normal, None, count)
            raise
        self._must(old is not None and given is old, "pop gives the value that get gave", normal)
        self._must(normal not in self.upstream, "pop takes the key out", normal)
        self._must(len(self) == count - 1, "pop lowers the count by one", (count, len(self)))
        return given

    def mutate(self, key: int, fn: Callable[[V | None], V | None]) -> V | None:
        normal = check_key(key)
        old = self.upstream.get(normal)
        calls: list[V | None] = []  # holds the old value, so that it does not die before the checks

        def once(given: V | None) -> V | None:
            self._must(not calls, "mutate calls the function once", normal)
            self._must(given is old, "mutate gives the function the value that get gave", normal)
            calls.append(given)
            return fn(given)

        result = self.upstream.mutate(key, once)
        self._must(bool(calls), "mutate calls the function", normal)
        self._must(self.upstream.get(normal) is result, "the function's result is the value after mutate", normal)
        return result

    def clear(self) -> None:
        held = self.snapshot()  # outlives the checks, so that no finalizer can fill the table again before them
        self.upstream.clear()
        self._must(len(self) == 0, "clear leaves nothing", len(self))
        self._must(not any(key in self.upstream for key, _ in held), "clear leaves no key", len(held))

    def snapshot(self) -> Sequence[tuple[int, V]]:
        items = self.upstream.snapshot()
        self._must(len(items) == len(self) == len({key for key, _ in items}), "a snapshot has each key once", items)
        self._are_items(items)
        return items

    def check_invariants(self) -> None:
        """Check ``upstream`` by its own `check_invariants`, if it has one, and by a snapshot."""
        inner = getattr(self.upstream, "check_invariants", None)
        if inner is not None:
            inner()
        self.snapshot()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.upstream!r})"

    def _must(self, holds: bool, rule: str, state: object) -> None:
        must(holds, rule, (self.upstream, state))

    def _holds(self, key: int, value: V | None, count: int) -> None:
        self._must(key in self.upstream and self.upstream.get(key) is value, "a written value is found", key)
        self._must(len(self) == count, "a write counts as it should", (key, count, len(self)))

    def _unchanged(self, key: int, old: V | None, count: int) -> None:
        self._must(self.upstream.get(key) is old, "a refused write changes nothing", key)
        self._must(len(self) == count, "a refused write does not count", (key, count, len(self)))

    def _are_items(self, items: Sequence[tuple[int, V]]) -> None:
        for key, value in items:
            self._must(type(key) is int and 0 <= key <= KEY_MAX, "a key comes back as a plain int", key)
            self._must(value is not None and self.upstream.get(key) is value, "a listed item is held", key)


class CheckedOrdered(Checked[V]):
    """`Checked` for an ordered table: neighbours too.

    >>> from lifetimes.tables import make
    >>> table = CheckedOrdered(make("sorted", ordered=True))
    >>> table.insert(4096, "a block")
    >>> table.floor(5000)
    (4096, 'a block')
    """

    upstream: OrderedTable[V]

    def __init__(self, upstream: OrderedTable[V]) -> None:
        super().__init__(upstream)

    def floor(self, key: int) -> tuple[int, V] | None:
        key = check_key(key)
        found = self.upstream.floor(key)
        if found is not None:
            self._are_items([found])
            self._must(found[0] <= key, "floor is not above its key", (key, found))
        if found is None or found[0] < key:
            above = self.upstream.ceiling(0 if found is None else found[0] + 1)
            self._must(above is None or above[0] > key, "no key lies between floor and its key", (key, found, above))
        return found

    def ceiling(self, key: int) -> tuple[int, V] | None:
        key = check_key(key)
        found = self.upstream.ceiling(key)
        if found is not None:
            self._are_items([found])
            self._must(found[0] >= key, "ceiling is not below its key", (key, found))
        if found is None or found[0] > key:
            below = self.upstream.floor(KEY_MAX if found is None else found[0] - 1)
            self._must(below is None or below[0] < key, "no key lies between ceiling and its key", (key, found, below))
        return found

    def range(self, low: int, high: int) -> Iterator[tuple[int, V]]:
        low = check_key(low)
        if high != KEY_MAX + 1:  # the end after the last key is no key
            high = check_key(high)
        items = list(self.upstream.range(low, high))
        self._ascending(items)
        self._must(all(low <= key < high for key, _ in items), "a range stays inside", (low, high, items))
        for at, edge in ((low, items[:1]), (items[-1][0] + 1 if items else low, [])):
            if at < high:
                first = self.upstream.ceiling(at)
                inside = [] if first is None or first[0] >= high else [first]
                self._must(inside == edge, "a range leaves nothing out at its ends", (low, high, items, first))
        return iter(items)

    def snapshot(self) -> Sequence[tuple[int, V]]:
        items = super().snapshot()
        self._ascending(items)
        return items

    def _ascending(self, items: Sequence[tuple[int, V]]) -> None:
        self._are_items(items)
        self._must(all(a[0] < b[0] for a, b in pairwise(items)), "items are listed ascending", items)


def checked(table: Table[V]) -> Checked[V]:
    """``table`` in `CheckedOrdered` if it is ordered, else in `Checked`."""
    return CheckedOrdered(table) if isinstance(table, OrderedTable) else Checked(table)


if TYPE_CHECKING:
    from lifetimes.tables.dict import DictTable
    from lifetimes.tables.sorted import SortedTable

    _conforms: Table[object] = Checked(DictTable[object]())
    _conforms_ordered: OrderedTable[object] = CheckedOrdered(SortedTable[object]())
