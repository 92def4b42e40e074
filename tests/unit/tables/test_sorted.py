"""The two parts of `sorted`: how they stay in step, and what it costs when they do not."""

from __future__ import annotations

import pytest

from lifetimes.errors import InternalError
from lifetimes.tables.sorted import SortedTable
from lifetimes.testing.disturb import interrupt, run_disturbed


def filled(count: int) -> SortedTable[str]:
    table: SortedTable[str] = SortedTable()
    for key in range(count):
        table.insert(2 * key, str(2 * key))
    return table


def in_step(table: SortedTable[str]) -> bool:
    return table._indexed == table._writes


def test_undisturbed_writes_keep_the_list() -> None:
    table = filled(5000)
    keys = table._keys
    for key in range(0, 10_000, 6):
        table.pop(key)
        with pytest.raises(KeyError):
            table.pop(key)
    for key in range(0, 10_000, 12):
        table.insert(key, "again")
        with pytest.raises(KeyError):
            table.insert(key, "twice")
    assert in_step(table)
    assert table._keys is keys
    table.check_invariants()


def test_a_list_that_was_torn_is_made_anew_at_the_next_question_and_kept_from_then_on() -> None:
    table = filled(10)
    torn = table._keys
    step = 0
    while in_step(table):
        try:
            run_disturbed(table.insert, 7, "seven", step=step, act=interrupt, after_calls=True)
        except KeyboardInterrupt:
            step += 1
    assert 7 not in table
    table.insert(5, "five")
    table.pop(4)
    assert table._keys is torn  # nobody touches it any more
    assert table.floor(7) == (6, "6")
    assert table.ceiling(4) == (5, "five")
    assert in_step(table)
    assert table._keys is not torn
    anew = table._keys
    table.insert(7, "seven")
    assert table.floor(7) == (7, "seven")
    assert table._keys is anew


def test_the_check_sees_a_list_out_of_step() -> None:
    table = filled(10)
    table._keys.add(5)
    with pytest.raises(InternalError, match="the list has the keys of the dictionary"):
        table.check_invariants()
