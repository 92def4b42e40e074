"""What every ordered table must do beside what every table does."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from lifetimes.tables.checked import CheckedOrdered
from lifetimes.tables.protocol import KEY_MAX, OrderedTable

__all__ = ["OrderedTableConformance"]


class OrderedTableConformance:
    """What `OrderedTable` promises beside that.  A subclass says how an empty table is made."""

    def make(self) -> OrderedTable[Any]:
        """An empty table."""
        raise NotImplementedError

    def filled(self, keys: Sequence[int]) -> CheckedOrdered[str]:
        """A table of these keys that checks itself; each value is its key as text."""
        table: CheckedOrdered[str] = CheckedOrdered(self.make())
        for key in keys:
            table.insert(key, str(key))
        return table

    def test_is_an_ordered_table(self) -> None:
        table = self.make()
        assert isinstance(table, OrderedTable)
        assert table.floor(KEY_MAX) is None
        assert table.ceiling(0) is None
        assert list(table.range(0, KEY_MAX + 1)) == []

    def test_finds_the_neighbours(self) -> None:
        table = self.filled([20, 10, 30])
        assert [table.floor(key) for key in (9, 10, 11, 30, KEY_MAX)] == [
            None,
            (10, "10"),
            (10, "10"),
            (30, "30"),
            (30, "30"),
        ]
        assert [table.ceiling(key) for key in (0, 10, 11, 30, 31)] == [
            (10, "10"),
            (10, "10"),
            (20, "20"),
            (30, "30"),
            None,
        ]

    def test_finds_both_ends(self) -> None:
        table = self.filled([0, 2**63, KEY_MAX])
        assert [table.floor(key) for key in (0, 1, KEY_MAX - 1, KEY_MAX)] == [
            (0, "0"),
            (0, "0"),
            (2**63, str(2**63)),
            (KEY_MAX, str(KEY_MAX)),
        ]
        assert [table.ceiling(key) for key in (0, 1, 2**63 + 1, KEY_MAX)] == [
            (0, "0"),
            (2**63, str(2**63)),
            (KEY_MAX, str(KEY_MAX)),
            (KEY_MAX, str(KEY_MAX)),
        ]

    def test_a_range_has_its_start_and_not_its_end(self) -> None:
        table = self.filled([0, 10, 20, 30, KEY_MAX])
        ranges = {
            (10, 30): [10, 20],
            (9, 31): [10, 20, 30],
            (11, 12): [],
            (10, 10): [],
            (30, 10): [],
            (0, 0): [],
            (0, KEY_MAX): [0, 10, 20, 30],
            (0, KEY_MAX + 1): [0, 10, 20, 30, KEY_MAX],
            (KEY_MAX, KEY_MAX + 1): [KEY_MAX],
        }
        for (low, high), keys in ranges.items():
            assert list(table.range(low, high)) == [(key, str(key)) for key in keys], (low, high)

    def test_a_range_is_of_its_moment(self) -> None:
        table = self.make()
        for key in range(10):
            table.insert(key, str(key))
        items = table.range(2, 8)
        table.pop(4)
        table.insert(2**40, "far")
        seen = []
        for key, value in items:
            seen.append((key, value))
            if key in table:
                table.pop(key)
        assert seen == [(key, str(key)) for key in range(2, 8)]
        assert [key for key, _ in table.snapshot()] == [0, 1, 8, 9, 2**40]

    def test_lists_ascending(self) -> None:
        random = Random(7)
        keys = list({random.getrandbits(64) for _ in range(500)})
        items = self.filled(keys).snapshot()
        assert all(a < b for (a, _), (b, _) in pairwise(items))
        assert {key for key, _ in items} == set(keys)

    @pytest.mark.parametrize("stride", [1, 256, 2**40 + 4096])
    @pytest.mark.parametrize(("count", "step"), [(64, 2), (64, 3), (1000, 2), (1000, 3), (1000, 7), (100_000, 5)])
    def test_neighbours_are_exact_after_deletions(self, count: int, step: int, stride: int) -> None:
        """Delete every ``step``-th key, then ask around the holes (a thousand of them where there are more).

        Source: JerrySievert/judyarray#5, where a lower bound was garbage after a deletion.
        """
        table = self.make()
        keys = [stride * (n + 1) for n in range(count)]
        for key in keys:
            table.insert(key, key)
        deleted = keys[::step]
        for key in deleted:
            table.pop(key)
        left = sorted(set(keys) - set(deleted))
        for key in deleted[:: max(1, count // 1000)]:
            for at in (key - 1, key, key + 1):
                below, above = bisect_right(left, at), bisect_left(left, at)
                assert table.floor(at) == ((left[below - 1], left[below - 1]) if below else None)
                assert table.ceiling(at) == ((left[above], left[above]) if above < len(left) else None)
        assert [key for key, _ in table.snapshot()] == left
