"""The stream of events: who hears what, in which way the constructor calls, and what a broken watcher does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from lifetimes import Lifetime, instrument
from lifetimes.origins import record_at_least


@pytest.fixture(autouse=True)
def nobody_watches() -> Iterator[None]:
    least = record_at_least("off")
    assert instrument.watchers == []
    yield
    assert instrument.watchers == []
    record_at_least(*least)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    found: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", found.append)
    yield found
    found.clear()  # the tracebacks of what failed


def test_a_life_is_told_from_its_begin_to_its_end() -> None:
    heard: list[tuple[str, int]] = []

    def listen(name: str, key: int, details: dict[str, Any]) -> None:
        heard.append((name, key))

    with instrument.listening(listen):
        x = Lifetime("x")
        y = Lifetime("y", parents=[x])
        first, second = x.key, y.key
        y.detach()
        del x, y
    assert heard == [("create", first), ("create", second), ("detach", second), ("release", first)]


def test_recorders_and_listeners_all_see_a_new_cell() -> None:
    seen: list[object] = []
    heard: list[str] = []

    def listen(name: str, key: int, details: dict[str, Any]) -> None:
        heard.append(name)

    instrument.record(seen.append)
    instrument.record(seen.append)  # a bound method made anew each time is another recorder
    with instrument.listening(listen):
        Lifetime("x")
    while instrument.watchers:
        instrument.stop_recording(instrument.watchers[0])  # type: ignore[arg-type]
    assert len(seen) == 2
    assert heard == ["create", "release"]


def test_one_safe_recorder_is_called_straight_from_the_constructor() -> None:
    callers: list[str] = []

    def recorder(cell: object) -> None:
        callers.append(sys._getframe(1).f_code.co_qualname)

    def other(cell: object) -> None:
        pass

    instrument.record(recorder, safe=True)
    Lifetime("x")
    instrument.record(other)
    Lifetime("x")
    instrument.stop_recording(other)
    Lifetime("x")
    instrument.stop_recording(recorder)
    Lifetime("x")
    instrument.record(recorder)  # not safe: it is called where its errors are caught
    Lifetime("x")
    instrument.stop_recording(recorder)
    assert callers == ["Lifetime.__init__", "_created", "Lifetime.__init__", "_created"]


def test_a_recorder_that_raises_is_told_and_the_others_record(told: list[Any]) -> None:
    seen: list[object] = []

    def broken(cell: object) -> None:
        raise ValueError("no")

    instrument.record(broken)
    record = seen.append
    instrument.record(record)
    x = Lifetime("x")
    instrument.stop_recording(broken)
    instrument.stop_recording(record)
    assert x.value == "x"
    assert len(seen) == 1
    assert [each.exc_value.args for each in told] == [("no",)]
    assert "failed on 'create'" in told[0].exc_value.__notes__[0]


def test_a_listener_that_raises_is_told_and_the_others_hear(told: list[Any]) -> None:
    heard: list[str] = []

    def broken(name: str, key: int, details: dict[str, Any]) -> None:
        raise ValueError("no")

    def listen(name: str, key: int, details: dict[str, Any]) -> None:
        heard.append(name)

    with instrument.listening(broken), instrument.listening(listen):
        instrument.emit("free", 1, address=0)
    assert heard == ["free"]
    assert repr(broken) in told[0].exc_value.__notes__[0]


def test_unknown_watchers_are_ignored_and_twice_is_once() -> None:
    def nobody(*args: object) -> None:
        pass

    instrument.unsubscribe(nobody)
    instrument.stop_recording(nobody)
    instrument.subscribe(nobody)
    instrument.subscribe(nobody)
    instrument.record(nobody)
    instrument.record(nobody)
    assert len(instrument.watchers) == 2
    instrument.unsubscribe(nobody)
    instrument.stop_recording(nobody)
