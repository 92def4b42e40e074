"""How a table is said: by name, import path, class, callable or object; and what a wrong one is told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from lifetimes import tables
from lifetimes.manager import Manager
from lifetimes.replay.null import NullDriver
from lifetimes.tables import OrderedTable, Table
from lifetimes.tables.dict import DictTable
from lifetimes.tables.intmap import IntMapTable
from lifetimes.tables.judy import JudyTable
from lifetimes.tables.sorted import SortedTable

INSTANCE: DictTable[object] = DictTable()
DOCS = Path(__file__).parents[3] / "docs"
OURS = tables.names()  # before any test registers another


class Mine(DictTable[Any]):
    """A user's own table."""


class Outer:
    Inner = Mine


class NeedsAnArgument(DictTable[Any]):
    def __init__(self, size: int) -> None:
        super().__init__()


class Callable_(DictTable[Any]):
    """A table that happens to be callable."""

    def __call__(self) -> Table[Any]:
        raise AssertionError("a table is no factory of tables")


@pytest.fixture(autouse=True)
def rows() -> Iterator[None]:
    """What a test registers is gone after it."""
    before = dict(tables._parts.rows)
    yield
    tables._parts.rows.clear()
    tables._parts.rows.update(before)


BUILT_IN = {"dict", "sorted", "judy", "btree", "intmap"}


def test_names() -> None:
    assert set(tables.names()) >= BUILT_IN
    assert set(tables.names(ordered=True)) >= {"sorted", "judy", "intmap"}
    assert "dict" not in tables.names(ordered=True)


def test_the_default_for_an_ordered_table_can_be_made() -> None:
    assert tables.default_ordered() == ("btree" if find_spec("BTrees") else "sorted")
    assert tables.default_ordered() in tables.names(ordered=True)


def test_without_its_package_a_table_says_which_extra_brings_it_and_another_is_the_default() -> None:
    code = """
import sys
sys.modules["BTrees"] = None
from lifetimes import tables
print(tables.default_ordered(), "btree" in tables.names(ordered=True))
try:
    tables.make("btree")
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("sorted False\nthe table 'btree' is not usable here: ")
    assert "install the extra device-lifetimes[tables]" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("name", "kind"), [("dict", DictTable), ("sorted", SortedTable), ("judy", JudyTable), ("intmap", IntMapTable)]
)
def test_a_name_makes_a_new_table_each_time(name: str, kind: type) -> None:
    one, other = tables.make(name), tables.make(name)
    assert type(one) is type(other) is kind
    assert one is not other


@pytest.mark.parametrize("spec", [Mine, lambda: Mine(), f"{__name__}:Mine", f"{__name__}:Outer.Inner"])
def test_a_table_of_ones_own(spec: Any) -> None:
    assert type(tables.make(spec)) is Mine


def test_a_table_that_exists_is_taken_as_it_is() -> None:
    table = Callable_()
    assert tables.make(table) is table
    assert tables.make(f"{__name__}:INSTANCE") is INSTANCE


def test_a_registered_table_is_made_by_its_name() -> None:
    tables.register("mine", Mine)
    tables.register("late", "no_such_module:Table")  # imported when it is made
    assert type(tables.make("mine")) is Mine
    assert tables.names()[-2:] == ("mine", "late")
    assert not {"mine", "late"} & set(tables.names(ordered=True))
    with pytest.raises(ValueError, match=r"'late' is not usable here: .*no_such_module"):
        tables.make("late")


def test_a_name_is_given_once() -> None:
    tables.register("mine", Mine)
    tables.register("mine", Mine)
    with pytest.raises(ValueError, match="'mine' is taken"):
        tables.register("mine", DictTable)
    with pytest.raises(ValueError, match="'judy' is taken"):
        tables.register("judy", Mine)


@pytest.mark.parametrize(
    ("name", "factory", "error"),
    [
        ("", Mine, ValueError),
        ("a:b", Mine, ValueError),
        (5, Mine, ValueError),
        ("mine", "no path", ValueError),
        ("mine", 5, TypeError),
        ("mine", None, TypeError),
    ],
)
def test_a_bad_registration_is_refused(name: Any, factory: Any, error: type[Exception]) -> None:
    before = tables.names()
    with pytest.raises(error):
        tables.register(name, factory)
    assert tables.names() == before


def test_an_unknown_name_is_told_what_there_is() -> None:
    with pytest.raises(ValueError, match="unknown table 'jduy'") as caught:
        tables.make("jduy")
    for word in ("dict, sorted, judy", "btree comes with the extra device-lifetimes[tables]", "'package.module:Name'"):
        assert word in str(caught.value)


@pytest.mark.parametrize("path", ["no_such_module:X", "math:nothing", ":X", "math:", "math:pi.tau", ".:X", "a..b:X"])
def test_a_path_that_leads_nowhere_is_shown(path: str) -> None:
    with pytest.raises(ValueError, match="import") as caught:
        tables.make(path)
    assert repr(path) in str(caught.value)


@pytest.mark.parametrize("spec", [{}, dict, 5, None, [], object(), lambda: 5, "math:pi", b"dict"])
def test_what_is_no_table_is_told_what_it_lacks(spec: Any) -> None:
    with pytest.raises(TypeError, match=r"is no table: .* lacks .*mutate.*; there are dict, sorted, judy"):
        tables.make(spec)


def test_a_factory_that_raises_is_named() -> None:
    with pytest.raises(TypeError) as caught:
        tables.make(NeedsAnArgument)  # type: ignore[arg-type]
    assert "NeedsAnArgument" in caught.value.__notes__[0]


def test_a_table_in_use_is_refused() -> None:
    table: DictTable[int] = DictTable()
    table.insert(1, 1)
    with pytest.raises(ValueError, match="holds 1 items"):
        tables.make(table)


@pytest.mark.parametrize("spec", ["dict", DictTable, INSTANCE, f"{__name__}:Mine"])
def test_where_order_is_needed_an_unordered_table_is_refused(spec: Any) -> None:
    with pytest.raises(ValueError, match="is not ordered: it lacks ceiling, floor, range; ordered are sorted, judy"):
        tables.make(spec, ordered=True)


@pytest.mark.parametrize("spec", ["sorted", "judy", SortedTable, lambda: JudyTable()])
def test_where_order_is_needed_an_ordered_table_is_taken(spec: Any) -> None:
    assert isinstance(tables.make(spec, ordered=True), OrderedTable)


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    code = """
import sys
from lifetimes import tables
for name in ("dict", "judy"):
    tables.make(name)
    print("judy" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
    assert done.stderr == ""


def test_every_table_has_its_row_in_the_manual() -> None:
    page, reference = ((DOCS / name).read_text() for name in ("explanation/choosing-a-table.md", "reference.md"))
    for name in OURS:
        assert f"\n| `{name}` |" in page.split("<!-- measured")[0], (
            "say what it is made of, what to choose it for, and what to mind"
        )
        assert f"`{name}`" in reference


@pytest.mark.parametrize("default", ["sorted", "judy"])
def test_addresses_stand_in_the_default_ordered_table(default: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "default_ordered", lambda: default)
    with Manager(NullDriver()) as manager:
        assert isinstance(manager.memory.addresses, type(tables.make(default)))
    with Manager(NullDriver(), address_table="intmap") as manager:
        assert isinstance(manager.memory.addresses, IntMapTable)
