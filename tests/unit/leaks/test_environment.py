"""Reports at exit and on a signal, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lifetimes.leaks.document import load
from lifetimes.leaks.environment import VARIABLES, write_report

PROGRAM = """
import os, signal, sys
if "handler" in sys.argv:
    signal.signal(signal.SIGUSR1, lambda *_: print("heard it first"))
import lifetimes
kept = [lifetimes.Lifetime("x", kind="buffer", nbytes=4096, label="held")]
if "signal" in sys.argv:
    os.kill(os.getpid(), signal.SIGUSR1)
if "chdir" in sys.argv:
    os.chdir("elsewhere")
gone = lifetimes.Lifetime("y", kind="buffer", nbytes=1)
del gone
print("done")
"""


def run(tmp_path: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return subprocess.run(
        [sys.executable, str(script), *words],
        env=clean | environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def test_nothing_by_default(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_a_report_at_exit(tmp_path: Path) -> None:
    done = run(tmp_path, LIFETIMES_STACKS="line", LIFETIMES_REPORT="stderr")
    assert done.stdout == "done\n"
    lines = done.stderr.splitlines()
    assert lines[0] == "1 alive at exit, 4 KiB"
    assert lines[1].startswith("  1 buffer 'held' #")
    assert lines[2] == "    made at program.py:6 in <module>"
    assert lines[3] == "    held by __main__.kept[0] (global)"


@pytest.mark.parametrize("ending", ["txt", "json", "html", "trace.json"])
def test_a_report_in_a_file(tmp_path: Path, ending: str) -> None:
    where = str(tmp_path / f"report-{{pid}}.{ending}")
    done = run(tmp_path, LIFETIMES_STACKS="full:4", LIFETIMES_REPORT=where, LIFETIMES_HISTORY="1")
    assert done.stderr == ""
    (path,) = tmp_path.glob("report-*")
    text = path.read_text()
    assert path.name.removeprefix("report-").partition(".")[0].isdecimal()
    assert "program.py" in text
    if ending == "json":
        report = load(path)
        assert [row.label for row in report.snapshot] == ["held"]
        assert report.recording is not None
        assert report.recording.peak.nbytes == 4097
    if ending == "trace.json":
        assert {event["ph"] for event in json.loads(text)["traceEvents"]} == {"M", "b", "C", "e"}


def test_a_report_on_a_signal(tmp_path: Path) -> None:
    done = run(tmp_path, "signal", LIFETIMES_STACKS="line", LIFETIMES_REPORT_SIGNAL="USR1")
    assert done.stdout == "done\n"
    assert done.stderr.startswith("1 alive at a signal, 4 KiB\n")
    assert "program.py:6" in done.stderr


def test_a_program_may_change_its_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    run(tmp_path, "chdir", LIFETIMES_REPORT="report.txt")
    assert (tmp_path / "report.txt").read_text().startswith("1 alive at exit")


def test_a_handler_that_was_there_before_is_called_too(tmp_path: Path) -> None:
    done = run(tmp_path, "signal", "handler", LIFETIMES_REPORT_SIGNAL="USR1")
    assert done.stdout == "heard it first\ndone\n"
    assert done.stderr.count("1 alive at a signal") == 1


def test_a_signal_and_an_exit(tmp_path: Path) -> None:
    done = run(tmp_path, "signal", LIFETIMES_REPORT_SIGNAL="10", LIFETIMES_REPORT="stderr")
    assert done.stderr.count("1 alive at a signal") == done.stderr.count("1 alive at exit") == 1


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("LIFETIMES_STACKS", "sideways", "not 'sideways'"),
        ("LIFETIMES_STACKS", "full:many", "invalid literal"),
        ("LIFETIMES_HISTORY", "yes", "a number of events, not 'yes'"),
        ("LIFETIMES_HISTORY", "-1", "a number of events, not '-1'"),
        ("LIFETIMES_REPORT_SIGNAL", "KILL", "no program can answer the signal 'KILL'"),
        ("LIFETIMES_REPORT_SIGNAL", "NONE", "no signal 'NONE'"),
        ("LIFETIMES_REPORT", "report.doc", "/report.doc'"),
        ("LIFETIMES_REPORT", "/no/such/folder/report.txt", "No such file"),
    ],
)
def test_what_cannot_be_obeyed_is_one_line_and_not_the_end(tmp_path: Path, name: str, value: str, says: str) -> None:
    done = run(tmp_path, **{name: value})
    assert done.stdout == "done\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"lifetimes: {name}: ")
    assert says in line


def test_an_unknown_ending_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\.txt, \.json, \.html or \.trace\.json"):
        write_report("report", "title")


def test_every_variable_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference-environment.md").read_text()
    assert [name for name in VARIABLES if f"`{name}`" not in page] == []
