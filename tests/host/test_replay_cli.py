"""`lifetimes replay`: from the command line to the table, the JSON, the plot, and one line for every bad input."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lifetimes.cli import main

MINE = """
from lifetimes.policies.lru import LRUPolicy

class Newest(LRUPolicy):
    def candidates(self):
        yield from reversed(list(super().candidates()))
"""


@pytest.fixture
def trace(tmp_path: Path) -> str:
    random = Random(5)
    lines = [f"{n},{int(random.triangular(0, 40, 0))},4096" for n in range(600)]
    path = tmp_path / "uses.csv"
    path.write_text("\n".join(["time,key,nbytes", *lines, ""]))
    return str(path)


def replay(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["replay", *words])
    output = capsys.readouterr()
    return status, output.out, output.err


def figures(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    status, out, err = replay(capsys, *words, "--json")
    assert (status, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def test_it_allocates_uploads_and_compares(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = replay(capsys, trace, "--limit", "64KiB")
    assert (status, err) == (0, "")
    assert "uses.csv: 600 uses of" in out
    assert "64 KiB dict  lru" in out
    assert "content: 16 arrays compared, each holds what it should" in out


def test_the_simulated_device_is_one_too(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = figures(capsys, trace, "--backend", "sim", "--limit", "64KiB", "--op", "rw")
    (run,) = found["runs"]
    assert (run["backend"], run["wrong"]) == ("sim", 0)
    assert run["copybacks"] > 50


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("quiet", [False, True])
def test_who_watches_sees_how_far_it_is(trace: str, monkeypatch: pytest.MonkeyPatch, quiet: bool) -> None:
    watched = Terminal()
    monkeypatch.setattr(sys, "stderr", watched)
    words = ["replay", trace, "--backend", "null", "--limit", "64KiB", *(["--quiet"] if quiet else [])]
    assert main(words) == 0
    assert ("lru, dict, 65,536 bytes" in watched.getvalue()) is not quiet
    assert bool(watched.getvalue()) is not quiet


def test_every_combination_is_a_row(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "--backend",
        "null",
        "--table",
        "dict,judy",
        "--policy",
        "lru, sieve,belady",
        "--limit",
        "128KiB,25%,64KiB",
    )
    found = figures(capsys, trace, *words)
    rows = [(run["limit"], run["table"], run["policy"]) for run in found["runs"]]
    quarter = found["trace"]["footprint_bytes"] // 4
    limits = sorted({65536, 131072, quarter})
    assert rows == [(limit, table, policy) for limit in limits for table in ("dict", "judy")
                    for policy in ("lru", "sieve", "belady")]  # fmt: skip
    for run in found["runs"]:
        assert run["hits"] + run["misses"] == run["uses"] == 600
        assert run["seconds"] > 0
        assert 0 <= run["lookup_share"] < 1
        assert run["upload_bytes"] == run["uploads"] * 4096
        assert run["checked"] == 0
    misses = {(run["limit"], run["policy"]): run["misses"] for run in found["runs"]}
    assert all(misses[limit, "belady"] <= misses[limit, "lru"] for limit in limits)
    assert misses[65536, "lru"] > misses[131072, "lru"]


def test_uses_that_write_are_copied_back(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = figures(capsys, trace, "--limit", "64KiB", "--op", "rw")["runs"]
    assert run["copybacks"] > 50
    assert (run["wrong"], run["checked"]) == (
        0,
        len({line.split(",")[1] for line in Path(trace).read_text().splitlines()}) - 1,
    )


def test_a_log_of_rmm_in_gzip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["Thread,Time,Action,Pointer,Size,Stream"]
    for n in range(60):
        lines.append(f"1,10:00,allocate,{0x1000 * (n + 1):#x},4096,0")
        if n >= 30:
            lines.append(f"1,10:00,free,{0x1000 * (n - 29):#x},4096,0")
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    found = figures(capsys, str(path), "--limit", "64KiB")
    assert found["trace"]["kind"] == "allocations"
    assert found["trace"]["footprint_bytes"] == 31 * 4096
    (run,) = found["runs"]
    assert run["copybacks"] > 10
    assert (run["checked"], run["wrong"]) == (30, 0)
    status, out, _ = replay(capsys, str(path), "--limit", "64KiB")
    assert status == 0
    assert "90 allocations and frees of 60 arrays, 124 KiB at most allocated at once" in out


def test_a_plot_has_belady_beside_the_policies(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "misses.svg"
    found = figures(capsys, trace, "--backend", "null", "--policy", "lru,clock", "--plot", str(picture))
    text = picture.read_text()
    assert all(word in text for word in ("belady", "lru", "clock", "uses.csv"))
    assert len({run["limit"] for run in found["runs"]}) >= 5


def test_the_line_of_a_plot_is_that_of_who_knows_the_future(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr("lifetimes.cli.replay.check_plot_file", lambda path: None)
    monkeypatch.setattr("lifetimes.cli.replay.plot_curves", lambda curves, path, title: drawn.append(curves))
    words = ("--backend", "null", "--limit", "64KiB,96KiB", "--plot", str(tmp_path / "misses.svg"))
    asked = figures(capsys, trace, *words, "--policy", "lru,belady", "--table", "judy,dict")
    ratios = {(run["policy"], run["limit"]): run["miss_ratio"] for run in asked["runs"]}
    figures(capsys, trace, *words)
    for curves in drawn:
        assert {(name, limit): ratio for name, points in curves.items() for limit, ratio in points} == ratios
    assert all(ratios["belady", limit] < ratios["lru", limit] for limit in (65536, 98304))


def test_a_policy_from_where_the_user_stands(trace: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    words = ["replay", trace, "--backend", "null", "--policy", "mine:Newest,lru", "--limit", "64KiB", "--json"]
    code = f"import sys; sys.path.remove(''); from lifetimes.cli import main; sys.exit(main({words!r}))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    newest, lru = (run["misses"] for run in json.loads(done.stdout)["runs"])
    assert newest != lru


def test_malformed_lines_stop_it_or_are_counted(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    with open(trace, "a") as file:
        file.write("time,key,nbytes\n1,2\n1,2,3,4\n")
    status, out, err = replay(capsys, trace)
    assert (status, out) == (2, "")
    assert err.startswith("lifetimes replay: ")
    assert "line 602 repeats the header" in err
    assert err.count("\n") == 1
    status, out, err = replay(capsys, trace, "--skip-bad-lines", "--limit", "64KiB")
    assert (status, err) == (0, "")
    assert "passed over: 3 malformed lines" in out


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--policy", "lur"], "--policy: unknown policy 'lur': there are lru, clock"),
        (["--policy", "lru,,sieve"], "--policy: 'lru,,sieve' has an empty name"),
        (["--policy", "no.such:Policy"], "--policy: 'no.such:Policy' cannot be imported"),
        (["--policy", "math:pi"], "--policy: 'math:pi' is no policy"),
        (["--table", "jduy"], "--table: unknown table 'jduy'"),
        (["--limit", "64QiB"], "--limit: '64QiB' has no unit that is known"),
        (["--limit", "0"], "--limit: '0' leaves nothing"),
        (["--limit", "-5MiB"], "--limit: '-5MiB'"),
        (["--limit", "0%"], "--limit: '0%' is no share"),
        (["--limit", "9000TiB"], "--limit"),
        (["--backend", "nul"], "--backend: no back end is called 'nul'; did you mean null?"),
        (["--op", "x"], "argument --op: invalid choice: 'x'"),
        (["--plot", "misses.txt"], "--plot: 'misses.txt' ends in none of .svg"),
        (["--strict-sizes", "--trace"], "unrecognized arguments: --trace; did you mean"),
    ],
)
def test_bad_input_is_one_line(trace: str, capsys: pytest.CaptureFixture[str], words: list[str], fault: str) -> None:
    status, out, err = replay(capsys, trace, *words)
    assert (status, out) == (2, "")
    assert fault in err
    assert err.count("\n") == 1


def test_a_function_that_makes_no_policy_is_told_with_what_was_done(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = replay(capsys, trace, "--policy", "json:dumps")
    assert status == 2
    assert "; raised while the policy 'json:dumps' was made" in err


@pytest.mark.parametrize("columns", ["80", "40"])
def test_figures_stay_whole_beside_a_long_name_and_on_a_narrow_terminal(
    columns: str, trace: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    _, out, _ = replay(capsys, trace, "--policy", "lru,lifetimes.policies.lru:LRUPolicy", "--limit", "64KiB")
    assert "…" not in out
    assert all(line.endswith("%") for line in out.splitlines() if line.startswith("64 KiB"))
    assert out.count("64 KiB") >= 2
    assert columns == "40" or all(len(line) <= 80 for line in out.splitlines())


def test_a_trace_that_is_not_there_or_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path, fault in ((tmp_path / "none.csv", "No such file"), (tmp_path, "Is a directory")):
        status, _, err = replay(capsys, str(path))
        assert status == 2
        assert f"{str(path)!r} cannot be read: {fault}" in err
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    status, _, err = replay(capsys, str(empty))
    assert status == 2
    assert "it is empty" in err


def test_sizes_that_change_are_counted_or_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "changing.csv"
    path.write_text("time,key,nbytes\n1,7,64\n2,7,128\n3,8,64\n4,7,64\n")
    found = figures(capsys, str(path), "--limit", "64KiB")
    assert found["trace"]["size_changes"] == 2
    assert found["runs"][0]["replaced"] == 2
    status, _, err = replay(capsys, str(path), "--strict-sizes")
    assert status == 2
    assert "line 3 changes the size of key 7 from 64 to 128 bytes" in err
