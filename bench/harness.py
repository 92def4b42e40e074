"""The pytest plugin: the fixture `compare`, and one row for each function that was collected.

pytest-benchmark lies underneath: it keeps both series of a row, as two benchmarks of one group, so that its own files
and comparisons (``--benchmark-json``, ``--benchmark-autosave``, ``--benchmark-compare``) work on them.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

import pytest

from bench.measure import Loop, Plan, Spin, interleave
from bench.row import ERROR, MISSED, SKIPPED, Row, Side

__all__ = ["RERUNS", "Compare", "Harness"]

RERUNS: Final = 3
"""How often a row that misses its bar on a busy machine is measured again before that counts."""


class Harness:
    """Give it to ``pytest.main(plugins=[...])``; afterwards ``rows`` has the rows in the order in which they ran."""

    def __init__(self, plan: Plan, spin: Spin | None = None) -> None:
        self.plan = plan
        self.spin = Spin() if spin is None else spin
        self.rows: list[Row] = []

    def row_of(self, item: pytest.Item) -> Row:
        """The row of a collected function, made when it is first asked for."""
        for row in self.rows:
            if row.name == item.name and row.file == item.path.name:
                return row
        words = (getattr(item.obj, "__doc__", None) or item.name).strip().splitlines()[0]  # type: ignore[attr-defined]
        given = f" [{item.callspec.id}]" if hasattr(item, "callspec") else ""
        row = Row(item.name, f"{words.rstrip('.')}{given}", item.path.name)
        self.rows.append(row)
        return row

    @pytest.fixture
    def compare(self, request: pytest.FixtureRequest, benchmark: Any) -> Compare:
        """Measures one row; see `Compare`."""
        return Compare(self, self.row_of(request.node), benchmark)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note what became of a row that could not be measured."""
        report = yield
        row = self.row_of(item)
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            row.trouble = SKIPPED, reason.removeprefix("Skipped: ")
        elif call.excinfo is not None:
            missed = row.verdict == MISSED and call.excinfo.errisinstance(pytest.fail.Exception)
            if not missed and row.trouble is None:
                row.trouble = ERROR, call.excinfo.exconly().strip().splitlines()[0]
        elif call.when == "call" and row.ours is None:
            row.trouble = ERROR, "it measured nothing: a row calls compare() once"
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Say beside each row what it came to, while the next one runs."""
        row = next((row for row in self.rows if report.nodeid.endswith(f"{row.file}::{row.name}")), None)
        if row is None or report.when != "call" or report.outcome == "skipped":
            return None
        ratio = "" if row.ratio is None else f" {row.ratio:.2f}x"
        return report.outcome, row.verdict[0], f"{row.verdict}{ratio}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_benchmark_group_stats(self, config: pytest.Config) -> list[Any] | None:
        """Keep pytest-benchmark's own table away, unless one of its options asks for its work."""
        asked = any(str(argument).startswith("--benchmark") for argument in config.invocation_params.args)
        return None if asked else []


class Compare:
    """``compare(ours, peer, bar=1.5)`` measures a row and fails when it is below its bar.

    ``ours`` and ``peer`` are loops: ``def lifetime(rounds): for _ in rounds: <the operation>``; their names, with
    spaces, are the labels of the table.  ``bar``, ``limit`` and ``nbytes`` are those of `Row`.  A bar that is missed on a
    busy machine is measured again, `RERUNS` times at most.
    """

    def __init__(self, harness: Harness, row: Row, benchmark: Any) -> None:
        self._harness = harness
        self._row = row
        self._benchmark = benchmark
        benchmark._mode = "compare"  # or it would warn that it was not used when a row fails before its end

    def __call__(
        self,
        ours: Loop,
        peer: Loop | None = None,
        *,
        bar: float | None = None,
        limit: float | None = None,
        nbytes: int = 0,
    ) -> Row:
        harness, row = self._harness, self._row
        if row.ours is not None:
            raise RuntimeError("a row calls compare() once; write another function for another row")
        row.bar, row.limit, row.nbytes = bar, limit, nbytes
        for _ in range(1 + RERUNS):
            measured = interleave(ours, peer, harness.plan, harness.spin)
            row.take(measured, _label(ours), _label(peer), harness.spin.slowdown(measured.spins))
            if not (row.verdict == MISSED and row.busy):
                break
        _store(self._benchmark, row)
        if row.verdict == MISSED:
            busy = f" (on a busy machine, measured {len(row.attempts)} times)" if row.busy else ""
            pytest.fail(f"{row.title}: {row.reason}{busy}", pytrace=False)
        return row


def _label(loop: Loop | None) -> str:
    return str(getattr(loop, "__name__", "")).strip("_").replace("_", " ")


def _store(benchmark: Any, row: Row) -> None:
    """Hand both series to pytest-benchmark, which takes one a test and has no public way to be given two."""
    for side in (row.ours, row.peer):
        if side is not None:
            _store_side(benchmark, row, side)


def _store_side(benchmark: Any, row: Row, side: Side) -> None:
    benchmark.group = row.title
    benchmark.name = f"{row.name}: {side.label}"
    benchmark.fullname = f"{row.file}::{benchmark.name}"
    benchmark.extra_info = {"ratio": row.ratio, "bar": row.bar, "limit": row.limit, "verdict": row.verdict}
    stats = benchmark._make_stats(side.iterations)
    for seconds in side.rounds:
        stats.update(seconds * side.iterations)
