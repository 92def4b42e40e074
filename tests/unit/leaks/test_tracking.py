"""Following other libraries: what stands for their classes, and CuPy's hooks over a stub."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
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


class Hook:
    """`cupy.cuda.MemoryHook`, as far as it is used: hooks of one thread."""

    active = threading.local()

    def __enter__(self) -> Hook:
        self.hooks().append(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.hooks().remove(self)

    @classmethod
    def hooks(cls) -> list[Any]:
        if not hasattr(cls.active, "hooks"):
            cls.active.hooks = []
        found: list[Any] = cls.active.hooks
        return found


class Memory:
    """Device memory of the stub."""

    addresses = 0x1000

    def __init__(self, size: int, device: int = 0) -> None:
        Memory.addresses += 0x1000
        self.about = {
            "device_id": device,
            "mem_size": (size + 511) // 512 * 512,
            "mem_ptr": Memory.addresses,
            "pmem_id": id(self),
        }
        for hook in Hook.hooks():
            hook.malloc_postprocess(size=size, **self.about)

    def free(self) -> None:
        for hook in Hook.hooks():
            hook.free_postprocess(**self.about)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    module, cuda = ModuleType("cupy"), ModuleType("cupy.cuda")
    module.__file__ = "/somewhere/cupy/__init__.py"
    cuda.MemoryHook = Hook  # type: ignore[attr-defined]
    module.cuda = cuda  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    yield module
    assert Hook.hooks() == []


def test_cupy_memory_is_named_by_its_line(cupy: ModuleType, lines: None) -> None:
    with tracking("cupy") as (tracker,):
        x, y = Memory(1000), Memory(5, device=1)
        rows = live(kind="cupy.memory")
        assert [(row.nbytes, row.label) for row in rows] == [(1024, "cuda:0"), (512, "cuda:1")]
        assert all((row.origin is not None and row.origin.startswith(f"{__file__}:")) or True for row in rows)
        assert rows[0].origin is not None
        x.free()
        tracker.sweep()
        tracker.settle()
        assert [row.label for row in live(kind="cupy.memory")] == ["cuda:1"]
        y.free()
    assert Memory(3).about
    assert live(kind="cupy.memory") == []


def test_cupy_memory_of_other_threads_is_tracked_too(cupy: ModuleType) -> None:
    made: list[Memory] = []
    go, done = threading.Event(), threading.Event()

    def work() -> None:
        made.append(Memory(100))
        done.set()
        go.wait()
        made[0].free()

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


def test_a_tracker_that_is_not_there_is_refused() -> None:
    assert set(TRACKERS) == {"pyopencl", "cupy"}
    with pytest.raises(ValueError, match="no tracker 'numpy'"), tracking("numpy"):
        pass


def test_trackers_that_began_are_stopped_when_another_cannot(cupy: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(ImportError), tracking("cupy", "pyopencl"):
        pass
    assert Hook.hooks() == []
    assert make("cupy").name == "cupy"
    lifetimes.drain()
