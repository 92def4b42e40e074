"""Following other libraries: what stands for their classes, and CuPy's hooks over a stub."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import lifetimes
from lifetimes import live
from lifetimes.leaks.tracking import TRACKERS, make, tracking
from lifetimes.leaks.tracking.substitutes import Substitutes, subclass_of


class Buffer:
    """A class of some library."""

    limit = 7

    def __init__(self, size: int) -> None:
        self.size = size

    @staticmethod
    def of_bytes(data: bytes) -> Buffer:
        return Buffer(len(data))


def test_a_stand_in_does_what_programs_do_with_a_class() -> None:
    made: list[int] = []

    def __init__(self: Buffer, size: int) -> None:
        Buffer.__init__(self, size)
        made.append(size)

    Stands = subclass_of(Buffer, __init__=__init__)
    x = Stands(3)
    assert (made, x.size, type(x).__name__, type(x).__module__) == ([3], 3, "Buffer", Buffer.__module__)
    assert isinstance(x, Stands)  # type: ignore[arg-type]  # it is no class
    assert isinstance(Buffer(1), Stands)
    assert not isinstance(3, Stands)
    assert isinstance(x, Buffer)
    assert issubclass(Buffer, Stands)
    assert not issubclass(int, Stands)
    assert Stands.limit == 7
    assert Stands.of_bytes(b"ab").size == 2
    assert Stands == Buffer
    assert type(x) == Stands  # noqa: E721  (what a program may write)
    assert Stands != int  # noqa: E721
    assert hash(Stands) == hash(Buffer)
    assert repr(Stands) == repr(Buffer)
    assert isinstance(x, Stands | None)
    assert isinstance(None, None | Stands)

    class Mine(Stands):  # type: ignore[misc, valid-type]
        pass

    assert Mine(4).size == 4
    assert made == [3, 4]
    Stands.limit = 8
    assert Buffer.limit == 8
    Buffer.limit = 7


def test_names_are_bound_to_something_else_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    package, part, other = ModuleType("pack"), ModuleType("pack.part"), ModuleType("packing")
    for module in (package, part, other):
        module.Buffer = Buffer  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
    substitutes = Substitutes("pack")
    substitutes.put(Buffer, int)
    assert [module.Buffer for module in (package, part, other)] == [int, int, Buffer]
    substitutes.take_back()
    substitutes.take_back()
    assert [module.Buffer for module in (package, part, other)] == [Buffer] * 3


STUBS = Path(__file__).with_name("stubs")


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stub, under CuPy's name."""
    there = {name: module for name, module in sys.modules.items() if name == "cupy" or name.startswith("cupy.")}
    for name in there:
        del sys.modules[name]
    monkeypatch.syspath_prepend(STUBS)
    module: Any = importlib.import_module("cupy")
    yield module
    assert module.cuda.hooks() == {}
    for name in ("cupy", "cupy.cuda"):
        sys.modules.pop(name, None)
    sys.modules.update(there)


def line_above() -> str:
    frame = sys._getframe(1)
    return f"{__file__}:{frame.f_lineno - 1} in {frame.f_code.co_qualname}"


def test_cupy_memory_is_named_by_its_line(cupy: Any, lines: None) -> None:
    with tracking("cupy") as (tracker,):
        x = cupy.zeros(1000)
        where = line_above()
        y = cupy.zeros(5, device=1)
        rows = live(kind="cupy.memory")
        assert [(row.nbytes, row.label) for row in rows] == [(1024, "cuda:0"), (512, "cuda:1")]
        assert rows[0].origin == where  # not the line in CuPy
        del x
        tracker.sweep()
        tracker.settle()
        assert [row.label for row in live(kind="cupy.memory")] == ["cuda:1"]
        del y
    assert live(kind="cupy.memory") == []
    z = cupy.zeros(3)
    assert live(kind="cupy.memory") == []
    del z


def test_memory_that_cupy_could_not_get_is_not_tracked(cupy: Any) -> None:
    with tracking("cupy"):
        cupy.cuda.hooks()["lifetimes"].malloc_postprocess(device_id=0, size=8, mem_size=512, mem_ptr=0, pmem_id=1)
        assert live(kind="cupy.memory") == []


def test_cupy_memory_of_other_threads_is_tracked_too(cupy: Any) -> None:
    made: list[Any] = []
    go, done = threading.Event(), threading.Event()

    def work() -> None:
        made.append(cupy.zeros(100))
        done.set()
        go.wait()
        made.clear()

    with tracking("cupy"):
        thread = threading.Thread(target=work)
        thread.start()
        done.wait()
        tracked = len(live(kind="cupy.memory"))
        go.set()
        thread.join()
        assert tracked == 1
        assert live(kind="cupy.memory") == []
    assert threading.getprofile() is None


PROGRAM = """
import cupy

kept = []

def step(number):
    scratch = cupy.zeros(4096)
    if number % 2:
        kept.append(cupy.zeros(2000))

weights = cupy.zeros(100)
for number in range(6):
    step(number)
"""


def test_the_leaking_line_of_an_unmodified_cupy_program(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    words = ["leaks", "--track", "cupy", str(script)]
    done = subprocess.run(
        [sys.executable, "-m", "lifetimes", *words],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(STUBS)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 1, done.stderr
    assert "3 x cupy.memory" in done.stderr
    assert "made at program.py:9 in step" in done.stderr
    assert "program.py:7 in step" not in done.stderr
    assert done.stderr.splitlines()[-1] == "lifetimes leaks: 3 leaked, 6 KiB"


def test_a_tracker_that_is_not_there_is_refused() -> None:
    assert set(TRACKERS) == {"pyopencl", "cupy"}
    with pytest.raises(ValueError, match="no tracker 'numpy'"), tracking("numpy"):
        pass


def test_trackers_that_began_are_stopped_when_another_cannot(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(ImportError), tracking("cupy", "pyopencl"):
        pass
    assert cupy.cuda.hooks() == {}
    assert make("cupy").name == "cupy"
    lifetimes.drain()
