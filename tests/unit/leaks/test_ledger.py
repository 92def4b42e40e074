"""Rows of what is alive: filters, groups, columns, differences."""

from __future__ import annotations

import json
import random
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from lifetimes import Lifetime, diff, live, scope, snapshot, why
from lifetimes.cell import live as cells
from lifetimes.leaks import History, LiveThing, Snapshot, group
from lifetimes.leaks.ledger import row_of
from lifetimes.leaks.snapshots import of_rows
from lifetimes.origins import record_at_least


@pytest.fixture
def some(lines: None) -> Iterator[dict[str, Any]]:
    """A few things of several kinds."""
    device = Lifetime("d", kind="device", label="host:0")
    with scope("epoch"), scope("step 1"):
        a = Lifetime("a", kind="array", nbytes=100, label="chunk 1", parents=[device])
    with scope("epochs"):
        b = Lifetime("b", kind="array", nbytes=300, label="chunk 2", parents=[device])
    view = Lifetime("v", kind="view", parents=[a])
    context = Lifetime("c", kind="context", label="elsewhere")
    stream = Lifetime("s", kind="stream", parents=[context])
    pin = a.use("a copy")
    pin.__enter__()
    made = {"device": device, "a": a, "b": b, "view": view, "context": context, "stream": stream, "pin": pin}
    del device, a, b, view, context, stream, pin
    yield made
    made.clear()  # pytest has it for a while longer


def keys(rows: list[LiveThing]) -> set[int]:
    return {row.key for row in rows}


def test_filters(some: dict[str, Any]) -> None:
    a, b = some["a"].key, some["b"].key
    assert keys(live(kind="array")) == {a, b}
    assert keys(live(kind="arr*", label="chunk ?")) == {a, b}
    assert keys(live(label="chunk 2")) == {b}
    assert keys(live(kind="array", min_nbytes=101)) == {b}
    assert keys(live(device="host:0")) == {a, b, some["device"].key, some["view"].key}
    assert keys(live(device="elsewhere")) == {some["context"].key, some["stream"].key}
    assert keys(live(scope="epoch")) == {a}
    assert keys(live(scope="epoch/step 1")) == {a}
    assert live(scope="step 1") == []
    assert {a, b} <= keys(live(made_at="test_ledger.py"))
    assert live(made_at="somewhere else.py") == []
    assert live(older_than=3600) == []
    assert {a, b} <= keys(live(thread="Main*", state="live"))


def test_depth_does_not_matter() -> None:
    with History() as history:
        chain = [Lifetime("c", kind="context", label="far above")]
        for _ in range(3000):
            chain.append(Lifetime("x", kind="deep", parents=chain[-1:]))
    assert {row.device for row in live(kind="deep")} == {"far above"}
    assert snapshot()[-1].device == "far above"
    assert row_of(cells[chain[-1].key]).device == "far above"
    assert history.recording().sites[-1].device == "far above"
    first = chain[1].key
    del chain[1:-1]
    assert why(first).reason == "child"


def test_a_row_says_what_holds_a_thing(some: dict[str, Any]) -> None:
    (row,) = live(label="chunk 1")
    assert (row.pins, row.children, row.pending, row.exports) == (1, 1, 0, 0)
    assert row.parents == (some["device"].key,)
    assert row.name == f"array 'chunk 1' #{row.key}"
    some["pin"].__exit__()


def test_groups(some: dict[str, Any]) -> None:
    found = group(live(kind="array"), by="kind")
    assert [(each.key, each.count, each.nbytes) for each in found] == [("array", 2, 400)]
    assert [each.key for each in group(live(kind="array"), by=("device", "label"))] == [
        "host:0, chunk 2",
        "host:0, chunk 1",
    ]
    with pytest.raises(ValueError, match=r"'kind'.*not by 'colour'"):
        group([], by="colour")


def test_columns_and_rows_say_the_same(some: dict[str, Any]) -> None:
    rows, columns = live(), snapshot()
    assert len(columns) == len(rows)
    assert columns.total_bytes == sum(row.nbytes for row in rows)
    for row, other in zip(rows, columns, strict=True):
        assert {name: getattr(row, name) for name in LiveThing.__slots__ if name != "age"} == {
            name: getattr(other, name) for name in LiveThing.__slots__ if name != "age"
        }
        assert (row.age is None) == (other.age is None)
    assert keys(columns.where(label="chunk 2")) == {some["b"].key}
    assert keys(list(columns.without([some["b"].key]))) == keys(rows) - {some["b"].key}
    assert list(of_rows(list(columns))) == list(columns)


def test_a_snapshot_survives_json(some: dict[str, Any]) -> None:
    before = snapshot()
    again = Snapshot.from_dict(json.loads(json.dumps(before.as_dict(), allow_nan=False)))
    assert [(row.key, row.stack, row.parents, row.state) for row in again] == [
        (row.key, row.stack, row.parents, row.state) for row in before
    ]
    assert not diff(before, again).added


@pytest.mark.parametrize("column", ["keys", "kinds", "nbytes", "stack", "parents", "states", "ages"])
def test_a_snapshot_with_a_short_column_is_refused(some: dict[str, Any], column: str) -> None:
    content = snapshot().as_dict()
    content[column] = content[column][:-1]
    with pytest.raises(ValueError, match="do not fit"):
        Snapshot.from_dict(content)


def test_without_recording_the_columns_are_empty() -> None:
    least = record_at_least("off")
    x = Lifetime("x", label="unrecorded")
    record_at_least(*least)
    (row,) = snapshot().where(label="unrecorded")
    assert (row.origin, row.age, row.thread, row.scope, row.stack) == (None, None, None, None, ())
    assert x.key == row.key


def test_a_difference_is_what_came_and_what_went(lines: None) -> None:
    stays, goes = Lifetime("stays", nbytes=1), Lifetime("goes", kind="buffer", nbytes=10)
    before = snapshot()
    key = goes.key
    del goes
    comes = [Lifetime("comes", kind="buffer", nbytes=7) for _ in range(3)]
    found = diff(before, snapshot())
    assert found.same_process
    assert keys(list(found.added)) == {each.key for each in comes}
    assert keys(list(found.removed)) == {key}
    assert found.grown
    (growth,) = found.by("kind")
    assert (growth.key, growth.count, growth.nbytes) == ("buffer", 2, 11)
    assert not diff(before, before).grown
    assert diff(before, before).by() == []
    del stays


def test_snapshots_of_two_runs_are_compared_by_what_rows_have_in_common(lines: None) -> None:
    def run(count: int) -> dict[str, Any]:
        kept = [Lifetime(n, kind="buffer", nbytes=5) for n in range(count)]
        rows = [row for row in snapshot() if row.key in {each.key for each in kept}]
        return of_rows(rows).as_dict()

    one, two = run(2), run(3)
    one["process"] = "another run"
    before, after = Snapshot.from_dict(one), Snapshot.from_dict(two)
    found = diff(before, after)
    assert not found.same_process
    assert found.added == ()
    assert [(each.count, each.nbytes) for each in found.by()] == [(1, 5)]
    assert found.grown
    assert not diff(after, before).grown


def test_rows_can_be_read_in_a_signal_handler_while_others_make_and_drop() -> None:
    """No locks are taken: a handler that interrupts the library reads all the same."""
    seen: list[int] = []
    stop = threading.Event()

    def churn() -> None:
        number = random.Random(7)
        kept: list[Lifetime[int]] = []
        while not stop.is_set():
            kept.append(Lifetime(1, parents=kept[-1:] if number.random() < 0.3 else ()))
            if len(kept) > 20:
                kept.clear()

    thread = threading.Thread(target=churn)
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(len(live()) + len(snapshot())))
    thread.start()
    try:
        for _ in range(50):
            x = Lifetime("x")
            signal.raise_signal(signal.SIGUSR1)
            del x
    finally:
        stop.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert len(seen) == 50
