"""What the pytest plugin does once there is something to check; `lifetimes_pytest` is the part that is always loaded.

Note [Whose leak].  A test is judged when its function-scoped fixtures are gone.  Not its own are: what was alive before it;
what fixtures of a wider scope made, until they end (then it is theirs); what the library keeps for everybody; and what only
the traceback of the test's own failure holds, because pytest keeps that to print it.  What is left over counts as there
before the next test, so each leak is told once.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

import pytest

from lifetimes import cell as cells
from lifetimes.errors import LeakWarning
from lifetimes.leaks.filters import matching
from lifetimes.leaks.ledger import LiveThing, rows_of
from lifetimes.leaks.reasons import Reason, explain
from lifetimes.leaks.settling import finish_pending
from lifetimes.leaks.text import short
from lifetimes.leaks.tracebacks import chain, clear_tracebacks
from lifetimes.origins import Level, record_at_least
from lifetimes.sizes import format_bytes

__all__ = ["Checker"]

PATIENCE: Final = 1.0
"""Seconds that work in flight may take after a test."""
EXPLAINED: Final = 50
"""Things of one test whose holders are looked for."""
SHOWN: Final = 20

BEFORE: pytest.StashKey[set[int]] = pytest.StashKey()
FAILURES: pytest.StashKey[list[BaseException]] = pytest.StashKey()
MUST: pytest.StashKey[bool] = pytest.StashKey()
NOTE: pytest.StashKey[str] = pytest.StashKey()


class Checker:
    """A plugin object: compares what is alive after each test with what was there before.  Note [Whose leak].

    ``mode`` is ``off`` (only tests with the fixture ``no_leaks``), ``warn`` or ``error``.
    """

    def __init__(self, mode: str, stacks: str, clear: bool) -> None:
        self.mode = mode
        self.clear = clear
        self.stacks: Level = "full" if stacks == "full" else "line"
        self._recorded_before: tuple[Level, int] | None = None
        # What the fixtures of a wider scope made, by the fixture.
        self._made: dict[Any, set[int]] = {}
        self._ended: list[tuple[str, set[int]]] = []
        if mode != "off":
            self._record()

    def end(self) -> None:
        """The run is over: record what was recorded before it."""
        if self._recorded_before is not None:
            record_at_least(*self._recorded_before)

    def watch(self, item: pytest.Item) -> None:
        """Check this test from here on, whatever the mode."""
        self._record()
        item.stash[MUST] = True
        item.stash[BEFORE] = set(cells.live)

    def _record(self) -> None:
        if self._recorded_before is None:
            self._recorded_before = record_at_least(self.stacks)

    # What pytest calls.

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note what is there before the test, and its fixtures."""
        item.stash[FAILURES] = []
        if self.mode != "off":
            item.stash[BEFORE] = set(cells.live)
        result = yield
        _check_marks(item)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Generator[None, object, object]:
        """Note what a fixture of a wider scope makes."""
        if fixturedef.scope == "function":
            return (yield)
        before = set(cells.live)
        try:
            return (yield)
        finally:
            self._made.setdefault(fixturedef, set()).update(set(cells.live) - before)

    def pytest_fixture_post_finalizer(self, fixturedef: Any, request: Any) -> None:
        """The fixture is over; what it made should go now."""
        made = self._made.pop(fixturedef, None)
        if made:
            self._ended.append((f"the {fixturedef.scope}-scoped fixture {fixturedef.argname!r}", made))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Generator[None, Any, Any]:
        """Note what failed; hang what the traceback holds on the report of the test."""
        if call.excinfo is not None:
            item.stash.setdefault(FAILURES, []).append(call.excinfo.value)
        report = yield
        if call.when == "teardown" and NOTE in item.stash:
            report.sections.append(("lifetimes at teardown", item.stash[NOTE]))
            del item.stash[NOTE]
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Judge the test when its fixtures are gone."""
        try:
            result = yield
        except BaseException as error:
            item.stash.setdefault(FAILURES, []).append(error)
            text = self._judge(item)
            if text:
                error.add_note(text)
            raise
        text = self._judge(item)
        if text:
            self._tell(item, text)
        return result

    def _judge(self, item: pytest.Item) -> str:
        try:
            return self._check(item)
        finally:
            self._ended.clear()
            self._finish(item)

    def _tell(self, item: pytest.Item, text: str) -> None:
        if self.mode == "error" or item.stash.get(MUST, False):
            pytest.fail(text, pytrace=False)
        item.warn(LeakWarning(text))

    def _finish(self, item: pytest.Item) -> None:
        """Let the failures go, and what they hold if that is wanted."""
        failures = item.stash.get(FAILURES, [])
        if self.clear and failures:
            for error in failures:
                clear_tracebacks(error)
            gc.collect()
        failures.clear()

    # Judging.

    def _check(self, item: pytest.Item) -> str:
        """What the test, and fixtures that ended with it, have left, in words; empty for nothing."""
        if BEFORE not in item.stash:
            return ""
        before = item.stash[BEFORE]
        left_by = {key: who for who, keys in self._ended for key in keys}
        expected = set().union(*self._made.values(), before - set(left_by))
        if not (set(cells.live) - expected):
            return ""
        funcargs = getattr(item, "funcargs", None)
        if isinstance(funcargs, dict):
            funcargs.clear()  # pytest does so itself in a moment; what a fixture returned is no leak
        finish_pending(PATIENCE, expected)
        gc.collect()
        finish_pending(PATIENCE, expected)
        rows = rows_of([cell for key, cell in list(cells.live.items()) if key not in expected])
        if not rows:
            return ""
        failures = item.stash.get(FAILURES, [])
        avoid = {number for error in failures for each in chain(error) for number in _ids(each)}
        reasons = explain([row.key for row in rows[:EXPLAINED]], avoid=avoid)
        allowed = _allowed(rows, item)
        benign = _closure(rows, reasons, lambda row, reason: row.key in allowed or reason.root.startswith("lifetimes."))
        rows = [row for row in rows if row.key not in benign]
        if failures:
            held = _closure(rows, reasons, lambda row, reason: reason.avoided)
            if held:
                item.stash[NOTE] = _note([row for row in rows if row.key in held], reasons)
            rows = [row for row in rows if row.key not in held]
        return _message(rows, reasons, left_by)


def _allowed(rows: list[LiveThing], item: pytest.Item) -> set[int]:
    marks = list(item.iter_markers("allow_leaks"))
    return {row.key for mark in marks for row in matching(rows, **mark.kwargs)}


def _check_marks(item: pytest.Item) -> None:
    for mark in item.iter_markers("allow_leaks"):
        unknown = sorted(set(mark.kwargs) - {"kind", "label"})
        if unknown or mark.args:
            words = ", ".join(unknown) or repr(mark.args)
            pytest.fail(f"the marker allow_leaks takes kind= and label=, not {words}", pytrace=False)


def _ids(error: BaseException) -> Iterator[int]:
    """Of the exception, and of its traceback's links."""
    yield id(error)
    traceback = error.__traceback__
    while traceback is not None:
        yield id(traceback)
        traceback = traceback.tb_next


def _closure(
    rows: list[LiveThing], reasons: dict[int, Reason], pardoned: Callable[[LiveThing, Reason], bool]
) -> set[int]:
    """The keys of what is pardoned, and of what is only there because of that: parents, and what their handles refer to."""
    nothing = Reason(0, "", "unknown", "")
    found = {row.key for row in rows if pardoned(row, reasons.get(row.key, nothing))}
    children: dict[int, list[int]] = {}
    for row in rows:
        for parent in row.parents:
            children.setdefault(parent, []).append(row.key)
    while True:
        more = {
            row.key
            for row in rows
            if row.key not in found
            and (reason := reasons.get(row.key)) is not None
            and ((reason.via in found) or (reason.reason == "child" and set(children.get(row.key, [0])) <= found))
        }
        if not more:
            return found
        found |= more


def _message(rows: list[LiveThing], reasons: dict[int, Reason], left_by: dict[int, str]) -> str:
    if not rows:
        return ""
    lines = [f"{_count(rows)} left alive:"]
    for row in rows[:SHOWN]:
        lines.append(_line(row, reasons) + (f"\n    left by {left_by[row.key]}" if row.key in left_by else ""))
    if len(rows) > SHOWN:
        lines.append(f"  and {len(rows) - SHOWN} more")
    return "\n".join(lines)


def _note(rows: list[LiveThing], reasons: dict[int, Reason]) -> str:
    lines = [f"{_count(rows)} held by traceback of the failure, which is no leak:"]
    return "\n".join(lines + [_line(row, reasons) for row in rows[:SHOWN]])


def _line(row: LiveThing, reasons: dict[int, Reason]) -> str:
    size = f", {format_bytes(row.nbytes)}" if row.nbytes else ""
    made = f"\n    made at {short(row.origin)}" if row.origin else "\n    made where nothing was recorded"
    reason = reasons.get(row.key)
    if reason is None:
        return f"  {row.name}{size}{made}"
    words = "held by a traceback: " if reason.reason == "traceback" else "held by "
    _, own, attribute = reason.held_by.partition("._instance.")
    holder = (
        f"self.{attribute} of the test's class, which pytest keeps to the end of the run" if own else reason.held_by
    )
    return f"  {row.name}{size}{made}\n    {words}{short(holder)}"


def _count(rows: list[LiveThing]) -> str:
    return f"{len(rows)} lifetime{'' if len(rows) == 1 else 's'}"
