"""What every table must do.

Derive from `TableConformance`, and from `OrderedTableConformance` too for an ordered table, and say how an empty one is
made::

    class TestMine(TableConformance):
        def make(self):
            return MyTable()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count, pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from lifetimes.tables.checked import Checked, checked
from lifetimes.tables.protocol import KEY_MAX, OrderedTable, Table
from lifetimes.testing.conformance.ordered_tables import OrderedTableConformance
from lifetimes.testing.conformance.table_model import TableMachine
from lifetimes.testing.disturb import interrupt, run_disturbed

__all__ = ["OrderedTableConformance", "TableConformance"]

GOOD_KEYS = (0, 1, 255, 256, 2**32, 2**63 - 1, 2**63, KEY_MAX)
NUMPY_KEYS = (np.int8(5), np.int64(2**62), np.uint64(KEY_MAX), np.uint64(2**63), np.intp(0))
NO_INTEGERS = (True, False, np.True_, 3.0, np.float64(3), None, "3", b"3", (3,))
RUNS = (1, 2, 3, 7, 8, 25, 31, 32, 33, 185, 255, 256, 257, 300)
"""Lengths of dense runs about the sizes at which a Judy array changes the kind of a node."""
OUT_OF_RANGE = (-1, -(2**63), KEY_MAX + 1, 2**70, np.int64(-1))


class TableConformance:
    """The contract of `Table`.  A subclass says how an empty table is made."""

    model_settings = settings(max_examples=60, stateful_step_count=30, deadline=None)

    def make(self) -> Table[Any]:
        """An empty table."""
        raise NotImplementedError

    def checked(self) -> Checked[Any]:
        """An empty table that checks itself."""
        return checked(self.make())

    def test_is_a_table_and_starts_empty(self) -> None:
        table = self.make()
        assert isinstance(table, Table)
        assert len(table) == 0
        assert list(table.snapshot()) == []

    def test_does_what_a_dictionary_does(self) -> None:
        machine: Any = partial(TableMachine, self.make)  # a class is asked for, what makes one is enough
        run_state_machine_as_test(machine, settings=self.model_settings)

    @pytest.mark.parametrize("key", [*GOOD_KEYS, *NUMPY_KEYS], ids=repr)
    def test_takes_every_unsigned_64_bit_integer(self, key: Any) -> None:
        table = self.checked()
        table.insert(key, "a")
        assert table.get(int(key)) == "a"
        assert table.replace(key, "b") == "a"
        assert table.mutate(key, lambda old: f"{old}c") == "bc"
        assert [type(key) for key, _ in table.snapshot()] == [int]
        assert table.pop(key) == "bc"
        assert len(table) == 0

    @pytest.mark.parametrize("key", NO_INTEGERS, ids=repr)
    def test_refuses_what_is_no_integer(self, key: Any) -> None:
        self.refuses(key, TypeError)

    @pytest.mark.parametrize("key", OUT_OF_RANGE, ids=repr)
    def test_refuses_what_has_no_64_unsigned_bits(self, key: Any) -> None:
        self.refuses(key, OverflowError)

    def refuses(self, key: Any, error: type[Exception]) -> None:
        """Every write refuses the key, shows it, and changes nothing."""
        table = self.make()
        for present in (0, 1, 3, KEY_MAX):  # what a careless conversion would make of the bad ones
            table.insert(present, str(present))
        before = list(table.snapshot())
        called: list[Any] = []
        writes: Sequence[Callable[[], object]] = (
            lambda: table.insert(key, "new"),
            lambda: table.replace(key, "new"),
            lambda: table.pop(key),
            lambda: table.mutate(key, called.append),
        )
        for write in writes:
            with pytest.raises(error):
                write()
        assert list(table.snapshot()) == before
        assert called == []

    def test_none_is_no_value(self) -> None:
        table = self.checked()
        table.insert(1, "one")
        for key in (1, 2):
            with pytest.raises(TypeError):
                table.replace(key, None)
        with pytest.raises(TypeError):
            table.insert(2, None)
        assert dict(table.snapshot()) == {1: "one"}

    def test_values_that_are_false_are_values(self) -> None:
        table = self.checked()
        for key, value in enumerate((0, False, 0.0, "", (), [])):
            table.insert(key, value)
            assert table.get(key) is value
            assert key in table
            with pytest.raises(KeyError):
                table.insert(key, value)
        assert len(table) == 6
        assert table.mutate(0, lambda old: 0) == 0
        assert len(table) == 6

    def test_a_get_that_was_kept_stays_right(self) -> None:
        table = self.make()
        get = table.get
        table.insert(1, "old")
        table.clear()
        assert get(1) is None
        table.insert(1, "new")
        table.insert(2, "two")
        assert (get(1), get(2), get(3, "none")) == ("new", "two", "none")

    def test_a_snapshot_is_of_its_moment(self) -> None:
        table = self.make()
        for key in range(100):
            table.insert(key, key + 1)
        before = table.snapshot()
        for key, _ in before:  # taking out while going through is what it is for
            table.pop(key)
        table.insert(5, "new")
        assert dict(before) == {key: key + 1 for key in range(100)}
        assert dict(table.snapshot()) == {5: "new"}

    def test_mutate_may_use_the_table(self) -> None:
        def after(key: int, member: str, *args: object) -> dict[int, Any]:
            table = self.make()
            table.insert(1, "one")
            table.insert(2, "two")

            def change(old: object) -> str:
                getattr(table, member)(*args)
                return "result"

            assert table.mutate(key, change) == "result"
            return dict(table.snapshot())

        assert after(1, "pop", 1) == {1: "result", 2: "two"}
        assert after(1, "clear") == {1: "result"}
        assert after(3, "insert", 3, "three") == {1: "one", 2: "two", 3: "result"}
        assert after(3, "pop", 2) == {1: "one", 3: "result"}

    @pytest.mark.parametrize("dies_by", ["replace", "pop", "mutate", "mutate to None", "clear"])
    @pytest.mark.parametrize("dying_does", ["insert", "pop neighbours", "pop", "insert the same", "clear"])
    def test_a_value_may_change_the_table_as_it_dies(self, dies_by: str, dying_does: str) -> None:
        """The new value is stored before the old one is released, and nothing that was looked up outlives a release.

        Source: orieg/php-judy#70, orieg/php-judy#71.
        """
        table, model = self.make(), dict[int, str]()
        deaths: list[int] = []

        def put(key: int, text: str) -> None:
            if key in table:
                table.replace(key, text)
            else:
                table.insert(key, text)
            model[key] = text

        def take(key: int) -> None:
            model.pop(key, None)
            if key in table:
                table.pop(key)

        class Dying:
            def __init__(self, key: int) -> None:
                self.key = key

            def __del__(self) -> None:
                if dying_does == "insert":
                    for key in range(1000, 1100):
                        put(key, "inserted")
                elif dying_does == "insert the same":
                    put(self.key, "inserted")
                elif dying_does == "pop neighbours":
                    take(self.key - 1)
                    take(self.key + 1)
                elif dying_does == "pop":
                    take(self.key)
                else:
                    model.clear()
                    table.clear()
                deaths.append(self.key)  # last: a death that raised does not count

        for key in range(20):
            table.insert(key, Dying(key) if key in (7, 11) else str(key))
            model[key] = str(key)
        if dies_by == "replace":
            model[7] = "new"
            table.replace(7, "new")
        elif dies_by == "pop":
            del model[7]
            table.pop(7)
        elif dies_by == "mutate":
            model[7] = "new"
            table.mutate(7, lambda old: "new")
        elif dies_by == "mutate to None":
            del model[7]
            table.mutate(7, lambda old: None)
        else:
            model.clear()
            table.clear()
        assert 7 in deaths
        listed = {key: value if isinstance(value, str) else str(value.key) for key, value in table.snapshot()}
        assert listed == model
        assert len(table) == len(model)
        checked(table).check_invariants()

    @pytest.mark.parametrize("write", ["insert", "replace", "pop", "mutate", "clear"])
    def test_an_interrupt_anywhere_leaves_the_parts_in_step(self, write: str) -> None:
        """Whatever was half done, every item that is listed can be found and deleted, and the rest of the table works.

        Source: grantjenks/python-sortedcontainers#254, grantjenks/python-sortedcollections#18.
        """
        for step in count():
            table, before, after = self.scene(write)
            try:
                if not self.strike(table, write, step, after_calls=False):
                    break
            except KeyboardInterrupt:
                pass
            checked(table).check_invariants()
            items = dict(table.snapshot())
            assert items in (before, after) or (write == "clear" and items.items() <= before.items())
            for key, value in items.items():
                if isinstance(table, OrderedTable):
                    assert table.floor(key) == table.ceiling(key) == (key, value)
                assert table.pop(key) == value
            assert len(table) == 0
            table.insert(4, "again")
            assert list(table.snapshot()) == [(4, "again")]
        assert dict(table.snapshot()) == after

    @pytest.mark.parametrize("write", ["insert", "replace", "pop"])
    def test_a_write_that_is_interrupted_has_changed_nothing(self, write: str) -> None:
        """At least wherever CPython delivers an interrupt.  A value that was popped is not lost with it."""
        for step in count():
            table, before, after = self.scene(write)
            try:
                if not self.strike(table, write, step, after_calls=True):
                    break
            except KeyboardInterrupt:
                assert dict(table.snapshot()) == before
        assert dict(table.snapshot()) == after

    def scene(self, write: str) -> tuple[Table[Any], dict[int, str], dict[int, str]]:
        """A small table, its items, and its items after the write."""
        table = self.make()
        before = {key: str(key) for key in (0, 1, 2, 3, 5, 8, 2**63, KEY_MAX)}
        for key, value in before.items():
            table.insert(key, value)
        after = {
            "insert": before | {4: "new"},
            "replace": before | {3: "new"},
            "mutate": before | {3: "new"},
            "pop": {key: value for key, value in before.items() if key != 3},
            "clear": {},
        }
        return table, before, after[write]

    def strike(self, table: Table[Any], write: str, step: int, *, after_calls: bool) -> bool:
        """Do the write and interrupt it at a step; False if it has fewer."""
        arguments = {"insert": (4, "new"), "replace": (3, "new"), "pop": (3,), "mutate": (3, lambda old: "new")}
        return run_disturbed(
            getattr(table, write), *arguments.get(write, ()), step=step, act=interrupt, after_calls=after_calls
        )

    def test_holds_keys_of_every_clustering(self) -> None:
        """Keys that fill each kind of inner node of a radix tree, and each growth from one kind to the next.

        Source: orieg/php-judy#131, a Judy library that dropped keys of some clusterings without a word.
        """
        random = Random(49)
        batches = [
            [(high << 8) | low for high in range(9) for low in range(15)],
            [(high << 8) | low for high in range(48) for low in range(15)],
            *([(run << 16) | low for low in range(run)] for run in RUNS),
            [(2**63) | (high << 24) for high in range(300)],
            [random.getrandbits(64) for _ in range(3000)],
            [random.getrandbits(20) << 40 for _ in range(1000)],
            [0, 1, 2**63, KEY_MAX - 1, KEY_MAX],
        ]
        table, model = self.make(), dict[int, str]()
        for batch in batches:
            for key in batch:
                if key not in model:
                    table.insert(key, f"{key:x}")
                    model[key] = f"{key:x}"
            self.same(table, model)
        order = list(model)
        random.shuffle(order)
        for position, key in enumerate(order):
            assert table.pop(key) == model.pop(key)
            if position % 1000 == 0:
                self.same(table, model)
        assert len(table) == 0

    def same(self, table: Table[Any], model: dict[int, Any]) -> None:
        """The table holds what the dictionary holds, by each way of asking."""
        assert len(table) == len(model)
        assert dict(table.snapshot()) == model
        for key in model:
            assert key in table
            assert table.get(key) == model[key]
            for near in (key ^ 1, key ^ 256, key ^ 2**63):
                assert (near in table) == (near in model)
        if isinstance(table, OrderedTable):
            for below, above in pairwise(sorted(model)):
                assert table.ceiling(below + 1) == (above, model[above])
                assert table.floor(above - 1) == (below, model[below])
