"""Drivers over drivers: each adds one thing, leaves the rest alone, and keeps every promise of the protocol."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from lifetimes.adaptors import Counted, Limited, Logged, simple_driver
from lifetimes.adaptors.base import Adaptor
from lifetimes.backend import Driver, IsSynchronous, SupportsCode, SupportsContext, SupportsHostCall
from lifetimes.errors import BackendError, OutOfMemory
from lifetimes.manager import Manager
from lifetimes.resources.guard import GuardedDriver
from lifetimes.testing.conformance.backend import MemoryConformance, OrderConformance
from lifetimes.testing.sim import SimDriver
from lifetimes_host import HostDriver


class OverTheHost(MemoryConformance, OrderConformance):
    """The suite of every back end, over an adaptor."""

    @pytest.fixture
    def driver(self) -> Iterator[Driver]:
        yield from self.under_test(self.adapted(HostDriver(8 << 20)))

    def adapted(self, driver: Driver) -> Driver:
        raise NotImplementedError


class TestAdaptor(OverTheHost):
    def adapted(self, driver: Driver) -> Driver:
        return Adaptor(driver)


class TestLimited(OverTheHost):
    def adapted(self, driver: Driver) -> Driver:
        return Limited(driver, "4MiB")


class TestCounted(OverTheHost):
    def adapted(self, driver: Driver) -> Driver:
        return Counted(driver)


class TestAllOfThem(OverTheHost):
    def adapted(self, driver: Driver) -> Driver:
        return Logged(Counted(Limited(driver, "6MiB")), lambda line: None)


@pytest.mark.parametrize("adapt", [Adaptor, Counted, Logged, lambda driver: Limited(driver, 1000)])
def test_an_adaptor_has_the_abilities_that_its_upstream_has_and_no_others(adapt: type[Adaptor]) -> None:
    plain, rich = adapt(simple_driver(**FOUR)), adapt(SimDriver(contexts=True))
    for ability in (SupportsCode, SupportsContext, SupportsHostCall):
        assert not isinstance(plain, ability)
        assert isinstance(rich, ability)
    assert isinstance(plain, Driver)
    assert rich.faults is rich.upstream.faults  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        _ = rich.nonsense
    assert "over" in repr(plain)


@pytest.mark.parametrize("adapt", [Adaptor, Counted, GuardedDriver])
def test_a_synchronous_driver_is_seen_to_be_one_through_others(adapt: Callable[[Driver], Driver]) -> None:
    """By the object's own attribute: what `isinstance` looks at from Python 3.12 on."""
    assert inspect.getattr_static(adapt(simple_driver(**FOUR)), "synchronous") is True
    assert not isinstance(adapt(SimDriver()), IsSynchronous)


def test_a_limit_bounds_what_is_allocated_through_it() -> None:
    driver = SimDriver(10_000)
    limited = Limited(driver, 1000)
    other = driver.allocate(100)
    a = limited.allocate(600)
    with pytest.raises(OutOfMemory, match="600 bytes of a limit of 1000"):
        limited.allocate(401)
    assert limited.max_allocation == 1000
    limited.free(other)
    limited.check_invariants()
    limited.free(a)
    assert limited.used == 0
    driver.faults.fail("allocate")
    with pytest.raises(OutOfMemory, match="planned"):
        limited.allocate(1000)
    assert limited.used == 0
    with pytest.raises(BackendError):
        limited.free(a)
    limited.check_invariants()
    for bad in (0, -1, "0", True, 1.5):
        with pytest.raises((ValueError, TypeError)):
            Limited(driver, bad)  # type: ignore[arg-type]


def test_two_managers_share_a_device_under_limits_of_their_own() -> None:
    driver = SimDriver(4096)
    one, two = (Manager(Limited(driver, 2048)) for _ in range(2))
    for manager in (one, two):
        keys = [manager.add(np.full(1024, at, np.uint8)) for at in range(4)]
        for key in keys:
            with manager.use(key):
                pass
        assert [manager.read(key, np.empty(1024, np.uint8))[0] for key in keys] == [0, 1, 2, 3]
        assert manager.statistics().limit == 2048
    assert driver.in_use == 4096
    one.close()
    two.close()


def test_counting_that_begins_late_never_falls_below_zero() -> None:
    """BUG-056 (rapidsai/rmm#2404): three blocks are there already; they are freed, and a foreign one, and one twice."""
    driver = SimDriver()
    before = [driver.allocate(100) for _ in range(3)]
    counted = Counted(driver)
    mine = counted.allocate(50)
    for address in before:
        counted.free(address)
        counted.check_invariants()
    counted.free(mine)
    for address in (mine, 12345):
        with pytest.raises(BackendError):
            counted.free(address)
        counted.check_invariants()
    statistics = counted.statistics()
    assert (statistics.blocks, statistics.current_bytes, statistics.peak_bytes, statistics.total_bytes) == (
        0,
        0,
        50,
        50,
    )
    assert statistics.unknown_frees == 5
    assert statistics.calls == {"allocate": 1, "free": 6}


def test_calls_of_optional_abilities_are_counted_and_told_too() -> None:
    lines: list[str] = []
    driver = Logged(Counted(SimDriver(latency=0)), lines.append)
    address, stream = driver.allocate(16), driver.create_stream()
    driver.view(address, 16)
    driver.copy_in(address, np.zeros(16, np.uint8), stream)
    with pytest.raises(BackendError):
        driver.free(1)
    assert driver.upstream.statistics().calls == {  # type: ignore[attr-defined]
        "allocate": 1, "create_stream": 1, "view": 1, "copy_in": 1, "free": 1,
    }  # fmt: skip
    assert len(lines) == 5
    assert f"copy_in({address:#x}, <16 bytes>, {stream})" in lines[3]
    assert "free(1) raised BackendError" in lines[4]


def test_the_log_goes_to_a_logger_if_nothing_else_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "lifetimes.driver"):
        Logged(SimDriver()).memory_info()
    assert "memory_info() -> MemoryInfo(free=67108864, total=67108864)" in caplog.text


# Four functions.

MEMORY: dict[int, bytearray] = {}


def take(nbytes: int) -> int:
    address = 4096 * (len(MEMORY) + 1)
    MEMORY[address] = bytearray(nbytes)
    return address


def put(address: int, array: np.ndarray) -> None:
    MEMORY[address][: len(array)] = array.tobytes()


def get(array: np.ndarray, address: int) -> None:
    array[:] = np.frombuffer(MEMORY[address], np.uint8, len(array))


FOUR: dict[str, Any] = {
    "allocate": take,
    "free": lambda address: MEMORY[address].clear(),
    "copy_in": put,
    "copy_out": get,
}


def buffers(limit: int = 1 << 20, **options: object) -> Driver:
    """A driver over Python's own byte arrays as handles."""
    used: dict[int, int] = {}

    def allocate(nbytes: int) -> bytearray:
        if sum(used.values()) + nbytes > limit:
            raise MemoryError(f"{nbytes} more")
        buffer = bytearray(nbytes)
        used[id(buffer)] = nbytes
        return buffer

    def free(buffer: bytearray) -> None:
        del used[id(buffer)]

    def copy_in(buffer: bytearray, array: np.ndarray) -> None:
        buffer[: len(array)] = array.tobytes()

    def copy_out(array: np.ndarray, buffer: bytearray) -> None:
        array[:] = np.frombuffer(buffer, np.uint8, len(array))

    return simple_driver(allocate=allocate, free=free, copy_in=copy_in, copy_out=copy_out, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("total", [None, "4KiB"])
def test_a_manager_over_four_functions_evicts_reloads_and_counts(total: str | None) -> None:
    driver = buffers(4096, total=total)
    with Manager(driver, collect_garbage=False) as manager:
        keys = [manager.add(np.full(1024, at, np.uint8)) for at in range(10)]
        for key in keys:
            with manager.use(key, "rw") as address:
                driver.handle(address)[0] = 99  # type: ignore[attr-defined]
        assert all(manager.read(key, np.empty(1024, np.uint8))[0] == 99 for key in keys)
        statistics = manager.statistics()
        assert statistics.evictions >= 6
        assert statistics.resident == 4
        manager.check_invariants()
    assert "0 blocks" in repr(driver)


def test_handles_may_be_addresses() -> None:
    with Manager(simple_driver(**FOUR), memory_limit=2048) as manager:
        key = manager.add(np.arange(256, dtype=np.uint8))
        with manager.use(key) as address:
            assert MEMORY[address][:3] == b"\x00\x01\x02"
            assert manager.owner_of(address + 200) == (key, 200)
    assert simple_driver(**FOUR).memory_info() is None


def test_copies_inside_the_device_need_no_function_of_their_own() -> None:
    copied: list[int] = []

    def copy(to: bytearray, of: bytearray, nbytes: int) -> None:
        to[:nbytes] = of[:nbytes]
        copied.append(nbytes)

    for driver in (buffers(), buffers(copy=copy)):
        a, b, stream = driver.allocate(10), driver.allocate(10), driver.create_stream()
        driver.copy_in(a, np.arange(10, dtype=np.uint8), stream)
        driver.copy(b, a, 10, stream)
        out = np.empty(10, np.uint8)
        driver.copy_out(out, b, stream)
        assert out.tolist() == list(range(10))
        event = driver.create_event()
        driver.record(event, stream)
        driver.stream_wait(stream, event)
        driver.wait(event)
        assert driver.completed(event)
        driver.close()
        driver.close()
    assert copied == [10]


def test_only_the_errors_that_mean_out_of_memory_are_taken_for_it() -> None:
    class Full(Exception):
        pass

    def raising(error: Exception) -> object:
        def allocate(nbytes: int) -> object:
            raise error

        return allocate

    cases: list[tuple[Any, Exception, type[Exception]]] = [
        (MemoryError, MemoryError("x"), OutOfMemory), (MemoryError, Full("x"), BackendError), (Full, Full("x"), OutOfMemory),
        ((Full, MemoryError), Full("x"), OutOfMemory), (lambda error: "full" in str(error), Full("is full"), OutOfMemory),
        (lambda error: "full" in str(error), MemoryError("empty"), BackendError), (Full, OutOfMemory("x"), OutOfMemory),
    ]  # fmt: skip
    for spec, error, expected in cases:
        driver = simple_driver(**{**FOUR, "allocate": raising(error)}, out_of_memory=spec)
        with pytest.raises(expected):
            driver.allocate(100)
    for wrong in (0, -5):
        with pytest.raises(BackendError, match="cannot be"):
            simple_driver(**{**FOUR, "allocate": lambda nbytes, wrong=wrong: wrong}).allocate(1)


def test_errors_of_the_functions_name_the_function() -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("inside")

    driver = simple_driver(**{**FOUR, "copy_in": broken, "copy_out": broken, "free": broken})
    address = driver.allocate(8)
    data = np.zeros(8, np.uint8)
    for call, name in (
        (lambda: driver.copy_in(address, data, 1), "copy_in"), (lambda: driver.copy_out(data, address, 1), "copy_out"),
        (lambda: driver.free(address), "free"),
    ):  # fmt: skip
        with pytest.raises(BackendError, match=f"{name} of 'simple' failed: ZeroDivisionError: inside"):
            call()
    with pytest.raises(BackendError, match="no block"):
        driver.free(address)
