"""What `intmap` is there for: snapshots that cost nothing and stay, in a trie whose shape depends on its keys alone."""

from __future__ import annotations

import gc
import sys
from random import Random
from typing import Any

import pytest

from lifetimes.errors import InternalError
from lifetimes.tables import intmap
from lifetimes.tables.intmap import IntMapTable
from lifetimes.tables.protocol import KEY_MAX


def of(*keys: int) -> IntMapTable[str]:
    table: IntMapTable[str] = IntMapTable()
    for key in keys:
        table.insert(key, str(key))
    return table


def test_a_snapshot_copies_nothing_and_stays_as_it_was() -> None:
    table = of(*range(1000))
    snapshot = table.snapshot()
    assert snapshot._root is table._state[0]
    for key in range(0, 1000, 2):
        table.pop(key)
        table.replace(key + 1, "new")
    table.insert(10**6, "far")
    assert list(snapshot) == [(key, str(key)) for key in range(1000)]
    assert len(snapshot) == 1000
    assert snapshot[-1] == (999, "999")
    assert list(snapshot[10:12]) == [(10, "10"), (11, "11")]
    assert (5, "5") in snapshot
    assert len(table) == 501


def test_a_write_shares_all_but_the_way_down() -> None:
    table = of(*range(1024))
    before = {id(node) for node in nodes(table)}
    table.replace(512, "new")
    made = [node for node in nodes(table) if id(node) not in before]
    assert len(made) == 11  # ten branches and a leaf


def test_the_shape_depends_on_the_keys_alone() -> None:
    """So two orders of writing, with and without detours, give the same trie."""
    random = Random(4)
    keys = [random.getrandbits(64) for _ in range(300)] + list(range(40))
    one, other = of(*keys), of(*random.sample(keys, len(keys)))
    for extra in range(100, 200):
        other.insert(extra, "extra")
    for extra in range(100, 200):
        other.pop(extra)
    assert one._state == other._state


def test_no_way_is_longer_than_the_bits_of_a_key() -> None:
    table = of(0, *(1 << bit for bit in range(64)))
    assert depth(table._state[0]) == 64
    table.check_invariants()
    assert [table.floor((1 << bit) - 1 if bit else 0) for bit in (0, 1, 5, 63)] == [
        (0, "0"),
        (1, "1"),
        (16, "16"),
        (2**62, str(2**62)),
    ]


def test_a_range_is_looked_up_as_it_is_read() -> None:
    """It starts at its first item without going past the others."""
    table = of(*range(0, 100_000, 10))
    items = table.range(99_000, KEY_MAX + 1)
    table.clear()
    assert next(items) == (99_000, "99000")
    assert sum(1 for _ in items) == 99


def test_values_are_let_go_with_the_last_snapshot() -> None:
    value = object()
    table: IntMapTable[Any] = IntMapTable()
    table.insert(1, "one")
    before = sys.getrefcount(value)
    table.insert(2, value)
    snapshot = table.snapshot()
    table.pop(2)
    assert sys.getrefcount(value) == before + 1
    del snapshot
    assert sys.getrefcount(value) == before
    table.insert(2, value)
    table.clear()
    assert sys.getrefcount(value) == before


def test_a_cycle_through_a_value_is_collected() -> None:
    class Node:
        table: IntMapTable[Any]
        deaths = 0

        def __del__(self) -> None:
            Node.deaths += 1

    node = Node()
    node.table = IntMapTable()
    node.table.insert(2, node)
    del node
    gc.collect()
    assert Node.deaths == 1


@pytest.mark.parametrize(
    ("state", "rule"),
    [
        (((8, intmap._Leaf((1, "a")), intmap._Leaf((3, "b"))), 2), "a key stands where its bits say"),
        (((0, intmap._Leaf((1, "a")), intmap._Leaf((3, "b"))), 2), "a branch parts the keys"),
        (((2, intmap._Leaf((1, "a")), intmap._Leaf((3, "b"))), 3), "the count is that of the leaves"),
        (
            ((2, intmap._Leaf((1, "a")), (8, intmap._Leaf((3, "b")), intmap._Leaf((9, "c")))), 3),
            "a branch parts the keys",
        ),
        ((intmap._Leaf((1, None)), 1), "a value is not None"),
    ],
)
def test_the_check_sees_a_broken_trie(state: Any, rule: str) -> None:
    table = of()
    table._state = state
    with pytest.raises(InternalError, match=rule):
        table.check_invariants()


def nodes(table: IntMapTable[Any]) -> list[Any]:
    found, waiting = [], [table._state[0]]
    while waiting:
        node = waiting.pop()
        found.append(node)
        if type(node) is tuple:
            waiting += node[1:]
    return found


def depth(node: Any) -> int:
    return 1 + max(map(depth, node[1:])) if type(node) is tuple else 0
