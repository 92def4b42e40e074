"""A Judy array: ordered and compact, ahead of a dictionary once a million keys are in play.

It stands on the package ``judy``, which brings libJudy (Doug Baskins' adaptive radix tree) in its wheel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from judy import JudyIntObjectMap, JudyIntSet

from lifetimes.tables._shared import Getter, held_already, must, mutate, no_value
from lifetimes.tables.protocol import KEY_MAX, check_key

if TYPE_CHECKING:
    from lifetimes.tables.protocol import OrderedTable

__all__ = ["JudyTable"]

V = TypeVar("V")


class JudyTable(Generic[V]):
    """A table in a `JudyIntObjectMap`, with its complemented keys in a `JudyIntSet`.

    Complexity: everything O(1) in the number of items (a key has eight bytes to walk down), `range` O(k) for k items,
    `snapshot` and `clear` O(n).  Locks: none, the owner's lock covers it.

    >>> table = JudyTable()
    >>> for key in (30, 10, 20): table.insert(key, f"block at {key}")
    >>> table.floor(25), table.ceiling(31)
    ((20, 'block at 20'), None)
    >>> [key for key, value in table.range(10, 30)]
    [10, 20]
    """

    # Note: the map must not let a value die.
    # Its own `pop` releases the value before it hands it out, its assignment releases the old value before it writes
    # the new one through a pointer into the tree, and its `clear` walks the tree while it releases.  A finalizer run
    # there may change the tree underneath, or the value is gone.  So every value is held by a variable before the map
    # lets go of it, and none dies before the map is done.  The read that takes hold and the write are neighbours with
    # no call between them, so that neither a signal handler nor the collector can get between.

    # Note: two parts in step.
    # The map can look upwards only; `floor` looks upwards in the set of complemented keys.  Ctrl-C, or a finalizer that
    # uses this table, may strike after each call.  So the set changes first, by a call, and the map last, by none:
    # either the write is done or the map is as it was.  A key that `insert` put into the set in vain stays there, and
    # `floor` passes over it; a key that `pop` took out in vain is put back.  The set may hold a key too many, never
    # one too few.

    # Note: the end of the interpreter.
    # The package is bound by nanobind, which prints to stderr what is still alive when the interpreter is gone: a table
    # that a frame of a daemon thread holds, or that a reference cycle keeps which nobody collects.  Nothing here can
    # help that.  The two parts could be exchanged in a hook at exit, but not a ``get`` that somebody kept, which holds
    # the map as well.  Whoever keeps a table for others lets go of it, and of its ``get``, when it is closed.

    __slots__ = ("_map", "_mirror", "get")

    get: Getter[V]
    """The map's own bound method; it stays valid, so that it may be kept."""

    def __init__(self) -> None:
        self._map: JudyIntObjectMap[V] = JudyIntObjectMap()
        self._mirror = JudyIntSet()  # Invariant: holds KEY_MAX ^ key for every key of the map
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
        self._mirror.add(key ^ KEY_MAX)
        if key in self._map:  # asked last, so that the assignment below never meets an old value
            raise held_already(key)
        self._map[key] = value

    def replace(self, key: int, value: V) -> V:
        if key.__class__ is not int or not 0 <= key <= KEY_MAX:
            key = check_key(key)
        if value is None:
            raise no_value(key)
        try:
            old = self._map[key]
            self._map[key] = value
        except KeyError:
            raise KeyError(key) from None  # the map's own error has the key as text
        return old

    def pop(self, key: int) -> V:
        if key.__class__ is not int or not 0 <= key <= KEY_MAX:
            key = check_key(key)
        mirrored = key ^ KEY_MAX
        try:
            self._mirror.discard(mirrored)
            value = self._map[key]
            del self._map[key]
        except KeyError:
            raise KeyError(key) from None
        except BaseException:
            self._mirror.add(mirrored)
            raise
        return value

    def mutate(self, key: int, fn: Callable[[V | None], V | None]) -> V | None:
        return mutate(self, key, fn)

    def clear(self) -> None:
        # One by one.  Rejected: a new map in the place of the old one, faster, but whoever keeps `get` reads the old.
        held: list[V] = []
        for key in list(self._map.keys()):
            if key in self._map:
                held.append(self.pop(key))

    def snapshot(self) -> Sequence[tuple[int, V]]:
        """The items as they are now, ascending."""
        return list(self._map.items())

    def floor(self, key: int) -> tuple[int, V] | None:
        mirrored = key ^ KEY_MAX
        while True:
            mirrored = next(self._mirror.ranged_iterator(lower_inclusive=mirrored), -1)
            if mirrored < 0:
                return None
            found = mirrored ^ KEY_MAX
            value = self.get(found)
            if value is not None:
                return found, value
            if not found:
                return None
            mirrored += 1

    def ceiling(self, key: int) -> tuple[int, V] | None:
        return next(self._map.items(lower_inclusive=key), None)

    def range(self, low: int, high: int) -> Iterator[tuple[int, V]]:
        if low >= high:
            return iter(())
        return iter(list(self._map.items(lower_inclusive=low, upper_inclusive=high - 1)))

    def check_invariants(self) -> None:
        """Complexity: O(n).  Errors: `InternalError` that says what is broken."""
        keys = list(self._map.keys())
        must(len(keys) == len(self._map), "the map counts the keys that it lists", (len(self._map), keys))
        must(keys == sorted(set(keys)), "the map lists its keys ascending", keys)
        mirrored = list(self._mirror)
        must(mirrored == sorted(set(mirrored)), "the set lists its keys ascending", mirrored)
        missing = {key ^ KEY_MAX for key in keys} - set(mirrored)
        must(not missing, "the set holds the complement of every key of the map", missing)
        for key in keys:
            must(self.get(key) is not None, "a listed key is found", key)

    def __repr__(self) -> str:
        return f"<JudyTable of {len(self)}>"


if TYPE_CHECKING:
    _conforms: OrderedTable[object] = JudyTable[object]()
