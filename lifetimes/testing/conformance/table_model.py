"""A table beside a dictionary: any sequence of calls, and after each the two are the same."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lifetimes.tables.checked import CheckedOrdered, checked
from lifetimes.tables.protocol import Table
from lifetimes.testing import strategies

__all__ = ["TableMachine"]


class TableMachine(RuleBasedStateMachine):
    """Checks every answer of the table `make` gives against a dictionary and a sorted list of its keys."""

    def __init__(self, make: Callable[[], Table[Any]]) -> None:
        super().__init__()
        upstream = make()
        self.table = checked(upstream)
        self.ordered = self.table if isinstance(self.table, CheckedOrdered) else None
        self.model: dict[int, Any] = {}
        self.kept_get = upstream.get

    @initialize(items=st.dictionaries(strategies.keys(), strategies.table_values(), max_size=40))
    def fill(self, items: dict[int, Any]) -> None:
        for key, value in items.items():
            self.table.insert(key, value)
        self.model.update(items)

    def pick(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.model)), label="present key")

    @rule(key=strategies.keys(), value=strategies.table_values())
    def insert(self, key: int, value: Any) -> None:
        if key in self.model:
            with pytest.raises(KeyError):
                self.table.insert(key, value)
        else:
            self.table.insert(key, value)
            self.model[key] = value

    @rule(key=strategies.keys(), value=strategies.table_values())
    def replace(self, key: int, value: Any) -> None:
        if key in self.model:
            assert self.table.replace(key, value) is self.model[key]
            self.model[key] = value
        else:
            with pytest.raises(KeyError):
                self.table.replace(key, value)

    @rule(key=strategies.keys())
    def pop(self, key: int) -> None:
        if key in self.model:
            assert self.table.pop(key) is self.model.pop(key)
        else:
            with pytest.raises(KeyError):
                self.table.pop(key)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), value=strategies.table_values())
    def change_present(self, data: st.DataObject, value: Any) -> None:
        self.replace(self.pick(data), value)
        self.insert(self.pick(data), value)
        self.pop(self.pick(data))

    @rule(key=strategies.keys(), value=st.one_of(st.none(), strategies.table_values()))
    def mutate(self, key: int, value: Any) -> None:
        seen = []

        def change(old: Any) -> Any:
            seen.append(old)
            return value

        assert self.table.mutate(key, change) is value
        assert len(seen) == 1
        assert seen[0] is self.model.pop(key, None)
        if value is not None:
            self.model[key] = value

    @rule(key=strategies.keys(), error=st.sampled_from([ValueError, KeyboardInterrupt]))
    def mutate_fails(self, key: int, error: type[BaseException]) -> None:
        def fail(old: Any) -> Any:
            raise error

        with pytest.raises(error):
            self.table.mutate(key, fail)

    @rule(key=strategies.bad_keys())
    def refuse_key(self, key: Any) -> None:
        for write in (self.table.upstream.pop, lambda key: self.table.upstream.insert(key, 1)):
            with pytest.raises((TypeError, OverflowError)):
                write(key)

    @rule()
    def clear(self) -> None:
        self.table.clear()
        self.model.clear()

    @rule(key=strategies.keys())
    def look(self, key: int) -> None:
        default = object()
        assert self.table.get(key, default) is self.model.get(key, default)
        assert self.kept_get(key) is self.model.get(key)
        assert (key in self.table) == (key in self.model)

    @precondition(lambda self: self.ordered)
    @rule(key=strategies.keys(), other=strategies.keys())
    def look_around(self, key: int, other: int) -> None:
        assert self.ordered is not None
        keys = sorted(self.model)
        for at in (key, other):
            below, above = bisect_right(keys, at), bisect_left(keys, at)
            floor = (keys[below - 1], self.model[keys[below - 1]]) if below else None
            assert self.ordered.floor(at) == floor
            ceiling = (keys[above], self.model[keys[above]]) if above < len(keys) else None
            assert self.ordered.ceiling(at) == ceiling
        inside = [(at, self.model[at]) for at in keys if key <= at < other]
        assert list(self.ordered.range(key, other)) == inside

    @invariant()
    def same_as_the_model(self) -> None:
        self.table.check_invariants()
        items = self.table.snapshot()
        assert len(self.table) == len(self.model)
        assert [key for key, _ in items] == sorted(self.model) or not self.ordered
        assert dict(items) == self.model
