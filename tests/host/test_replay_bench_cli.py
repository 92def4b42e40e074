"""`lifetimes bench`: every part measures something, and says so for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from lifetimes import policies, tables
from lifetimes.cli import main
from lifetimes.cli.bench_measure import measure
from lifetimes.cli.bench_parts import PARTS

SHORT = ("--seconds", "0.001", "--keys", "200")


def test_every_part_measures_something(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *SHORT, "--json"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    found = json.loads(output.out)
    figures = {(each["part"], each["subject"], each["operation"]): each for each in found["figures"]}
    assert all(0 < each["seconds"] < 1 for each in found["figures"])
    assert {("policies", name, "touch") for name in policies.names()} <= figures.keys()
    assert {("tables", name, "floor") for name in tables.names(ordered=True)} <= figures.keys()
    assert ("tables", "dict", "floor") not in figures
    assert figures["eviction", "host", "evict and reload"]["nbytes"] == 8 << 20
    assert {each["part"] for each in found["figures"]} >= set(PARTS)


def test_some_of_it_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "pool", "tables", *SHORT]) == 0
    output = capsys.readouterr().out
    assert "take and give" in output
    assert "tables of 200 random keys" in output
    assert "policies" not in output


def test_a_device_that_cannot_be_seen_has_nothing_to_launch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "launch", "pool", "--backend", "null", *SHORT]) == 0
    assert "launch: nothing to measure on 'null'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["tabels"], "there is no part 'tabels'; did you mean tables?"),
        (["--backend", "hots"], "no back end is called 'hots'; did you mean host?"),
        (["--keys", "0"], "give 1 or more, not 0"),
        (["--keys", "many"], "invalid positive value: 'many'"),
        (["--seconds", "0"], "give a number of seconds above 0"),
        (["--seconds", "nan"], "give a number of seconds above 0"),
    ],
)
def test_bad_input_is_one_line(words: list[str], fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words]) == 2
    output = capsys.readouterr()
    assert fault in output.err
    assert output.err.count("\n") == 1
    assert output.out == ""


def test_the_figure_is_the_median_of_rounds_that_are_long_enough() -> None:
    """A clock that only the loop moves: 1 us an operation, and every third round a neighbour who takes a second."""
    now, rounds = 0.0, []

    def clock() -> float:
        return now

    def loop(iterations: Iterator[None]) -> None:
        nonlocal now
        count = len(list(iterations))
        rounds.append(count)
        now += count * 1e-6 + (len(rounds) % 3 == 0 and count >= 2000)

    assert measure(loop, 0.05, clock=clock) == pytest.approx(1e-6)
    assert rounds[-1] >= 2000
