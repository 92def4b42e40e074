"""What `judy` does about the hazards of the container beneath it."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest

from lifetimes.errors import InternalError
from lifetimes.tables.judy import JudyTable
from lifetimes.tables.protocol import KEY_MAX


def filled(*keys: int) -> JudyTable[Any]:
    table: JudyTable[Any] = JudyTable()
    for key in keys:
        table.insert(key, str(key))
    return table


def test_a_key_too_many_in_the_set_is_passed_over() -> None:
    table = filled(10, 20, 30)
    for left_behind in (0, 5, 19, 25, 26, KEY_MAX):
        table._mirror.add(left_behind ^ KEY_MAX)
    assert [table.floor(key) for key in (0, 9, 19, 26, KEY_MAX)] == [None, None, (10, "10"), (20, "20"), (30, "30")]
    table.check_invariants()
    table.insert(25, "25")
    assert table.floor(26) == (25, "25")
    table.pop(25)
    assert table.floor(26) == (20, "20")


def test_the_check_sees_a_key_too_few_in_the_set() -> None:
    table = filled(10, 20)
    table._mirror.discard(20 ^ KEY_MAX)
    with pytest.raises(InternalError, match="the set holds the complement"):
        table.check_invariants()


def test_values_are_held_once_and_let_go_once() -> None:
    value = object()
    table = filled(1)
    before = sys.getrefcount(value)
    table.insert(2, value)
    assert sys.getrefcount(value) == before + 1
    table.get(2)
    table.floor(5)
    table.ceiling(2)
    table.snapshot()
    list(table.range(0, 5))
    assert sys.getrefcount(value) == before + 1
    table.replace(2, value)
    assert sys.getrefcount(value) == before + 1
    table.mutate(2, lambda old: old)
    assert sys.getrefcount(value) == before + 1
    assert table.pop(2) is value
    assert sys.getrefcount(value) == before
    table.insert(2, value)
    table.clear()
    assert sys.getrefcount(value) == before
    table.insert(2, value)
    del table
    assert sys.getrefcount(value) == before


def test_a_cycle_through_a_value_is_collected() -> None:
    class Node:
        table: JudyTable[Any]
        deaths = 0

        def __del__(self) -> None:
            Node.deaths += 1

    node = Node()
    node.table = filled(1)
    node.table.insert(2, node)
    del node
    gc.collect()
    assert Node.deaths == 1


def test_many_generations_of_values_leave_nothing_behind() -> None:
    class Value:
        alive = 0

        def __init__(self) -> None:
            Value.alive += 1

        def __del__(self) -> None:
            Value.alive -= 1

    table: JudyTable[Value] = JudyTable()
    for generation in range(20):
        for key in range(500):
            if generation:
                table.replace(key << 12, Value())
            else:
                table.insert(key << 12, Value())
        assert Value.alive == 500
    for key in range(0, 500, 2):
        table.pop(key << 12)
    assert Value.alive == 250
    table.clear()
    assert Value.alive == 0
