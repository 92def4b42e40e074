"""The benchmark harness: order, medians, ratio and verdict, and what is written.  No test looks at the time."""

from __future__ import annotations

import doctest
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import bench.harness
import bench.row
from bench.harness import RERUNS, Compare, Harness
from bench.measure import BUSY_ABOVE, Measured, Plan, Spin, calibrate, interleave
from bench.report import document, show
from bench.row import MET, MISSED, REPORTED, SKIPPED, Row


class FakeClock:
    """Stands still; the loops move it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def __call__(self) -> float:
        return self.now

    def loop(self, name: str, seconds: float) -> Callable[[Iterator[None]], None]:
        """A loop whose operation takes so long by this clock."""

        def run(rounds: Iterator[None]) -> None:
            self.log.append(name)
            for _ in rounds:
                self.now += seconds

        return run


class FakeSpin(Spin):
    """Takes no time, and says how busy the machine is, one answer a row."""

    def __init__(self, *slowdowns: float) -> None:
        self.best = 1.0
        self.slowdowns = list(slowdowns)

    def once(self) -> float:
        return 1.0

    def slowdown(self, spins: Sequence[float]) -> float:
        return self.slowdowns.pop(0) if self.slowdowns else 1.0


def measured(ours: float, peer: float | None) -> Measured:
    return Measured(1, 1, [ours, ours * 3, ours / 2], [] if peer is None else [peer, peer * 3, peer / 2])


# Measuring.


def test_ours_and_the_peer_run_in_turn() -> None:
    clock = FakeClock()
    plan = Plan(round_seconds=1.0, row_seconds=20.0)
    got = interleave(clock.loop("ours", 0.003), clock.loop("peer", 0.001), plan, FakeSpin(), clock)
    assert (got.ours_iterations, got.peer_iterations) == (333, 1000)
    assert len(got.ours) == len(got.peer) == 11
    assert clock.log[-22:] == ["ours", "peer"] * 11
    assert got.ours_median == pytest.approx(0.003)
    assert got.peer_median == pytest.approx(0.001)


def test_a_row_that_takes_too_long_makes_do_with_fewer_rounds() -> None:
    clock = FakeClock()
    calm = clock.loop("ours", 0.003)

    def slowing(rounds: Iterator[None]) -> None:
        clock.now += len(clock.log)  # each round takes a second longer than the one before
        calm(rounds)

    got = interleave(slowing, None, Plan(1.0, 60.0, fewest=3), FakeSpin(), clock)
    assert 3 <= len(got.ours) < 31
    assert len(got.ours) % 2


def test_a_median_is_not_moved_by_a_bad_round() -> None:
    got = Measured(1, 1, ours=[1.0, 50.0, 1.2], peer=[2.0, 2.0, 90.0])
    assert (got.ours_median, got.peer_median) == (1.2, 2.0)


def test_a_row_without_a_peer_is_measured_alone() -> None:
    clock = FakeClock()
    got = interleave(clock.loop("ours", 0.003), None, Plan(1.0, 20.0), FakeSpin(), clock)
    assert set(clock.log) == {"ours"}
    assert got.peer_median is None


@pytest.mark.parametrize("cost", [1e-5, 0.003, 0.9, 60.0])
def test_calibration_fills_a_round(cost: float) -> None:
    clock = FakeClock()
    iterations = calibrate(clock.loop("x", cost), 1.0, clock)
    assert iterations == max(1, round(1.0 / cost))


def test_calibration_is_not_fooled_by_one_disturbed_timing() -> None:
    clock = FakeClock()
    calm = clock.loop("x", 0.001)

    def disturbed(rounds: Iterator[None]) -> None:
        if len(clock.log) == 1:
            clock.now += 5.0
        calm(rounds)

    assert calibrate(disturbed, 1.0, clock) == 1000


@pytest.mark.parametrize(
    ("one_pair", "rounds"), [(0.0, 101), (1e-9, 101), (0.05, 21), (0.1, 11), (7.0, 5)], ids=lambda value: str(value)
)
def test_the_rounds_fit_the_time_and_are_odd(one_pair: float, rounds: int) -> None:
    assert Plan(row_seconds=1.0, fewest=4, most=100).rounds(one_pair) == rounds


def test_spins_tell_a_busy_machine() -> None:
    clock = FakeClock()
    costs = iter([5.0, 4.0, 4.0])

    class Planted(Spin):
        def once(self) -> float:
            return next(costs)

    spin = Planted(clock, tries=3)
    assert spin.best == 4.0
    costs = iter([4.0, 10.0, 4.0])
    spins = spin.for_about(12.0)
    assert spins == [4.0, 10.0, 4.0]
    assert spin.slowdown(spins) == 1.5 > BUSY_ABOVE
    assert spin.slowdown([]) == 1.0


# The verdict.


@pytest.mark.parametrize(
    ("ours", "peer", "bars", "ratio", "verdict"),
    [
        (3.0, 2.0, {"bar": 1.5}, 1.5, MET),
        (3.1, 2.0, {"bar": 1.5}, 1.55, MISSED),
        (3.1, 2.0, {}, 1.55, REPORTED),
        (2.5, 2.0, {"bar": 0.8, "nbytes": 10}, 0.8, MET),
        (2.6, 2.0, {"bar": 0.8, "nbytes": 10}, 2 / 2.6, MISSED),
        (1.0, 2.0, {"bar": 0.8, "nbytes": 10}, 2.0, MET),
        (2.0, 2.0, {"limit": 2.0}, 1.0, MET),
        (2.1, 2.0, {"bar": 1.5, "limit": 2.0}, 1.05, MISSED),
        (2.0, 1.0, {"bar": 1.5, "limit": 2.0}, 2.0, MISSED),
        (2.0, None, {"bar": 1.5, "limit": 2.0}, None, MET),
        (2.1, None, {"limit": 2.0}, None, MISSED),
    ],
)
def test_the_verdict(ours: float, peer: float | None, bars: dict[str, Any], ratio: float | None, verdict: str) -> None:
    row = Row("bench_x", "x", "bench_x.py", **bars)
    row.take(measured(ours, peer), "ours", "peer", 1.0)
    assert row.ratio == (None if ratio is None else pytest.approx(ratio))
    assert row.verdict == verdict
    assert bool(row.reason) == (verdict == MISSED)


def test_what_is_missed_is_said() -> None:
    row = Row("bench_x", "x", "bench_x.py", bar=5, limit=2.5e-6)
    row.take(measured(3e-6, 5e-7), "ours", "peer", 1.0)
    assert row.reason == "6.00x of the peer's time is above the bar of 5x; 3 us is above the bar of 2.5 us"
    assert row.bars == "<= 5x, <= 2.5 us"
    rates = Row("bench_y", "y", "bench_y.py", bar=0.8, nbytes=2**30)
    rates.take(measured(2.0, 1.0), "ours", "peer", 1.0)
    assert rates.reason == "0.50x of the peer's rate is below the bar of 0.8x"
    assert (rates.show(rates.ours), rates.bars) == ("512 MiB/s", ">= 0.8x")


def test_the_examples_run() -> None:
    assert doctest.testmod(bench.row).failed == 0


# Measuring again.


class Measurements:
    """Planted instead of `interleave`: the figures of one measurement after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *figures: tuple[float, float]) -> None:
        self.figures = list(figures)
        monkeypatch.setattr(bench.harness, "interleave", lambda *_: measured(*self.figures.pop(0)))


def comparing(spin: FakeSpin) -> tuple[Compare, Row, list[Any]]:
    row = Row("bench_x", "x", "bench_x.py")
    kept: list[Any] = []

    def make_stats(iterations: int) -> Any:
        stats = SimpleNamespace(iterations=iterations, name=benchmark.name, rounds=[])
        stats.update = stats.rounds.append
        kept.append(stats)
        return stats

    benchmark = SimpleNamespace(_make_stats=make_stats, name="")
    return Compare(Harness(Plan(), spin), row, benchmark), row, kept


def ours(rounds: Iterator[None]) -> None: ...


def the_peer(rounds: Iterator[None]) -> None: ...


def test_a_missed_bar_on_a_quiet_machine_counts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    Measurements(monkeypatch, (9.0, 1.0))
    compare, row, _ = comparing(FakeSpin(1.0))
    with pytest.raises(pytest.fail.Exception, match=r"9\.00x of the peer's time is above the bar of 2x$"):
        compare(ours, the_peer, bar=2)
    assert len(row.attempts) == 1


def test_a_missed_bar_on_a_busy_machine_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    Measurements(monkeypatch, (9.0, 1.0), (8.0, 1.0), (1.0, 1.0))
    compare, row, _ = comparing(FakeSpin(2.0, 2.0, 2.0))
    compare(ours, the_peer, bar=2)
    assert row.verdict == MET
    assert [attempt["ratio"] for attempt in row.attempts] == [9.0, 8.0, 1.0]


def test_it_counts_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = Measurements(monkeypatch, *[(9.0, 1.0)] * 10)
    compare, row, _ = comparing(FakeSpin(*[2.0] * 10))
    with pytest.raises(pytest.fail.Exception, match=f"busy machine, measured {1 + RERUNS} times"):
        compare(ours, the_peer, bar=2)
    assert len(row.attempts) == 1 + RERUNS == 10 - len(figures.figures)


def test_it_counts_as_soon_as_the_machine_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    Measurements(monkeypatch, (9.0, 1.0), (9.0, 1.0))
    compare, row, _ = comparing(FakeSpin(2.0, 1.0))
    with pytest.raises(pytest.fail.Exception, match=r"of 2x$"):
        compare(ours, the_peer, bar=2)
    assert [attempt["busy"] for attempt in row.attempts] == [True, False]


def test_pytest_benchmark_is_given_both_series(monkeypatch: pytest.MonkeyPatch) -> None:
    Measurements(monkeypatch, (4.0, 2.0))
    compare, _, kept = comparing(FakeSpin())
    compare(ours, the_peer)
    assert [stats.name for stats in kept] == ["bench_x: ours", "bench_x: the peer"]
    assert [stats.rounds for stats in kept] == [[4.0, 12.0, 2.0], [2.0, 6.0, 1.0]]
    with pytest.raises(RuntimeError, match="once"):
        compare(ours, the_peer)


# The document and the table.

SIDE = {"label": str, "median_seconds": float, "best_seconds": float, "rounds": int, "iterations": int, "seconds": list}
ROW = {
    "name": str,
    "title": str,
    "file": str,
    "verdict": str,
    "reason": str,
    "ratio": (float, type(None)),
    "ratio_of": str,
    "bar": (float, int, type(None)),
    "limit_seconds": (float, type(None)),
    "bytes": int,
    "ours": (dict, type(None)),
    "peer": (dict, type(None)),
    "busy": bool,
    "slowdown": float,
    "attempts": list,
}
DOCUMENT = {"schema": int, "date": str, "machine": dict, "busy": bool, "versions": dict, "rows": list}
MACHINE = {"cpu": str, "cores": int, "load": (list, type(None)), "system": str, "python": str}


def check(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert list(found) == list(wanted)
    for name, kind in wanted.items():
        assert isinstance(found[name], kind), f"{name} is {found[name]!r}"


def check_document(found: dict[str, Any]) -> None:
    check(found, DOCUMENT)
    check(found["machine"], MACHINE)
    assert {"device-lifetimes", "numpy", "pytest-benchmark"} <= set(found["versions"])
    for row in found["rows"]:
        check(row, ROW)
        for side in (row["ours"], row["peer"]):
            if side is not None:
                check(side, SIDE)
                assert side["rounds"] == len(side["seconds"])


def some_rows() -> list[Row]:
    good = Row("bench_good", "a good one", "bench_a.py", bar=1.5)
    good.take(measured(1e-6, 1e-6), "ours", "the peer", 1.0)
    bad = Row("bench_bad", "a bad one", "bench_a.py", bar=1.5)
    bad.take(measured(4e-6, 1e-6), "ours", "the peer", 2.0)
    absent = Row("bench_absent", "an absent one", "bench_b.py")
    absent.trouble = SKIPPED, "zict is not installed; make bench installs it"
    return [good, bad, absent]


def test_the_document_keeps_its_shape() -> None:
    found = document(some_rows(), datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC))
    check_document(json.loads(json.dumps(found)))
    assert found["date"] == "2030-01-02T03:04:05+00:00"
    assert found["busy"] is True
    assert [row["verdict"] for row in found["rows"]] == [MET, MISSED, SKIPPED]


def test_the_table_says_it_in_words() -> None:
    out = StringIO()
    show(some_rows(), Console(file=out, width=160))
    said = out.getvalue()
    for words in (
        "4.00x",
        "<= 1.5x",
        "missed: 4.00x of the peer's time is above the bar of 1.5x *",
        "skipped: zict is not installed; make bench installs it",
        "busy during 1 of 3 rows",
    ):
        assert words in " ".join(said.replace("│", " ").split()), said
