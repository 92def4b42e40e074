"""Bytes over time: against a slow oracle, and when events interrupt each other."""

from __future__ import annotations

import gc
import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lifetimes
from lifetimes import Lifetime, instrument
from lifetimes.leaks import History
from lifetimes.leaks.chrome import as_chrome
from lifetimes.leaks.recording import Recording, Site


def site(kind: str, nbytes: int) -> Site:
    return Site(kind, f"of {nbytes}", None, nbytes, "", "MainThread", ("a.py:1 in f",) if nbytes % 2 else ())


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50), st.booleans()), max_size=40))
def test_against_an_oracle(steps: list[tuple[str, int, bool]]) -> None:
    """Each step makes a thing, or releases the oldest."""
    recording = Recording()
    alive: dict[int, tuple[str, int]] = {}
    totals, kinds = [], []
    for number, (kind, nbytes, makes) in enumerate(steps):
        if makes or not alive:
            alive[recording.make(number / 10, 100 + number, site(kind, nbytes))] = (kind, nbytes)
        else:
            oldest = min(alive)
            del alive[oldest]
            recording.release(number / 10, oldest)
        totals.append(sum(nbytes for _, nbytes in alive.values()))
        kinds.append({kind: sum(n for k, n in alive.values() if k == kind) for kind in "abc"})
    assert list(recording.totals()) == totals
    series = recording.series("kind")
    for kind in "abc":
        assert list(series.get(kind, [0] * len(steps))) == [each[kind] for each in kinds]
    if steps:
        assert recording.peak.nbytes == max(totals)
        assert recording.peak.event == totals.index(max(totals))
    assert sorted(recording.alive_after(len(steps) - 1)) == sorted(alive)
    assert sum(held.nbytes for held in recording.held(alive)) == (totals[-1] if totals else 0)
    again = Recording.from_dict(json.loads(json.dumps(recording.as_dict())))
    assert (list(again.events), list(again.keys), again.sites) == (
        list(recording.events),
        list(recording.keys),
        recording.sites,
    )
    assert list(again.times) == pytest.approx(list(recording.times), abs=1e-6)
    assert sorted(check_trace(as_chrome(recording))) == sorted(recording.keys[number] for number in alive)


def check_trace(trace: dict[str, Any]) -> list[int]:
    """What the format demands: each bar that ends has begun, times do not go back, every event names its process.

    Returns the keys of what has not ended.
    """
    begun: list[tuple[str, int, str]] = []
    last = 0.0
    for event in trace["traceEvents"]:
        assert "pid" in event
        assert event["ph"] in "MbeC"
        if event["ph"] == "M":
            continue
        assert isinstance(event["ts"], (int, float))
        assert event["ts"] >= last
        last = event["ts"]
        if event["ph"] == "b":
            begun.append((event["cat"], event["id"], event["name"]))
        elif event["ph"] == "e":
            begun.remove((event["cat"], event["id"], event["name"]))
        else:
            assert all(value >= 0 for value in event["args"].values())
    json.dumps(trace)
    return [key for _, key, _ in begun]


def test_what_is_alive_at_the_start_counts() -> None:
    before = Lifetime("x", kind="early", nbytes=10)
    with History() as history:
        late = Lifetime("y", kind="late", nbytes=5)
        del late
        recording = history.recording()
        assert recording.series("kind")["early"][-1] == 10
        assert recording.series("kind")["late"][-1] == 0
        del before
    recording = history.recording()
    assert recording.series("kind")["early"][-1] == 0
    assert recording.peak.nbytes - recording.total_at(0.0) == 5


def test_it_hears_nothing_before_its_start_and_after_its_end() -> None:
    watchers = list(instrument.watchers)
    history = History()
    with history:
        history.start()
        count = len(history.recording().events)
    Lifetime("x")
    assert len(history.recording().events) == count
    assert instrument.watchers == watchers


def test_a_detached_thing_is_no_longer_held() -> None:
    with History() as history:
        x = Lifetime("x", kind="given away", nbytes=3)
        x.detach()
    assert list(history.recording().series("kind")["given away"])[-2:] == [3, 0]


def test_a_full_history_stops_and_says_so() -> None:
    with History(limit=10) as history:
        start = len(history.recording().events)
        for _ in range(20):
            Lifetime("x", nbytes=1)
    recording = history.recording()
    assert len(recording.events) == max(10, start)
    assert recording.lost == start + 40 - len(recording.events)
    assert all(total >= 0 for total in recording.totals())


def test_threads_and_collections_do_not_tear_events_apart() -> None:
    def work() -> None:
        for _ in range(300):
            cycle: list[object] = [Lifetime("x", kind="torn", nbytes=8)]
            cycle.append(cycle)

    threshold = gc.get_threshold()
    gc.set_threshold(20)
    try:
        with History() as history:
            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            gc.collect()
            lifetimes.drain()
    finally:
        gc.set_threshold(*threshold)
    series = history.recording().series("kind")["torn"]
    assert series[-1] == 0
    assert min(series) == 0
    assert max(series) > 0
