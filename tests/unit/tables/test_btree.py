"""What `btree` does about the traps of the container beneath it."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest

from lifetimes.errors import InternalError
from lifetimes.tables.protocol import KEY_MAX

pytest.importorskip("BTrees", reason="it needs the extra 'tables'")

from lifetimes.tables.btree import BTreeTable


def filled(count: int) -> BTreeTable[Any]:
    table: BTreeTable[Any] = BTreeTable()
    for key in range(count):
        table.insert(256 * key, str(key))
    return table


def test_the_upper_half_of_the_keys_comes_after_the_lower_one() -> None:
    """A tree of signed keys would refuse them, or list them first."""
    table = filled(3)
    table.insert(KEY_MAX, "last")
    table.insert(2**63, "middle")
    assert [key for key, _ in table.snapshot()] == [0, 256, 512, 2**63, KEY_MAX]


def test_get_is_the_c_method_itself() -> None:
    assert type(filled(1).get).__name__ == "builtin_function_or_method"


@pytest.mark.parametrize("key", [np.int64(5), np.uint64(5), np.int8(5)])
def test_numpy_integers_are_one_key_with_the_plain_one(key: Any) -> None:
    """The tree itself refuses them."""
    table = filled(0)
    table.insert(key, "five")
    with pytest.raises(KeyError):
        table.insert(5, "again")
    assert type(table.snapshot()[0][0]) is int
    assert table.pop(key) == "five"


def test_values_are_held_once_and_let_go_once() -> None:
    value = object()
    table = filled(3)
    before = sys.getrefcount(value)
    table.insert(2, value)
    table.get(2)
    table.floor(5)
    table.ceiling(2)
    table.snapshot()
    list(table.range(0, 5))
    table.replace(2, value)
    table.mutate(2, lambda old: old)
    assert sys.getrefcount(value) == before + 1
    assert table.pop(2) is value
    assert sys.getrefcount(value) == before
    table.insert(2, value)
    table.clear()
    assert sys.getrefcount(value) == before
    table.insert(2, value)
    del table
    gc.collect()  # the tree takes part in garbage collection
    assert sys.getrefcount(value) == before


class Interfering:
    """Stands in for the tree, and lets a finalizer run inside a write, as the collector of CPython 3.11 may."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree
        self.act: Any = None

    def disturb(self) -> None:
        act, self.act = self.act, None
        if act is not None:
            act()

    def __setitem__(self, key: int, value: Any) -> None:
        self.disturb()
        self.tree[key] = value
        self.disturb()

    def __delitem__(self, key: int) -> None:
        self.disturb()
        del self.tree[key]
        self.disturb()

    def __getitem__(self, key: int) -> Any:
        return self.tree[key]

    def __contains__(self, key: int) -> bool:
        return key in self.tree

    def __len__(self) -> int:
        return len(self.tree)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tree, name)


@pytest.mark.parametrize("act", ["asks", "inserts", "pops", "asks and inserts", "inserts and asks"])
@pytest.mark.parametrize("write", ["insert", "pop"])
def test_the_count_is_right_after_a_finalizer_inside_a_write(write: str, act: str) -> None:
    table = filled(10)
    between = table._map = Interfering(table._map)

    def finalizer() -> None:
        for word in act.split(" and "):
            if word == "asks":
                len(table)
            elif word == "inserts":
                table.insert(7, "from inside")
            else:
                table.pop(512)

    between.act = finalizer
    table.insert(5, "five") if write == "insert" else table.pop(256)
    table.check_invariants()
    assert len(table) == len(table.snapshot())


def test_the_check_sees_a_wrong_count() -> None:
    table = filled(10)
    table._count += 1
    with pytest.raises(InternalError, match="the count is that of the keys"):
        table.check_invariants()


@pytest.mark.parametrize("threshold", [50, 333])
@pytest.mark.parametrize("listing", ["snapshot", "range"])
def test_a_collection_that_pops_everywhere_makes_a_listing_miss_nothing(listing: str, threshold: int) -> None:
    """The tree's own iteration passes over items when those before them go."""
    table: BTreeTable[Any] = BTreeTable()
    for key in range(2000):
        table.insert(key, str(key))
    ran: list[bool] = []

    class Garbage:
        def __init__(self) -> None:
            self.myself = self

        def __del__(self) -> None:
            for key in range(0, 2000, 4):
                table.pop(key)
            ran.append(True)

    thresholds = gc.get_threshold()
    gc.collect()
    gc.set_threshold(threshold)
    try:
        Garbage()
        items = dict(table.snapshot() if listing == "snapshot" else table.range(0, KEY_MAX))
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert ran
    assert {key: str(key) for key in range(2000) if key % 4}.items() <= items.items()
    table.check_invariants()
