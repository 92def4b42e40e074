"""The conformance suites find what they are there for: each fault is planted once, and one test of a suite goes red."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import index
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from sortedcontainers import SortedDict

from lifetimes.errors import InternalError
from lifetimes.tables.checked import Checked, CheckedOrdered
from lifetimes.tables.dict import DictTable
from lifetimes.tables.judy import JudyTable
from lifetimes.tables.protocol import check_key
from lifetimes.tables.sorted import SortedTable
from lifetimes.testing.conformance.tables import OrderedTableConformance, TableConformance

MODEL = "test_does_what_a_dictionary_does"


class Overwrites(DictTable[Any]):
    def insert(self, key: int, value: Any) -> None:
        self._map[check_key(key)] = value


class Keeps(DictTable[Any]):
    def pop(self, key: int) -> Any:
        return self._map[check_key(key)]


class GivesTheNew(DictTable[Any]):
    def replace(self, key: int, value: Any) -> Any:
        super().replace(key, value)
        return value


class WritesBeforeItFails(DictTable[Any]):
    def mutate(self, key: int, fn: Callable[[Any], Any]) -> Any:
        old = self._map.pop(key, None)
        result = fn(old)
        if result is not None:
            self._map[key] = result
        return result


class TakesFalseForNothing(DictTable[Any]):
    def insert(self, key: int, value: Any) -> None:
        if not self.get(check_key(key)):
            self._map.pop(key, None)
            super().insert(key, value)


class TakesBool(DictTable[Any]):
    def insert(self, key: int, value: Any) -> None:
        super().insert(index(key), value)


class Wraps(DictTable[Any]):
    def pop(self, key: int) -> Any:
        return super().pop(key & (2**64 - 1) if isinstance(key, int) else key)


class KeepsNumPy(DictTable[Any]):
    def insert(self, key: int, value: Any) -> None:
        check_key(key)
        self._map[key] = value


class TakesNone(DictTable[Any]):
    def replace(self, key: int, value: Any) -> Any:
        return value if value is None else super().replace(key, value)


class Swaps(DictTable[Any]):
    def clear(self) -> None:
        self._map = {}
        # and `get` is still that of the old one


class ListsALiveView(DictTable[Any]):
    def snapshot(self) -> Any:
        return self._map.items()


class LosesAKey(DictTable[Any]):
    def insert(self, key: int, value: Any) -> None:
        super().insert(key, value)
        if key == 0x2F0E:  # one key of one clustering
            del self._map[key]


class ActsOnTheOldState(DictTable[Any]):
    def mutate(self, key: int, fn: Callable[[Any], Any]) -> Any:
        old = self.get(check_key(key))
        result = fn(old)
        if result is None:
            self._map.pop(key, None)
        elif old is None:
            self.insert(key, result)
        else:
            self.replace(key, result)
        return result


class FailsItsOwnCheck(DictTable[Any]):
    def check_invariants(self) -> None:
        raise InternalError("planted")


class OnSortedDict(SortedTable[Any]):
    """The container's own writes: two parts that a signal can get between, and values that die in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self._map = self.both = SortedDict()
        self.get = self.both.get

    def insert(self, key: int, value: Any) -> None:
        if check_key(key) in self._map:
            raise KeyError(key)
        self._map[key] = value

    def pop(self, key: int) -> Any:
        value = self.get(check_key(key))
        del self._map[key]
        return value

    def snapshot(self) -> Any:
        return [(key, self._map[key]) for key in self.both.keys()]  # noqa: SIM118  # the list's keys, not the dict's

    def check_invariants(self) -> None:
        assert set(self.both.keys()) == set(dict.keys(self.both))


class LosesTheValue(DictTable[Any]):
    def pop(self, key: int) -> Any:
        if check_key(key) not in self._map:
            raise KeyError(key)
        return self._map.pop(key)


class ReleasesFirst(SortedTable[Any]):
    def replace(self, key: int, value: Any) -> Any:
        old = super().replace(key, value)
        self._map.pop(key)  # lets the old value die while the key is out
        del old
        self._map[key] = value
        return value


@pytest.mark.parametrize(
    ("table", "test", "args"),
    [
        (Overwrites, MODEL, ()),
        (Keeps, MODEL, ()),
        (GivesTheNew, MODEL, ()),
        (WritesBeforeItFails, MODEL, ()),
        (Swaps, MODEL, ()),
        (FailsItsOwnCheck, MODEL, ()),
        (TakesFalseForNothing, "test_values_that_are_false_are_values", ()),
        (TakesBool, "test_refuses_what_is_no_integer", (True,)),
        (Wraps, "test_refuses_what_has_no_64_unsigned_bits", (-1,)),
        (KeepsNumPy, "test_takes_every_unsigned_64_bit_integer", (np.int64(5),)),
        (TakesNone, "test_none_is_no_value", ()),
        (Swaps, "test_a_get_that_was_kept_stays_right", ()),
        (ListsALiveView, "test_a_snapshot_is_of_its_moment", ()),
        (ActsOnTheOldState, "test_mutate_may_use_the_table", ()),
        (LosesAKey, "test_holds_keys_of_every_clustering", ()),
        (ReleasesFirst, "test_a_value_may_change_the_table_as_it_dies", ("replace", "insert the same")),
        (OnSortedDict, "test_an_interrupt_anywhere_leaves_the_parts_in_step", ("insert",)),
        (OnSortedDict, "test_an_interrupt_anywhere_leaves_the_parts_in_step", ("pop",)),
        (LosesTheValue, "test_a_write_that_is_interrupted_has_changed_nothing", ("pop",)),
    ],
)
def test_a_faulty_table_is_found(table: type[DictTable[Any]], test: str, args: tuple[Any, ...]) -> None:
    finds(TableConformance, table, test, args)


class FloorBelow(SortedTable[Any]):
    def floor(self, key: int) -> Any:
        return super().floor(key - 1)


class CeilingAbove(JudyTable[Any]):
    def ceiling(self, key: int) -> Any:
        return super().ceiling(min(key + 1, 2**64 - 1))


class RangeWithItsEnd(SortedTable[Any]):
    def range(self, low: int, high: int) -> Any:
        return iter(self._items(list(self._index().irange(low, high))))


class RangeOfTheMoment(SortedTable[Any]):
    def range(self, low: int, high: int) -> Any:
        return ((key, self._map[key]) for key in self._keys.irange(low, high, inclusive=(True, False)))


class SignedOrder(SortedTable[Any]):
    def snapshot(self) -> Any:
        return sorted(self._map.items(), key=lambda item: item[0] - 2**64 if item[0] >= 2**63 else item[0])


class LeavesHoles(JudyTable[Any]):
    def pop(self, key: int) -> Any:
        value = super().pop(key)
        if not len(self) % 10:
            self._mirror.discard((key - 256) ^ (2**64 - 1))  # a lower neighbour that floor no longer finds
        return value


@pytest.mark.parametrize(
    ("table", "test", "args"),
    [
        (FloorBelow, "test_finds_the_neighbours", ()),
        (CeilingAbove, "test_finds_the_neighbours", ()),
        (CeilingAbove, "test_finds_both_ends", ()),
        (RangeWithItsEnd, "test_a_range_has_its_start_and_not_its_end", ()),
        (RangeOfTheMoment, "test_a_range_is_of_its_moment", ()),
        (SignedOrder, "test_lists_ascending", ()),
        (LeavesHoles, "test_neighbours_are_exact_after_deletions", (1000, 3, 256)),
    ],
)
def test_a_faulty_order_is_found(table: type[SortedTable[Any]], test: str, args: tuple[Any, ...]) -> None:
    finds(OrderedTableConformance, table, test, args)


def finds(suite: type, table: Callable[[], Any], test: str, args: tuple[Any, ...]) -> None:
    once = settings(
        database=None,
        derandomize=True,
        phases=[Phase.generate],  # a failure is enough, it need not be a small one
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        max_examples=200,
    )
    planted: Any = type("Planted", (suite,), {"make": lambda self: table(), "model_settings": once})()
    with pytest.raises((AssertionError, pytest.fail.Exception, InternalError, LookupError, RuntimeError)):
        getattr(planted, test)(*args)


def test_a_sound_table_passes_where_the_faulty_ones_fail() -> None:
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        finds(TableConformance, DictTable, "test_mutate_may_use_the_table", ())


# What `Checked` says about a table that contradicts itself.


class Miscounts(DictTable[Any]):
    def __len__(self) -> int:
        return len(self._map) // 2


class ContainsAll(DictTable[Any]):
    def __contains__(self, key: int, /) -> bool:
        return True


class ForgetsTheDefault(DictTable[Any]):
    def __init__(self) -> None:
        super().__init__()
        self.get = lambda key, default=None: self._map.get(key)


@pytest.mark.parametrize(
    ("table", "act", "rule"),
    [
        (Miscounts, lambda table: [table.insert(1, 1), table.insert(2, 1)], "a write counts as it should"),
        (ContainsAll, lambda table: 5 in table, "`in` and get agree"),
        (ForgetsTheDefault, lambda table: table.get(5, "default"), "get gives the default"),
        (Overwrites, lambda table: [table.insert(1, 1), table.insert(1, 2)], "insert refuses a duplicate"),
        (Keeps, lambda table: [table.insert(1, 1), table.pop(1)], "pop takes the key out"),
        (GivesTheNew, lambda table: [table.insert(1, 1), table.replace(1, 2)], "gives the old value"),
        (KeepsNumPy, lambda table: [table.insert(np.int64(5), 1), table.snapshot()], "plain int"),
    ],
)
def test_checked_names_the_broken_rule(table: type[DictTable[Any]], act: Callable[[Any], object], rule: str) -> None:
    with pytest.raises(InternalError, match=rule):
        act(Checked(table()))


@pytest.mark.parametrize(
    ("table", "act", "rule"),
    [
        (FloorBelow, lambda table: table.floor(20), "no key lies between floor and its key"),
        (CeilingAbove, lambda table: table.ceiling(20), "no key lies between ceiling and its key"),
        (RangeWithItsEnd, lambda table: table.range(10, 30), "a range stays inside"),
        (SignedOrder, lambda table: [table.insert(2**63, 1), table.snapshot()], "items are listed ascending"),
    ],
)
def test_checked_names_the_broken_rule_of_order(
    table: type[SortedTable[Any]], act: Callable[[Any], object], rule: str
) -> None:
    wrapped = CheckedOrdered(table())
    for key in (10, 20, 30):
        wrapped.upstream.insert(key, str(key))
    with pytest.raises(InternalError, match=rule):
        act(wrapped)


@pytest.mark.parametrize("name", ["get", "__contains__", "floor", "ceiling", "range"])
@pytest.mark.parametrize(
    ("key", "error"), [(-1, OverflowError), (2**64, OverflowError), (True, TypeError), ("1", TypeError)]
)
def test_checked_checks_the_keys_of_reads(name: str, key: Any, error: type[Exception]) -> None:
    table: CheckedOrdered[str] = CheckedOrdered(SortedTable())
    read = getattr(table, name)
    with pytest.raises(error):
        partial(read, key)(*([2**64] if name == "range" else []))
