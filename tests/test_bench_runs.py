"""Whole runs of the benchmark harness, each in a process of its own: exit status, table, JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bench.__main__
from tests.test_bench import check_document

ROOT = Path(__file__).parent.parent


PLANTED = {
    "bench_good.py": '''
def nothing(rounds):
    for _ in rounds:
        pass

def work(rounds):
    for _ in rounds:
        sum(range(1000))

def bench_fast(compare):
    """fast enough"""
    compare(nothing, work, bar=2)

def bench_told(compare):
    compare(work, nothing)

def bench_alone(compare):
    """no peer"""
    compare(nothing, limit=1.0)
''',
    "bench_slow.py": '''
from bench_good import nothing, work

def bench_slow(compare):
    """too slow"""
    compare(work, nothing, bar=2)
''',
    "bench_absent.py": '''
from bench.peers import require

def bench_absent(compare):
    """without its peer"""
    require("no_such_peer")
''',
    "bench_broken.py": """
def bench_raises(compare):
    raise ValueError("planted")

def bench_forgets(compare):
    pass
""",
}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    for name, source in PLANTED.items():
        (folder / name).write_text(source)
    return folder


def run_bench(*arguments: object, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    # Nothing of the pytest that runs this test; and the planted files find each other.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COLUMNS"))}
    if folder is not None:
        environment["PYTHONPATH"] = str(folder)
        arguments = ("--folder", folder, "--results", folder / "results", *arguments)
    command = [sys.executable, "-m", "bench", "--seconds", "0", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100)


def the_only_result(folder: Path) -> dict[str, Any]:
    (path,) = (folder / "results").glob("*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    path.unlink()
    return found


def test_a_run_below_a_bar_ends_non_zero(planted: Path) -> None:
    stored = planted / "stored.json"
    done = run_bench("--", "--benchmark-json", stored, folder=planted)
    assert done.returncode == 1, done.stdout + done.stderr
    found = the_only_result(planted)
    check_document(found)
    rows = {row["name"]: row for row in found["rows"]}
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "bench_absent": "skipped",
        "bench_raises": "error",
        "bench_forgets": "error",
        "bench_fast": "met",
        "bench_told": "reported",
        "bench_alone": "met",
        "bench_slow": "missed",
    }
    assert rows["bench_absent"]["reason"] == "no_such_peer is not installed; make bench installs it"
    assert rows["bench_raises"]["reason"] == "ValueError: planted"
    assert "measured nothing" in rows["bench_forgets"]["reason"]
    assert rows["bench_fast"]["title"] == "fast enough"
    assert rows["bench_fast"]["ours"]["label"] == "nothing"
    assert rows["bench_fast"]["peer"]["rounds"] >= 11
    assert rows["bench_alone"]["peer"] is None
    said = done.stdout
    assert said.rindex(" passed, ") < said.rindex("fast enough"), "the table comes last"
    assert "skipped: no_such_peer is not installed" in " ".join(said.replace("│", " ").split())
    kept = json.loads(stored.read_text())["benchmarks"]
    assert {(each["group"], each["name"]) for each in kept} >= {
        ("fast enough", "bench_fast: nothing"),
        ("fast enough", "bench_fast: work"),
    }


def test_one_file_runs_by_its_name_and_ends_well(planted: Path) -> None:
    done = run_bench("good", "bench_absent.py", folder=planted)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["file"] for row in the_only_result(planted)["rows"]] == ["bench_good.py"] * 3 + ["bench_absent.py"]


def test_of_one_file_alone_the_study_is_published_after_the_rows(tmp_path: Path) -> None:
    (tmp_path / "bench_good.py").write_text(PLANTED["bench_good.py"])
    (tmp_path / "bench_other.py").write_text(PLANTED["bench_good.py"])
    (tmp_path / "study_good.py").write_text("def publish():\n    print('published')\n")
    for words, published in ((["good"], True), (["good", "--", "-k", "fast"], False), (["good", "other"], False)):
        done = run_bench(*words, folder=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.endswith("measuring for the manual\npublished\n") is published
        the_only_result(tmp_path)


def test_a_slow_row_alone_ends_non_zero(planted: Path) -> None:
    done = run_bench("slow", folder=planted)
    assert done.returncode == 1
    assert "of the peer's time is above the bar of 2x" in done.stdout
    the_only_result(planted)


def test_an_unknown_name_says_what_there_is(planted: Path) -> None:
    done = run_bench("life", folder=planted)
    assert done.returncode == 2
    assert "there is no bench 'life'; there are absent, broken, good, slow" in done.stderr


def test_without_the_extra_it_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench.__main__, "find_spec", lambda name: None if name == "pytest_benchmark" else object())
    with pytest.raises(SystemExit) as ended:
        bench.__main__.main([])
    assert ended.value.code == 2
    assert "pytest_benchmark is not installed; make bench, or pip install -e '.[bench]'" in capsys.readouterr().err


def test_the_rows_of_this_tree_run(tmp_path: Path) -> None:
    """Whatever they come to; those that need minutes or gigabytes are left to `make bench`."""
    done = run_bench("lifetime", "use", "pool", "--results", tmp_path / "results")
    rows = the_only_result(tmp_path)["rows"]
    assert len(rows) == 7
    assert {row["verdict"] for row in rows} <= {"met", "missed", "reported", "skipped"}, done.stdout + done.stderr
