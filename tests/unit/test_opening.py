"""`lifetimes.open`: what it takes, and that whatever it refuses leaves nothing open."""

from __future__ import annotations

import gc
import math
import sys
import threading
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lifetimes
from lifetimes import registry
from lifetimes.backend import Usability
from lifetimes.errors import BackendError, BusyError, ClosedError, OutOfMemory
from lifetimes.origins import get_stacks, set_stacks
from lifetimes.testing.disturb import run_disturbed
from lifetimes.testing.sim import SimBackend, SimDriver
from tests.resource_log import Watched, interrupt_outside

TOTAL = 1 << 20


class Counting(SimBackend):
    """Remembers every driver it opened, and who closed it."""

    def __init__(self) -> None:
        super().__init__(total=TOTAL)
        self.opened: list[SimDriver] = []

    def open(self, index: int = 0, **options: Any) -> SimDriver:
        driver = super().open(index, **options)
        self.opened.append(driver)
        return driver


@pytest.fixture
def backend() -> Counting:
    return Counting()


@pytest.fixture(autouse=True)
def nothing_changed() -> Iterator[None]:
    """No live thing, no thread and no global setting more than before."""
    live, threads, stacks = {row.key for row in lifetimes.live()}, threading.active_count(), get_stacks()
    yield
    assert {row.key for row in lifetimes.live()} <= live
    assert threading.active_count() <= threads
    assert get_stacks() == stacks


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    # limits; BUG-100 (rapidsai/dask-cuda#943)
    ({"memory_limit": 0}, ValueError, "0 leaves nothing"),
    ({"memory_limit": -1}, ValueError, "-1 leaves nothing"),
    ({"memory_limit": "0"}, ValueError, "leaves nothing"),
    ({"memory_limit": math.nan}, TypeError, "nan is a float"),
    ({"memory_limit": math.inf}, TypeError, "inf is a float"),
    ({"memory_limit": 1.5}, TypeError, "1.5 is a float"),
    ({"memory_limit": True}, TypeError, "bool"),
    ({"memory_limit": [64]}, TypeError, "list"),
    ({"memory_limit": b"64"}, TypeError, "bytes"),
    ({"memory_limit": "1 XB"}, ValueError, "MiB"),
    ({"memory_limit": "lots"}, ValueError, "'lots' is no size"),
    ({"memory_limit": ""}, ValueError, "is no size"),
    ({"memory_limit": "-1MiB"}, ValueError, "'-1MiB' is no size"),
    ({"memory_limit": "1e3"}, ValueError, "1e3"),
    ({"memory_limit": "nan"}, ValueError, "nan"),
    ({"memory_limit": "0.3B"}, ValueError, "whole number"),
    ({"memory_limit": "0%"}, ValueError, "no share"),
    ({"memory_limit": "101%"}, ValueError, "no share"),
    ({"memory_limit": "nan%"}, ValueError, "no share"),
    ({"memory_limit": "-5%"}, ValueError, "no share"),
    ({"memory_limit": TOTAL + 1}, ValueError, f"more than the {TOTAL} bytes"),
    ({"memory_limit": 2**70}, ValueError, "more than"),
    ({"memory_limit": "1GB"}, ValueError, "more than"),
    ({"soft_limit": 0}, ValueError, "soft_limit"),
    ({"soft_limit": "101%"}, ValueError, "no share"),
    ({"host_limit": 0}, ValueError, "host_limit"),
    ({"host_limit": "lots"}, ValueError, "'lots' is no size"),
    ({"host_limit": 1.5}, TypeError, "float"),
    ({"spill_dir": "/dev/null/below"}, BackendError, "name a directory that this process may write to"),
    ({"spill_dir": 3}, TypeError, "int"),
    ({"pool_bytes": -1}, ValueError, "pool_bytes"),
    ({"pool_age": -1}, ValueError, "pool_age"),
    ({"pool_age": float("nan")}, ValueError, "nan"),
    ({"pool_age": "1 s"}, TypeError, "pool_age"),
    # tables and policies
    ({"table": "hash"}, ValueError, r"'hash'.*dict, sorted, judy"),
    ({"table": "no.such:Table"}, ValueError, r"no\.such:Table"),
    ({"table": "math:pi"}, TypeError, "no table"),
    ({"table": 3}, TypeError, "no table"),
    ({"table": None}, TypeError, "no table"),
    ({"address_table": "dict"}, ValueError, "not ordered"),
    ({"address_table": "hash"}, ValueError, "'hash'"),
    ({"policy": "fifo"}, ValueError, "'fifo'.*lru"),
    ({"policy": object()}, TypeError, "no policy"),
    ({"policy": "no such module:P"}, ValueError, "cannot be imported"),
    # what else
    ({"stacks": "sideways"}, ValueError, "sideways"),
    ({"index": 2}, BackendError, "0 to 1"),
    ({"index": -1}, BackendError, "0 to 1"),
    ({"index": "0"}, TypeError, "index"),
    ({"index": "no such"}, BackendError, "'no such'.*simulated device 0"),
    ({"index": ""}, TypeError, "index"),
    ({"index": True}, TypeError, "index"),
    ({"index": 0.0}, TypeError, "index"),
]


@pytest.mark.parametrize(("options", "error", "says"), REFUSED, ids=[str(options) for options, _, _ in REFUSED])
def test_bad_input_is_refused_and_leaves_nothing_open(
    backend: Counting, options: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says) as caught:
        lifetimes.open(backend, **options)
    assert caught.tb  # while the exception still holds the frames
    for driver in backend.opened:
        assert driver._closed
        assert not driver.violations
        assert not driver.live_streams


@pytest.mark.parametrize(("options", "error", "says"), [row for row in REFUSED if "device" not in row[2]])
def test_the_host_refuses_the_same(options: dict[str, Any], error: type[Exception], says: str) -> None:
    if options in ({"memory_limit": "1GB"}, {"memory_limit": TOTAL + 1}):
        pytest.skip("the host has more than that")
    if "index" in options and error is BackendError:
        says = "only device 0"
    says = "more than" if str(TOTAL) in says else says
    with pytest.raises(error, match=says):
        lifetimes.open("host", **options)


def test_an_unknown_back_end_says_which_there_are() -> None:
    with pytest.raises(BackendError, match=r"'vulkan'.*'host'.*'sim'") as caught:
        lifetimes.open("vulkan")
    assert "lifetimes.backends" in str(caught.value)


@pytest.mark.parametrize("backend", [3, None, object(), b"host", ["host"], 1.5, SimDriver])
def test_what_is_no_back_end(backend: Any) -> None:
    with pytest.raises(TypeError, match="no back end"):
        lifetimes.open(backend)


def test_a_table_that_an_extra_brings_is_named(monkeypatch: pytest.MonkeyPatch, backend: Counting) -> None:
    """Also where it is installed: here it is made to look as if it were not."""
    monkeypatch.setitem(sys.modules, "BTrees", None)
    monkeypatch.setitem(sys.modules, "BTrees.LOBTree", None)
    monkeypatch.setitem(sys.modules, "BTrees.QOBTree", None)
    monkeypatch.delitem(sys.modules, "lifetimes.tables.btree", raising=False)
    with pytest.raises(ValueError, match=r"device-lifetimes\[tables\]"):
        lifetimes.open(backend, table="btree")


def test_a_back_end_that_is_not_usable_says_why_and_what_would_help() -> None:
    class Unusable(SimBackend):
        def usability(self) -> Usability:
            return Usability(False, "there is no such card", "buy one")

    with pytest.raises(BackendError, match=r"'sim' cannot be used here: there is no such card\. buy one"):
        lifetimes.open(Unusable())


def test_a_back_end_that_cannot_be_loaded_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = types.ModuleType("broken_backend")
    monkeypatch.setitem(sys.modules, "broken_backend", broken)
    monkeypatch.setitem(registry._BUILT_IN, "broken", "broken_backend:backend")
    with pytest.raises(BackendError, match=r"'broken' .* could not be loaded.*backend"):
        lifetimes.open("broken")


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(None, TOTAL), (1, 1), (TOTAL, TOTAL), ("1MiB", TOTAL), ("1kB", 1000), ("0.5MiB", TOTAL // 2), ("50%", TOTAL // 2),
     (" 100% ", TOTAL), (np.int64(4096), 4096), ("1000", 1000)],
)  # fmt: skip
def test_limits_that_are_fine(backend: Counting, limit: Any, expected: int) -> None:
    with lifetimes.open(backend, memory_limit=limit) as device:
        assert device.statistics().limit == expected


def test_without_a_limit_nothing_is_evicted_and_more_than_the_limit_is_refused(backend: Counting) -> None:
    """BUG-100: None is all of the device and nothing is evicted for a limit; 1 byte holds one byte."""
    with lifetimes.open(backend) as device:
        arrays = [device.zeros(1000) for _ in range(100)]
        with device.use(read=arrays):
            pass
        assert device.statistics().evictions == 0
        assert device.statistics().resident == 100
    with lifetimes.open(backend, memory_limit=1) as device:
        with device.use(write=[device.empty(1, "u1")]) as (address,):
            assert address
        with pytest.raises(OutOfMemory):
            device.empty(2, "u1")


def test_arrays_for_which_there_is_no_room_on_the_host_either_go_to_files(backend: Counting, tmp_path: Path) -> None:
    with lifetimes.open(
        backend,
        memory_limit="4KiB",
        soft_limit="3KiB",
        host_limit="4KiB",
        spill_dir=tmp_path,
        pool_bytes="1KiB",
        pool_age=60,
    ) as device:
        arrays = [device.asarray(np.full(128, at, np.float64)) for at in range(12)]
        assert [array.numpy()[0] for array in arrays] == list(range(12))
        assert device.statistics().spilled >= 8
        assert device.statistics().soft_limit == 3072
        assert len(list(tmp_path.glob("*/*.spill"))) >= 8
    assert list(tmp_path.iterdir()) == []


def test_names_paths_classes_and_objects(backend: Counting) -> None:
    from lifetimes.policies.lru import LRUPolicy
    from lifetimes.tables.sorted import SortedTable

    tables: list[Any] = ["dict", "judy", "lifetimes.tables.sorted:SortedTable", SortedTable, SortedTable()]
    policies: list[Any] = ["lru", "lru", "lifetimes.policies.lru:LRUPolicy", LRUPolicy, LRUPolicy()]
    for table, policy in zip(tables, policies, strict=True):
        with lifetimes.open(backend, table=table, policy=policy, address_table="judy") as device:
            assert device.asarray([1.0]).numpy()[0] == 1.0
    index: Any = np.int8(1)
    with lifetimes.open(backend, index=index) as device:
        assert device.label == "sim:1"
    for pattern in ("device 1", "SIMULATED*1", "*[1-9]"):
        with lifetimes.open(backend, pattern) as device:
            assert device.label == "sim:1"


def test_an_open_driver_is_the_devices_from_then_on() -> None:
    watched = Watched()
    with pytest.raises(ValueError, match="policy"):
        lifetimes.open(watched.driver, policy="no such")
    assert watched.closes == 1
    watched = Watched()
    with lifetimes.open(watched.driver) as device:
        assert device.label == "sim"
    assert not watched.problems()
    with pytest.raises(ClosedError):
        lifetimes.open(watched.driver)


@pytest.mark.parametrize("call", ["memory_info", "create_stream"])
def test_a_driver_that_fails_while_it_is_opened_is_closed(call: str) -> None:
    watched = Watched(contexts=True)
    watched.driver.faults.fail(call, error=BackendError)
    with pytest.raises(BackendError, match="planned fault"):
        lifetimes.open(watched.driver)
    assert not watched.problems()


@pytest.mark.parametrize("first", [0, 3, 6])
def test_ctrl_c_at_steps_of_opening(first: int) -> None:
    """What was made goes again, from the moment that the library has the driver."""
    struck, before = 0, {row.key for row in lifetimes.live()}
    for step in range(first, 10_000, 9):
        watched, opened = Watched(), list[lifetimes.Device]()

        def open_it(watched: Watched = watched, opened: Any = opened) -> None:
            opened.append(lifetimes.open(watched.driver))

        try:
            if not run_disturbed(open_it, step=step, act=interrupt_outside, after_calls=True):
                break
        except KeyboardInterrupt:
            struck += 1
        gc.collect(1)  # whoever interrupts holds the frames in a cycle
        lifetimes.drain()
        for device in opened:
            device.close()
        assert {row.key for row in lifetimes.live()} <= before, f"step {step}"
    assert struck > 50
    opened[0].close()


def test_stacks_are_as_they_were_when_opening_fails(backend: Counting) -> None:
    levels: list[Any] = ["line", "full"]
    for level in levels:
        with pytest.raises(ValueError, match="policy"):
            lifetimes.open(backend, stacks=level, policy="no such")
        assert get_stacks() == "off"
    set_stacks("line")
    try:
        with pytest.raises(ValueError, match="policy"):
            lifetimes.open(backend, stacks="off", policy="no such")
        assert get_stacks() == "line"
        with lifetimes.open(backend, stacks="full"):
            assert get_stacks() == "full"
        with lifetimes.open(backend, stacks="off"):
            assert get_stacks() == "off"
        with lifetimes.open(backend, stacks="line") as device:
            (origin,) = [row.origin for row in lifetimes.live() if row.key == device.key]
            assert origin is not None
            assert "test_stacks_are" in origin
    finally:
        set_stacks("off")


# The current device.


def test_the_shared_default_is_made_once_and_again_when_it_is_closed() -> None:
    first = lifetimes.current_device()
    assert lifetimes.current_device() is first
    assert (first.label, first.closed) == ("host:0", False)
    first.close()
    second = lifetimes.current_device()
    assert second is not first
    assert not second.closed
    second.close()


def test_threads_that_ask_at_once_get_the_same_default() -> None:
    barrier = threading.Barrier(8)
    for _ in range(10):

        def ask(_: int) -> lifetimes.Device:
            barrier.wait(30)
            return lifetimes.current_device()

        with ThreadPoolExecutor(8) as pool:
            devices = list(pool.map(ask, range(8)))
        assert len({id(device) for device in devices}) == 1
        assert [row.kind for row in lifetimes.live()].count("device") == 1, "those that came second are closed"
        devices[0].close()


def test_a_finalizer_may_ask_for_the_default_while_it_is_being_made() -> None:
    """Opening is a safe point, so it runs finalizers; no lock of the library's may be held meanwhile."""
    asked: list[lifetimes.Device] = []

    def ask() -> None:
        asked.append(lifetimes.current_device())

    waiting = lifetimes.Lifetime("x", ask, deferred=True)
    del waiting  # deferred: released by the next safe point, which is inside current_device()
    device = lifetimes.current_device()
    assert asked == [device]
    device.close()


def test_the_innermost_block_is_current() -> None:
    with lifetimes.open("sim") as outer:
        assert lifetimes.current_device() is outer
        with lifetimes.open("sim") as inner:
            assert lifetimes.current_device() is inner
            with outer:
                assert lifetimes.current_device() is outer
            assert not outer.closed, "an inner block of the same device does not end it"
            assert lifetimes.current_device() is inner
            inner.close()
            assert lifetimes.current_device() is outer, "a closed one is not current"
        assert lifetimes.current_device() is outer
        with pytest.raises(ZeroDivisionError), lifetimes.open("sim"):
            _ = 1 / 0
        assert lifetimes.current_device() is outer
    assert outer.closed
    with pytest.raises(ClosedError, match="entered"), outer:
        pass


def test_blocks_that_end_in_another_order() -> None:
    """As with a generator that is closed after a block which began later has begun."""
    first, second = lifetimes.open("sim"), lifetimes.open("sim")

    def generator() -> Iterator[None]:
        with first:
            yield

    suspended = generator()
    next(suspended)
    with second:
        suspended.close()  # type: ignore[attr-defined]
        assert first.closed
        assert lifetimes.current_device() is second
    assert second.closed
    default = lifetimes.current_device()
    assert default.label == "host:0"
    default.close()


def test_a_block_left_on_another_thread_ends_there() -> None:
    device = lifetimes.open("sim")

    def generator() -> Iterator[lifetimes.Device]:
        with device:
            yield lifetimes.current_device()

    suspended = generator()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(next, suspended).result() is device
    suspended.close()  # type: ignore[attr-defined]
    assert device.closed
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(lifetimes.current_device).result()
    assert other is not device
    other.close()


def test_a_body_that_is_refused_leaves_the_device_to_its_user() -> None:
    """Closing is refused while somebody uses an array; the note says so, and a later close works."""
    device = lifetimes.open("sim")
    array = device.zeros(3)
    use = device.use(read=[array])
    with pytest.raises(ZeroDivisionError) as caught, device:
        use.__enter__()
        _ = 1 / 0
    assert "cannot close" in caught.value.__notes__[0]
    assert not device.closed
    with pytest.raises(BusyError), device:
        pass
    assert not device.closed
    use.__exit__()
    device.close()
