"""`lifetimes leaks` and `lifetimes diff`, and the judgement behind them."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lifetimes.cli import main
from lifetimes.leaks.document import load
from lifetimes.leaks.exit_handlers import exit_handlers
from lifetimes.leaks.program import judge, module_code, run, script_code
from tests.unit.leaks.planted import KINDS, line_of

ROOT = Path(__file__).parents[3]
PLANTED = Path(__file__).with_name("planted.py")


def command(*words: object, folder: Path = ROOT, first: str = "pass") -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, which may do something else ``first``."""
    program = f"import sys; {first}; from lifetimes.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=100
    )


def judged(tmp_path: Path, source: str, **options: Any) -> dict[str, Any]:
    """Run a program here and say what of it leaked, was let pass, and was collected, by label."""
    path = tmp_path / "program.py"
    path.write_text(f"from lifetimes import Lifetime\n{source}")
    code, about, folder = script_code(str(path))
    from lifetimes import live

    before = frozenset(row.key for row in live())
    ended = run(code, about, folder, [str(path), "--argument"])
    report = judge(ended, before, **options)
    ended.namespace.clear()
    return {
        "status": ended.status,
        "leaked": sorted(row.label or "" for row in report.leaks),
        "passed": sorted(row.label or "" for row in report.others),
        "collected": sorted(row.label or "" for row in report.collected or ()),
        "reasons": {reason.name: reason.held_by for reason in report.reasons.values()},
    }


def test_every_planted_leak_is_named_by_its_line_in_a_program(tmp_path: Path) -> None:
    """And those that a top-level variable keeps are let pass."""
    script = tmp_path / "program.py"
    script.write_text(
        "import gc\ngc.disable()\nfrom tests.unit.leaks.planted import KINDS\n"
        "for plant, _, _ in KINDS.values(): plant()\n"
        "from lifetimes import Lifetime\nkept_on_purpose = Lifetime('x', label='on purpose')\n"
    )
    # When it has been told, or the interpreter waits for it at its end.
    mend = "import atexit; from tests.unit.leaks.planted import never; atexit.register(setattr, never, 'over', True)"
    files = "--json", tmp_path / "r.json", "--html", tmp_path / "r.html", "--trace", tmp_path / "t.json"
    done = command("leaks", *files, script, first=mend)
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    report = load(tmp_path / "r.json")
    leaked = {row.label: row for row in report.leaks}
    assert set(KINDS) - {"cycle", "child"} <= set(leaked)
    assert [row.label for row in report.collected or ()] == ["cycle"]
    assert {"on purpose", "child"} <= {row.label for row in report.others}  # the parent of a child that has leaked
    for kind in KINDS:
        (row,) = [row for row in (*report.snapshot, *(report.collected or ())) if row.label == kind]
        assert row.origin is not None
        assert row.origin.startswith(f"{PLANTED}:{line_of(kind)} in ")
        assert f"planted.py:{line_of(kind)} in" in done.stderr
        assert report.reasons[row.key].reason == KINDS[kind][1]
    assert done.stderr.splitlines()[-1].startswith(f"lifetimes leaks: {len(leaked)} leaked")
    assert report.recording is not None
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")


def test_a_program_that_leaks_nothing(tmp_path: Path) -> None:
    script = tmp_path / "clean.py"
    script.write_text(
        "import sys, lifetimes\n"
        "def main():\n"
        "    with lifetimes.open('host') as device:\n"
        "        x = device.zeros(3)\n"
        "    print('hello', sys.argv, __name__, __file__ == sys.argv[0])\n"
        "main()\n"
    )
    done = command("leaks", script, "--json", "-m", "x")
    assert done.returncode == 0
    assert done.stdout == f"hello {[str(script), '--json', '-m', 'x']} __main__ True\n"
    assert done.stderr.splitlines()[-1] == "lifetimes leaks: nothing leaked"


def test_the_calls_of_a_stack_are_those_of_the_program(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import lifetimes, threading\n"
        "kept = []\n"
        "def make(label): kept.append(lifetimes.Lifetime('x', label=label))\n"
        "def main(): make('here')\n"
        "main()\n"
        "threading.Thread(target=make, args=['there']).start()\n"
    )
    assert command("leaks", "--stacks", "full", "--json", tmp_path / "r.json", script).returncode == 1
    here, there = load(tmp_path / "r.json").leaks
    assert here.stack == (f"{script}:3 in make", f"{script}:4 in main", f"{script}:5 in <module>")
    assert there.stack[0] == f"{script}:3 in make"


def test_a_module_with_its_arguments(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("import lifetimes\nkept = [lifetimes.Lifetime('x', label='in a part')]\n")
    (package / "__main__.py").write_text(
        "import sys\nfrom .part import kept\nprint(__name__, __package__, sys.argv[1:])\nsys.exit(len(sys.argv) - 1)\n"
    )
    done = command("leaks", "-m", "package", folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "__main__ package []\n")
    assert "made at package/part.py:2 in <module>" in done.stderr
    assert "held by package.part.kept[0] (global)" in done.stderr
    done = command("leaks", "-m", "package", "--json", "a", "b", folder=tmp_path)
    assert (done.returncode, done.stdout) == (3, "__main__ package ['--json', 'a', 'b']\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["leaks"], "there is no program to run"),
        (["leaks", "no/such/script.py"], "No such file"),
        (["leaks", "-m", "no_such_module"], "no module 'no_such_module'"),
        (["leaks", "--track", "numpy", "x.py"], "'numpy' cannot be tracked; there are pyopencl, cupy"),
        (["leaks", "--depth", "0", "x.py"], "no number of calls"),
        (["leaks", "--html", "/no/such/folder/x.html", str(PLANTED)], "there is no folder"),
        (["diff", "no.json", "such.json"], "No such file"),
        (["diff", str(PLANTED), str(PLANTED)], "planted.py: this is no report: it is no JSON"),
        (["diff", "a.json", "b.json", "--by", "colour"], "not by 'colour'"),
    ],
)
def test_what_cannot_be_done_is_one_line(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(words)
    out, err = capsys.readouterr()
    assert status == 2  # and not 1: that is "something leaked", and "something is new"
    assert out == ""
    assert says in err
    assert len(err.splitlines()) == 1


def test_a_program_that_does_not_compile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.py"
    path.write_text("x = 1\nif:\n")
    assert main(["leaks", str(path)]) == 2
    assert "line 2: invalid syntax" in capsys.readouterr().err


def test_variables_that_name_a_thing_let_it_pass(tmp_path: Path) -> None:
    found = judged(
        tmp_path,
        "class Model: pass\n"
        "device = Lifetime('d', label='device')\n"
        "model = Model(); model.weights = [Lifetime('w', label='of an object')]\n"
        "kept = [Lifetime('x', label='in a list', parents=[device])]\n"
        "also = kept[0]\n"
        "def f(x=Lifetime('y', label='a default')): pass\n",
    )
    assert found["leaked"] == ["a default"]
    assert found["passed"] == ["device", "in a list", "of an object"]


def test_what_a_variable_names_passes_whoever_else_refers_to_it(tmp_path: Path) -> None:
    found = judged(
        tmp_path,
        "class Array: pass\n"
        "queue = Lifetime('q', label='queue')\n"
        "kept = [Array()]\n"
        "kept[0].queue, kept[0].buffer = queue, Lifetime('b', label='buffer')\n",
    )
    assert found["leaked"] == ["buffer"]


def test_some_variables_may_keep_what_they_do(tmp_path: Path) -> None:
    source = "pool = [Lifetime('x', label='pooled')]\nother = {1: Lifetime('y', label='other')}\n"
    assert judged(tmp_path, source)["leaked"] == ["other", "pooled"]
    assert judged(tmp_path, source, keep=["pool"])["leaked"] == ["other"]
    direct = "x = Lifetime('x', label='x')\n"
    assert judged(tmp_path, direct)["leaked"] == []
    assert judged(tmp_path, direct, strict=True)["leaked"] == ["x"]


def test_what_an_array_in_a_list_refers_to_is_not_counted_again(tmp_path: Path) -> None:
    found = judged(
        tmp_path,
        "import lifetimes\n"
        "def main():\n"
        "    device = lifetimes.open('sim')\n"
        "    kept.append(device.zeros(3, label='array'))\n"
        "kept = []\n"
        "main()\n",
    )
    assert found["leaked"] == ["array"]


def test_how_a_program_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(tmp_path, "import sys\nsys.exit(3)")["status"] == 3
    assert judged(tmp_path, "import sys\nsys.exit()")["status"] == 0
    assert judged(tmp_path, "import sys\nsys.exit('no')")["status"] == 1
    assert capsys.readouterr().err == "no\n"
    found = judged(
        tmp_path, "def f():\n    x = Lifetime('x', label='in the traceback')\n    raise ValueError('oops')\nf()"
    )
    assert found["status"] == 1
    assert found["leaked"] == []
    err = capsys.readouterr().err
    assert err.endswith("ValueError: oops\n")
    assert "lifetimes/leaks" not in err
    assert found["collected"] == []  # no cycle of the command's own
    found = judged(tmp_path, "kept = [Lifetime('x', label='kept')]\nraise KeyboardInterrupt")
    assert (found["status"], found["leaked"]) == (130, ["kept"])
    assert capsys.readouterr().err.endswith("KeyboardInterrupt\n")


def test_a_variable_to_keep_that_is_not_there_is_told(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("pool = []\n")
    done = command("leaks", "--keep", "pool", "--keep", "pol", script)
    assert done.returncode == 0
    assert done.stderr.startswith("lifetimes leaks: --keep: the program has no top-level variable 'pol'\n")
    assert "'pool'" not in done.stderr


def test_the_threads_of_a_program_are_waited_for(tmp_path: Path) -> None:
    source = (
        "import threading\ngo = threading.Event()\n"
        "def work():\n    x = Lifetime('x', label='of a thread')\n    go.wait()\n"
        "threading.Thread(target=work).start()\nthreading.Timer(0.05, go.set).start()\n"
    )
    assert judged(tmp_path, source)["leaked"] == []


def test_what_exit_handlers_release_is_no_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run when threads have ended, last registered first; one that fails does not stop the others."""
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda about: told.append(str(about.exc_value)))
    source = (
        "import atexit, threading, weakref\n"
        "kept, order = [Lifetime('x', label='closed at exit')], []\n"
        "atexit.register(kept.clear)\n"
        "atexit.register(order.append, 1)\n"
        "@atexit.register\n"
        "def fails(): raise ValueError('no')\n"
        "def never(): raise AssertionError\n"
        "atexit.register(never); atexit.unregister(never)\n"
        "weakref.finalize(threading.Thread, order.append, 'at the end of the process')\n"
        "threading.Thread(target=lambda: atexit.register(order.append, 0)).start()\n"
    )
    before = atexit.register, atexit.unregister
    path = tmp_path / "program.py"
    path.write_text(f"from lifetimes import Lifetime\n{source}")
    code, about, folder = script_code(str(path))
    ended = run(code, about, folder, [str(path)])
    order = ended.namespace["order"]
    assert order == [0, 1]
    assert ended.namespace["kept"] == []
    assert told == ["no"]
    assert (atexit.register, atexit.unregister) == before
    ended.namespace.clear()


def test_exit_handlers_of_a_program_that_is_interrupted_run_at_exit() -> None:
    registered: list[Any] = []

    def at_exit() -> None:
        """Nothing."""

    register = atexit.register
    try:
        atexit.register = registered.append  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt), exit_handlers():
            atexit.register(at_exit)
            raise KeyboardInterrupt
    finally:
        atexit.register = register
    assert registered == [at_exit]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_of_the_program_makes_no_report(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import os, sys, lifetimes\n"
        "from lifetimes import instrument\n"
        "kept = [lifetimes.Lifetime('x')]\n"
        "def ask(number): instrument.emit('allocate', number, address=number, nbytes=8, stream=0)\n"
        "for number in range(1, 1501): ask(number)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    for number in range(5000, 7000): ask(number)\n"
        "    sys.exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "ask(1501)\n"
    )
    done = command("leaks", "--csv", tmp_path / "log.csv", script)
    assert (done.returncode, done.stdout) == (1, "7\n")
    assert done.stderr.count("lifetimes leaks: ") == 1
    rows = [line.split(",")[3] for line in (tmp_path / "log.csv").read_text().splitlines()[1:]]
    assert rows == [hex(number) for number in range(1, 1502)]


def test_the_reports_are_where_they_were_asked_for(tmp_path: Path) -> None:
    """The program may change the folder."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "program.py").write_text("import os\nos.chdir('elsewhere')\n")
    assert command("leaks", "--json", "r.json", "--csv", "c.csv", "program.py", folder=tmp_path).returncode == 0
    assert {path.name for path in tmp_path.iterdir()} >= {"r.json", "c.csv"}


def test_the_process_is_as_it_was(tmp_path: Path) -> None:
    before = sys.argv, sys.path[:], sys.modules["__main__"]
    judged(tmp_path, "import sys\nsys.argv.append('x')\nsys.path.append('x')\n")
    assert (sys.argv, sys.path, sys.modules["__main__"]) == before


def test_a_module_that_cannot_be_run() -> None:
    with pytest.raises(ImportError, match="that can be run"):
        module_code("lifetimes.leaks")


def test_the_allocations_of_a_program_can_be_played_again(tmp_path: Path) -> None:
    script, log = tmp_path / "program.py", tmp_path / "log.csv"
    script.write_text(
        "import numpy as np, lifetimes\n"
        "with lifetimes.open('sim', memory_limit='64KiB') as device:\n"
        "    for array in [device.asarray(np.ones(1000 + 100 * n)) for n in range(12)]:\n"
        "        device.call(lambda seen: None, array, modes='u')\n"
    )
    assert command("leaks", "--csv", log, script).returncode == 0
    assert log.read_text().startswith("Thread,Time,Action,Pointer,Size,Stream\n")
    done = command("replay", log)
    assert done.returncode == 0
    assert "allocations and frees of 12 arrays" in done.stdout


def test_two_reports_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, lifetimes\nkept = [lifetimes.Lifetime(n, kind='buffer', nbytes=1024) for n in range(int(sys.argv[1]))]\n"
    )
    for count in (2, 5):
        command("leaks", "--json", tmp_path / f"{count}.json", script, count)
    assert main(["diff", str(tmp_path / "2.json"), str(tmp_path / "5.json")]) == 1
    out = capsys.readouterr().out
    assert "two runs" in out
    assert "+3" in out
    assert "+3 KiB" in out
    assert "program.py:2 in" in out
    assert main(["diff", str(tmp_path / "5.json"), str(tmp_path / "2.json")]) == 0
    capsys.readouterr()
    assert main(["diff", str(tmp_path / "5.json"), str(tmp_path / "5.json"), "--json", "--by", "kind"]) == 0
    assert json.loads(capsys.readouterr().out) == {"same_process": True, "grown": False, "by": ["kind"], "groups": []}
