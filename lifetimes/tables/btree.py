"""A B-tree in C: ordered, with a cheap floor.  It stands on the package ``BTrees``, which the extra ``tables`` brings.

The class is `QOBTree`: unsigned 64-bit key, any object.  (`LOBTree` is the signed one and refuses the upper half.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from BTrees.QOBTree import QOBTree

from lifetimes.tables._shared import Getter, held_already, must, mutate, no_value
from lifetimes.tables.protocol import KEY_MAX, check_key

if TYPE_CHECKING:
    from lifetimes.tables.protocol import OrderedTable

__all__ = ["BTreeTable"]

V = TypeVar("V")


class BTreeTable(Generic[V]):
    """A table in a `QOBTree`.

    Complexity: `get`, `insert`, `replace`, `pop`, `floor`, `ceiling` O(log n), `len` O(1), `range` O(log n + k) for k items,
    `snapshot` O(n), `clear` O(n log n).  Locks: none, the owner's lock covers it.

    On CPython 3.11 the collector may run inside a write, while the tree is being rearranged.  A finalizer that it runs
    must not use this very table; behind a lock that refuses its own holder, as the manager's does, none can.

    >>> table = BTreeTable()
    >>> for key in (30, 10, 20): table.insert(key, f"block at {key}")
    >>> table.floor(25), table.ceiling(31)
    ((20, 'block at 20'), None)
    >>> [key for key, value in table.range(10, 30)]
    [10, 20]
    """

    # Note: the tree must not let a value die.
    # Its assignment releases the old value before it stores the new one, and its `clear` releases them while it takes
    # itself apart: a finalizer run there reads a dead value, or writes into what is being freed.  So every value is
    # held by a variable before the tree lets go of it.  The read that takes hold and the write are neighbours with no
    # call between them, so that neither a signal handler nor the collector can get between.

    # Note: the count.
    # The tree's own `len` walks through all leaves, so the keys are counted here.  Ctrl-C, or a finalizer that uses this
    # table, may come between a write and its count.  A write therefore says in `_begun` that it begins, and last in
    # `_known` that the count has come so far; whatever happens in between leaves the two apart, and the next `len` walks.

    __slots__ = ("_begun", "_count", "_known", "_map", "get")

    get: Getter[V]
    """The tree's own bound method; it stays valid, so that it may be kept."""

    def __init__(self) -> None:
        self._map: Any = QOBTree()
        self._begun = 0  # changes of the set of keys
        self._known = 0  # Invariant: _known == _begun implies _count == len(_map)
        self._count = 0
        self.get = self._map.get

    def __contains__(self, key: int, /) -> bool:
        return key in self._map

    def __len__(self) -> int:
        while self._known != self._begun:
            begun = self._begun
            self._count = len(self._map)
            self._known = begun
        return self._count

    # A call of `check_key` costs as much as the write itself; hence its hot case is spelled out in each write.

    def insert(self, key: int, value: V) -> None:
        if key.__class__ is not int or not 0 <= key <= KEY_MAX:
            key = check_key(key)
        if value is None:
            raise no_value(key)
        if key in self._map:
            raise held_already(key)
        begun = self._begun = self._begun + 1
        self._map[key] = value
        if self._begun == begun and self._known == begun - 1:
            self._count += 1
            self._known = begun
        else:
            self._begun += 1  # a count that was taken inside the write is void

    def replace(self, key: int, value: V) -> V:
        if key.__class__ is not int or not 0 <= key <= KEY_MAX:
            key = check_key(key)
        if value is None:
            raise no_value(key)
        old: V = self._map[key]
        self._map[key] = value
        return old

    def pop(self, key: int) -> V:
        if key.__class__ is not int or not 0 <= key <= KEY_MAX:
            key = check_key(key)
        value: V = self._map[key]
        begun = self._begun = self._begun + 1
        del self._map[key]
        if self._begun == begun and self._known == begun - 1:
            self._count -= 1
            self._known = begun
        else:
            self._begun += 1
        return value

    def mutate(self, key: int, fn: Callable[[V | None], V | None]) -> V | None:
        return mutate(self, key, fn)

    def clear(self) -> None:
        # One by one.  Rejected: the tree's own, see the first note; a new tree, because whoever keeps `get` reads the old.
        held: list[V] = []
        for key in list(self._map.keys()):
            if key in self._map:
                held.append(self.pop(key))

    def snapshot(self) -> Sequence[tuple[int, V]]:
        """The items as they are now, ascending."""
        return self._listed()

    def floor(self, key: int) -> tuple[int, V] | None:
        while True:
            try:
                found: int = self._map.maxKey(key)
            except ValueError:  # there is none
                return None
            value = self.get(found)
            if value is not None:
                return found, value

    def ceiling(self, key: int) -> tuple[int, V] | None:
        while True:
            try:
                found: int = self._map.minKey(key)
            except ValueError:
                return None
            value = self.get(found)
            if value is not None:
                return found, value

    def range(self, low: int, high: int) -> Iterator[tuple[int, V]]:
        if low >= high:
            return iter(())
        return iter(self._listed(low, high - 1))

    def _listed(self, *ends: int) -> list[tuple[int, V]]:
        # The tree's own list of items makes a tuple each, which wakes the collector (in CPython 3.11), whose finalizers
        # may write here and end the iteration with an error.  Lists of what is there already do not.
        tree = self._map
        while True:
            begun = self._begun
            keys, values = list(tree.keys(*ends)), list(tree.values(*ends))
            if begun == self._begun:
                return list(zip(keys, values, strict=True))

    def check_invariants(self) -> None:
        """Complexity: O(n).  Errors: `InternalError` that says what is broken."""
        keys = list(self._map.keys())
        must(self._known <= self._begun, "no write is counted before it begins", (self._known, self._begun))
        must(len(keys) == len(self), "the count is that of the keys", (len(self), keys))
        must(keys == sorted(set(keys)), "the tree lists its keys ascending", keys)
        for key in keys:
            must(self.get(key) is not None, "a listed key is found", key)

    def __repr__(self) -> str:
        return f"<BTreeTable of {len(self)}>"


if TYPE_CHECKING:
    _conforms: OrderedTable[object] = BTreeTable[object]()
