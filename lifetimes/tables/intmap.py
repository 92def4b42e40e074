"""A persistent trie: a snapshot costs nothing, whatever the size, and stays as it was.

The structure is the big-endian Patricia trie of C. Okasaki and A. Gill, "Fast Mergeable Integer Maps" (ML Workshop,
1998), known from Haskell as IntMap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

from lifetimes.tables._shared import held_already, must, mutate, no_value
from lifetimes.tables.protocol import KEY_MAX, check_key

if TYPE_CHECKING:
    from lifetimes.tables.protocol import OrderedTable

__all__ = ["IntMapSnapshot", "IntMapTable"]

V = TypeVar("V")


class _Leaf(tuple[int, Any]):
    """An item.  A class of its own tells it from a branch, and it goes out to the caller as it is."""

    __slots__ = ()


# Note [Branches].  A branch is a plain tuple (split, left, right).  All keys below it agree in the bits above one bit,
# and differ in that one: 0 on the left, 1 on the right.  ``split`` is the least key that could stand on the right: the
# common bits, that bit, and zeros.  So one number says both where the keys agree and where they part (its lowest set
# bit), and a search is one comparison a branch, because left < split <= right also holds for keys that are not there.
# Rejected: a class with three slots (two to four times the time of every write, which makes as many new branches as
# the key has above it); the common bits and the bit apart (two comparisons a branch).

_Branch: TypeAlias = tuple[int, Any, Any]
_Node: TypeAlias = Any  # a branch, a leaf, or None; mypy does not tell them apart by their class


class IntMapTable(Generic[V]):
    """A table in a big-endian Patricia trie that is never changed: a write makes the way down anew and shares the rest.

    Complexity: `get`, `insert`, `replace`, `pop`, `floor`, `ceiling` O(min(log n, 64)) for keys that are spread, at most 64
    steps for any; `len`, `snapshot`, `range` O(1), and O(1) for each item that is then looked at; `clear` O(1), and O(n)
    when the last snapshot goes.  Locks: none, the owner's lock covers it.

    >>> table = IntMapTable()
    >>> for key in (30, 10, 20): table.insert(key, f"block at {key}")
    >>> before = table.snapshot()
    >>> table.pop(10)
    'block at 10'
    >>> table.floor(25), table.ceiling(31), len(table)
    ((20, 'block at 20'), None, 2)
    >>> [key for key, value in before]
    [10, 20, 30]
    """

    # Note: interrupts.
    # A write computes the new state from the old one, which Ctrl-C may end at any point without harm, and puts it in place
    # by one assignment.  A finalizer that uses this table meanwhile leaves another state behind: the write sees that and
    # starts again from there.

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state: tuple[_Node, int] = (None, 0)  # the root, and the number of leaves under it

    def get(self, key: int, default: V | None = None, /) -> V | None:
        node = self._state[0]
        while node.__class__ is tuple:
            node = node[1] if key < node[0] else node[2]
        return node[1] if node is not None and node[0] == key else default

    def __contains__(self, key: int, /) -> bool:
        node = self._state[0]
        while node.__class__ is tuple:
            node = node[1] if key < node[0] else node[2]
        return node is not None and node[0] == key

    def __len__(self) -> int:
        return self._state[1]

    # A call of `check_key` costs more than the check; hence its hot case is spelled out in each write.

    def insert(self, key: int, value: V) -> None:
        if key.__class__ is not int or not 0 <= key <= KEY_MAX:
            key = check_key(key)
        if value is None:
            raise no_value(key)
        leaf = _Leaf((key, value))
        while True:
            old = self._state
            new = (_inserted(old[0], leaf), old[1] + 1)
            if self._state is old:
                self._state = new
                return

    def replace(self, key: int, value: V) -> V:
        if key.__class__ is not int or not 0 <= key <= KEY_MAX:
            key = check_key(key)
        if value is None:
            raise no_value(key)
        leaf = _Leaf((key, value))
        while True:
            old = self._state
            path, found = _way_to(old[0], key)
            new = (_rebuilt(path, leaf), old[1])
            if self._state is old:
                self._state = new
                previous: V = found[1]
                return previous

    def pop(self, key: int) -> V:
        if key.__class__ is not int or not 0 <= key <= KEY_MAX:
            key = check_key(key)
        while True:
            old = self._state
            path, found = _way_to(old[0], key)
            root: _Node = None
            if path:
                split, left, right = path.pop()
                root = _rebuilt(path, right if key < split else left)
            new = (root, old[1] - 1)
            if self._state is old:
                self._state = new
                value: V = found[1]
                return value

    def mutate(self, key: int, fn: Callable[[V | None], V | None]) -> V | None:
        return mutate(self, key, fn)

    def clear(self) -> None:
        old = self._state  # outlives the change, and with it every value
        self._state = (None, 0)
        del old

    def snapshot(self) -> IntMapSnapshot[V]:
        """The items as they are now, ascending.  Complexity: O(1); it holds on to what it shows."""
        return IntMapSnapshot(*self._state)

    def floor(self, key: int) -> tuple[int, V] | None:
        node, below = self._state[0], None
        while node.__class__ is tuple:
            split, left, right = node
            if key < split:
                node = left
            else:
                node, below = right, left
        if node is None or node[0] > key:
            node = below
            while node.__class__ is tuple:
                node = node[2]
        item: tuple[int, V] | None = node  # a leaf is an item
        return item

    def ceiling(self, key: int) -> tuple[int, V] | None:
        node, above = self._state[0], None
        while node.__class__ is tuple:
            split, left, right = node
            if key < split:
                node, above = left, right
            else:
                node = right
        if node is None or node[0] < key:
            node = above
            while node.__class__ is tuple:
                node = node[1]
        item: tuple[int, V] | None = node
        return item

    def range(self, low: int, high: int) -> Iterator[tuple[int, V]]:
        return _items(self._state[0], low, high)

    def check_invariants(self) -> None:
        """Complexity: O(n).  Errors: `InternalError` that says what is broken."""
        root, counted = self._state
        count = 0
        waiting: list[tuple[_Node, int, int]] = [] if root is None else [(root, 0, KEY_MAX)]
        while waiting:
            node, low, high = waiting.pop()
            if node.__class__ is tuple:
                split, left, right = node
                bit = split & -split
                must(low < split <= high, "a branch parts the keys that can be there", (low, split, high))
                waiting += [(left, split - bit, split - 1), (right, split, split + bit - 1)]
            else:
                assert isinstance(node, _Leaf)
                count += 1
                must(
                    type(node[0]) is int and low <= node[0] <= high,
                    "a key stands where its bits say",
                    (low, node, high),
                )
                must(node[1] is not None, "a value is not None", node[0])
        must(count == counted, "the count is that of the leaves", (count, counted))

    def __repr__(self) -> str:
        return f"<IntMapTable of {len(self)}>"


class IntMapSnapshot(Sequence[tuple[int, V]]):
    """The items of an `IntMapTable` at one moment, ascending.

    Complexity: going through it O(1) for each item, `len` O(1); the first access by index O(n), which lists them.

    >>> table = IntMapTable()
    >>> table.insert(7, "seven")
    >>> snapshot = table.snapshot()
    >>> table.clear()
    >>> list(snapshot), snapshot[0], len(snapshot)
    ([(7, 'seven')], (7, 'seven'), 1)
    """

    __slots__ = ("_count", "_listed", "_root")

    def __init__(self, root: _Node, count: int) -> None:
        self._root = root
        self._count = count
        self._listed: list[tuple[int, V]] | None = None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[int, V]]:
        return _items(self._root, 0, KEY_MAX + 1)

    @overload
    def __getitem__(self, index: int) -> tuple[int, V]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[int, V]]: ...
    def __getitem__(self, index: int | slice) -> tuple[int, V] | Sequence[tuple[int, V]]:
        if self._listed is None:
            self._listed = list(self)
        return self._listed[index]

    def __repr__(self) -> str:
        return f"<IntMapSnapshot of {len(self)}>"


def _way_to(root: _Node, key: int) -> tuple[list[_Branch], _Leaf]:
    """The branches above the leaf of ``key``, and the leaf.  Errors: `KeyError`."""
    path: list[_Branch] = []
    node: Any = root
    while node.__class__ is tuple:
        path.append(node)
        node = node[1] if key < node[0] else node[2]
    if node is None or node[0] != key:
        raise KeyError(key)
    return path, node


def _inserted(root: _Node, leaf: _Leaf) -> _Node:
    """The trie with one more leaf.  Errors: `KeyError` for a key that is there."""
    key = leaf[0]
    path: list[_Branch] = []
    node: Any = root
    while node.__class__ is tuple:
        path.append(node)
        node = node[1] if key < node[0] else node[2]
    if node is None:
        return leaf
    other: int = node[0]
    if other == key:
        raise held_already(key)
    # They part at the highest bit in which they differ.  Branches of lower bits are all below the new one.
    bit = 1 << ((key ^ other).bit_length() - 1)
    while path and path[-1][0] & -path[-1][0] < bit:
        node = path.pop()
    if key < other:
        return _rebuilt(path, (other & -bit, leaf, node), key)
    return _rebuilt(path, (key & -bit, node, leaf), key)


def _rebuilt(path: list[_Branch], node: Any, key: int = -1) -> _Node:
    """The branches of ``path`` anew, with ``node`` in the place where the way of ``key`` ends (-1: any key of ``node``)."""
    if key < 0 and path:
        key = node[0]  # of a branch its split, which lies where its keys lie
    while path:
        split, left, right = path.pop()
        node = (split, node, right) if key < split else (split, left, node)
    found: _Node = node
    return found


def _items(node: Any, low: int, high: int) -> Iterator[tuple[int, Any]]:
    """The leaves with ``low`` <= key < ``high``, ascending."""
    if node is None:
        return
    waiting: list[Any] = []
    while node.__class__ is tuple:
        if low < node[0]:
            waiting.append(node[2])
            node = node[1]
        else:
            node = node[2]
    if node[0] < low:
        if not waiting:
            return
        node = waiting.pop()
    while True:
        while node.__class__ is tuple:
            waiting.append(node[2])
            node = node[1]
        if node[0] >= high:
            return
        yield node
        if not waiting:
            return
        node = waiting.pop()


if TYPE_CHECKING:
    _conforms: OrderedTable[object] = IntMapTable[object]()
