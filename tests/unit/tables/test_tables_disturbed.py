"""A finalizer that runs in the middle of a write, and uses the same table, finds it usable and spoils nothing."""

from __future__ import annotations

import gc
from functools import partial
from importlib.util import find_spec
from itertools import count
from typing import Any

import pytest

from lifetimes import tables
from lifetimes.tables import OrderedTable, Table
from lifetimes.tables.checked import checked
from lifetimes.testing.disturb import run_disturbed

NAMES = [name for name in tables.names() if find_spec("BTrees") or name != "btree"]
KEYS = range(0, 60, 4)
WRITES: dict[str, tuple[Any, ...]] = {"insert": (33, "new"), "replace": (32, "new"), "pop": (32,)}
RESULTS: dict[str, dict[int, str | None]] = {"insert": {33: "new"}, "replace": {32: "new"}, "pop": {32: None}}


@pytest.mark.parametrize("finalizer", ["inserts and pops", "asks", "asks and inserts", "pops and asks", "clears"])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", NAMES)
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
            if finalizer.startswith("asks"):
                ask()
            if "inserts" in finalizer:
                table.insert(37, "from inside")
                expected[37] = "from inside"
            if "pops" in finalizer:
                table.pop(36)
                del expected[36]
            if finalizer.endswith("asks"):
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


@pytest.mark.parametrize("finalizer", ["inserts", "pops", "clears"])
@pytest.mark.parametrize("name", NAMES)
def test_a_collection_inside_a_listing(name: str, finalizer: str) -> None:
    """The tuples of a listing wake the collector (in CPython 3.11), whose finalizers may use the table."""
    table = tables.make(name)
    for key in range(500):
        table.insert(key, str(key))
    before = dict(table.snapshot())
    ran = []

    class Garbage:
        def __init__(self) -> None:
            self.myself = self

        def __del__(self) -> None:
            if finalizer == "inserts":
                table.insert(1000, "from inside")
            elif finalizer == "pops":
                table.pop(250)
            else:
                table.clear()
            ran.append(finalizer)

    thresholds = gc.get_threshold()
    gc.collect()
    gc.set_threshold(50)  # wakes in the middle of the listing
    try:
        Garbage()
        items = dict(table.snapshot())
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert ran == [finalizer]
    before[1000] = "from inside"
    assert items.items() <= before.items()
    assert len(items) >= {"inserts": 500, "pops": 499, "clears": 0}[finalizer]
    checked(table).check_invariants()


@pytest.mark.parametrize("name", NAMES)
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
