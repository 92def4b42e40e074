"""A finalizer that runs in the middle of a write, and uses the same table, finds it usable and spoils nothing."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import Any

import pytest

from lifetimes import tables
from lifetimes.tables import OrderedTable, Table
from lifetimes.tables.checked import checked
from lifetimes.testing.disturb import run_disturbed

KEYS = range(0, 60, 4)
WRITES: dict[str, tuple[Any, ...]] = {"insert": (33, "new"), "replace": (32, "new"), "pop": (32,)}
RESULTS: dict[str, dict[int, str | None]] = {"insert": {33: "new"}, "replace": {32: "new"}, "pop": {32: None}}


@pytest.mark.parametrize("finalizer", ["inserts and pops", "asks and inserts", "pops and asks", "clears"])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", ["dict", "sorted", "judy"])
def test_a_finalizer_inside_a_write(name: str, write: str, finalizer: str) -> None:
    for step in count():
        table = tables.make(name)
        for key in KEYS:
            table.insert(key, str(key))
        expected: dict[int, Any] = {key: str(key) for key in KEYS}

        def ask(table: Any = table) -> None:
            if isinstance(table, OrderedTable):
                assert table.floor(29) == (28, "28")
                assert table.ceiling(37) in ((37, "from inside"), (40, "40"))

        def act(table: Any = table, ask: Any = ask, expected: dict[int, Any] = expected) -> None:
            if finalizer == "clears":
                table.clear()
                expected.clear()
                return
            if finalizer == "asks and inserts":
                ask()
            if finalizer != "pops and asks":
                table.insert(37, "from inside")
                expected[37] = "from inside"
            if finalizer != "asks and inserts":
                table.pop(36)
                del expected[36]
            ask()

        missing = False
        try:
            if not run_disturbed(getattr(table, write), *WRITES[write], step=step, act=act, after_calls=True):
                break
        except KeyError:  # cleared before the key was reached
            missing = True
        assert not missing or finalizer == "clears"
        outcomes = [apply(expected, RESULTS[write])]
        if finalizer == "clears":
            outcomes.append({})
        assert dict(table.snapshot()) in outcomes
        checked(table).check_invariants()
        for key, value in table.snapshot():
            if isinstance(table, OrderedTable):
                assert table.floor(key) == table.ceiling(key) == (key, value)
            assert table.pop(key) == value
        assert len(table) == 0
    assert step >= 1


@pytest.mark.parametrize("name", ["dict", "sorted", "judy"])
def test_a_finalizer_inside_an_insert_may_insert_the_same_key(name: str) -> None:
    """One of the two is told that the key is there, and the other's value is the one that is held."""
    for step in count():
        table = tables.make(name)
        table.insert(1, "one")
        refused: list[str] = []
        inside = partial(insert_or_note, table, "inside", refused)
        if not run_disturbed(insert_or_note, table, "outside", refused, step=step, act=inside, after_calls=True):
            break
        assert refused in (["inside"], ["outside"])
        assert dict(table.snapshot()) == {1: "one", 5: "inside" if refused == ["outside"] else "outside"}
        checked(table).check_invariants()
    assert step >= 1


def insert_or_note(table: Table[Any], who: str, refused: list[str]) -> None:
    try:
        table.insert(5, who)
    except KeyError:
        refused.append(who)


def apply(items: dict[int, Any], changes: dict[int, Any]) -> dict[int, Any]:
    return {key: value for key, value in (items | changes).items() if value is not None}
