"""Every registered table keeps the contract.  A table that is registered is tested here with nothing edited."""

from __future__ import annotations

from typing import Any

import pytest

from lifetimes import tables
from lifetimes.tables import OrderedTable, Table
from lifetimes.testing.conformance.tables import OrderedTableConformance, TableConformance


class TestTables(TableConformance):
    @pytest.fixture(autouse=True, params=tables.names())
    def choose(self, request: pytest.FixtureRequest) -> None:
        self.name: str = request.param

    def make(self) -> Table[Any]:
        try:
            return tables.make(self.name)
        except ValueError as error:  # it needs an extra
            pytest.skip(str(error))


class TestOrderedTables(OrderedTableConformance):
    @pytest.fixture(autouse=True, params=tables.names(ordered=True))
    def choose(self, request: pytest.FixtureRequest) -> None:
        self.name: str = request.param

    def make(self) -> OrderedTable[Any]:
        return tables.make(self.name, ordered=True)
