"""Simulated memory: poison, reuse, and the rules that a caller can break."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lifetimes.errors import BackendError, ClosedError, OutOfMemory
from lifetimes.testing.sim import FREED, IN_FLIGHT, SimDriver

ONES = np.ones(64, np.uint8)
TWOS = np.full(64, 2, np.uint8)


@pytest.fixture
def driver() -> SimDriver:
    return SimDriver(4096, manual=True)


def shows(driver: SimDriver, address: int, value: int, nbytes: int = 64) -> bool:
    return bool((driver.view(address, nbytes) == value).all())


def test_new_and_freed_memory_is_poisoned(driver: SimDriver) -> None:
    address = driver.allocate(64)
    assert shows(driver, address, FREED)
    view = driver.view(address, 64)
    view[:] = 7
    driver.free(address)
    assert (view == FREED).all(), "a stale view shows it"


def test_the_destination_of_a_copy_is_poisoned_until_it_completes(driver: SimDriver) -> None:
    stream, address = driver.create_stream(), driver.allocate(64)
    other = driver.allocate(64)
    driver.view(address, 64)[:] = 9
    driver.copy_in(address, ONES, stream)
    assert shows(driver, address, IN_FLIGHT)
    driver.step()
    assert shows(driver, address, 1)
    driver.copy(other, address, 64, stream)
    assert shows(driver, other, IN_FLIGHT)
    found = np.zeros(64, np.uint8)
    driver.step()
    driver.copy_out(found, other, stream)
    assert (found == IN_FLIGHT).all()
    driver.step()
    assert (found == 1).all()


def test_poison_waits_for_commands_that_still_need_the_old_content(driver: SimDriver) -> None:
    """Read, then overwrite, on one stream: a right program, which poison must not break."""
    stream, address = driver.create_stream(), driver.allocate(64)
    driver.view(address, 64)[:] = 9
    before, after = np.zeros(64, np.uint8), np.zeros(64, np.uint8)
    driver.copy_out(before, address, stream)
    driver.copy_in(address, ONES, stream)
    driver.copy_out(after, address, stream)
    driver.copy_in(address, before, stream)  # a host array as both ends
    assert shows(driver, address, 9)
    driver.step()
    assert shows(driver, address, IN_FLIGHT)
    driver.run_until_idle()
    assert (before == 9).all()
    assert (after == 1).all()
    assert shows(driver, address, 9)


def test_poison_waits_for_functions_that_still_need_the_old_content(driver: SimDriver) -> None:
    stream, address = driver.create_stream(), driver.allocate(64)
    driver.copy_in(address, ONES, stream)
    found = np.zeros(64, np.uint8)
    driver.call(np.copyto, (found, driver.view(address, 64)), stream)
    driver.copy_in(address, ONES * 2, stream)
    driver.run_until_idle()
    assert (found == 1).all()
    assert shows(driver, address, 2)


def test_a_copy_reads_its_source_when_it_completes(driver: SimDriver) -> None:
    """Whoever reuses device memory under a copy in flight gets wrong data, as on a device (meta-pytorch/torchrec#4231)."""
    stream, address, found = driver.create_stream(), driver.allocate(64), np.zeros(64, np.uint8)
    driver.view(address, 64)[:] = 1
    driver.copy_out(found, address, stream)
    driver.view(address, 64)[:] = 2
    driver.run_until_idle()
    assert (found == 2).all()
    source = ONES.copy()
    driver.copy_in(address, source, stream)
    source[:] = 3
    driver.run_until_idle()
    assert shows(driver, address, 3)


def test_an_unordered_read_on_another_stream_sees_poison(driver: SimDriver) -> None:
    fast, slow = driver.create_stream(), driver.create_stream()
    address, found = driver.allocate(64), np.zeros(64, np.uint8)
    driver.latency = lambda kind, nbytes: 5.0 if kind == "copy_in" else 1.0
    driver.copy_in(address, ONES, slow)
    driver.copy_out(found, address, fast)
    driver.run_until_idle()
    assert (found == IN_FLIGHT).all()


def test_the_range_freed_last_is_given_out_first(driver: SimDriver) -> None:
    first, second, other = driver.allocate(100), driver.allocate(200), driver.allocate(300)
    driver.free(first)
    driver.free(second)
    driver.free(other)
    assert driver.allocate(256) == second, "the same rounded size"
    assert driver.allocate(1) == first
    assert driver.allocate(1) not in (first, second, other)
    assert driver.allocate(512) == other


def test_a_stale_view_meets_the_next_owner(driver: SimDriver) -> None:
    stale = driver.view(driver.allocate(64), 64)
    (address,) = driver.live_blocks
    driver.free(address)
    assert driver.allocate(64) == address
    stale[:] = 5
    assert shows(driver, address, 5)


def test_addresses_are_new_each_time_if_asked() -> None:
    driver = SimDriver(4096, reuse_addresses=False)
    seen = set()
    for _ in range(50):
        address = driver.allocate(100)
        seen.add(address)
        driver.free(address)
    assert len(seen) == 50
    driver.check_invariants()


def test_addresses_are_no_pointers_and_blocks_do_not_touch(driver: SimDriver) -> None:
    first, second = driver.allocate(256), driver.allocate(256)
    assert first > 2**48, "beyond what a process can address"
    assert second - first > 256


def test_what_is_kept_for_reuse_is_bounded() -> None:
    driver = SimDriver(10_000)
    for nbytes in range(1, 10_000, 100):
        driver.free(driver.allocate(nbytes))
        driver.check_invariants()


def test_accounting_is_exact(driver: SimDriver) -> None:
    first, second = driver.allocate(1), driver.allocate(4095)
    assert driver.in_use == 4096
    assert driver.live_blocks == {first: 1, second: 4095}
    with pytest.raises(OutOfMemory, match="4,096 of 4,096"):
        driver.allocate(1)
    driver.free(first)
    assert driver.memory_info().free == 1
    assert driver.counts["allocate"] == 3
    assert driver.calls("allocate") == [(first, 1), (second, 4095)]
    assert driver.calls("free") == [first]
    assert driver.violations == []


def in_flight(driver: SimDriver) -> tuple[int, int]:
    stream, address = driver.create_stream(), driver.allocate(64)
    driver.copy_in(address, ONES, stream)
    return stream, address


def freed(driver: SimDriver) -> int:
    address = driver.allocate(64)
    driver.free(address)
    return address


def dead(driver: SimDriver, kind: str) -> Any:
    handle = getattr(driver, f"create_{kind}")()
    getattr(driver, f"destroy_{kind}")(handle)
    return handle


GAPS = np.zeros((8, 8), np.uint8)[:, ::2]
READ_ONLY = np.frombuffer(bytes(8), np.uint8)
BREACHES: dict[str, Callable[[SimDriver], object]] = {
    "freed already": lambda d: d.free(freed(d)),
    "never allocated": lambda d: d.free(12345),
    "never allocated, inside": lambda d: d.free(d.allocate(600) + 256),
    "freed with 1 commands in flight": lambda d: d.free(in_flight(d)[1]),
    "destroyed with 1 commands in flight": lambda d: d.destroy_stream(in_flight(d)[0]),
    "lies in no live block": lambda d: d.copy_in(freed(d), ONES, d.create_stream()),
    "lies in no live block, view": lambda d: d.view(freed(d), 1),
    "run past the end": lambda d: d.copy_in(d.allocate(63), ONES, d.create_stream()),
    "at least 1 byte": lambda d: d.allocate(0),
    "at least 1 byte, negative": lambda d: d.allocate(-5),
    "no live stream": lambda d: d.synchronize(dead(d, "stream")),
    "no live stream, copy": lambda d: d.copy_in(d.allocate(64), ONES, dead(d, "stream")),
    "no live stream, None": lambda d: d.record(d.create_event(), None),  # type: ignore[arg-type]
    "no live event": lambda d: d.completed(dead(d, "event")),
    "no live event, twice": lambda d: d.destroy_event(dead(d, "event")),
    "no live event, record": lambda d: d.record(dead(d, "event"), d.create_stream()),
    "not C-contiguous": lambda d: d.copy_in(d.allocate(64), GAPS, d.create_stream()),
    "not writable": lambda d: d.copy_out(READ_ONLY, d.allocate(64), d.create_stream()),
    "overlapping": lambda d: d.copy((a := d.allocate(100)), a + 10, 50, d.create_stream()),
    "copy of -1 bytes": lambda d: d.copy((a := d.allocate(100)), a + 10, -1, d.create_stream()),
}


@pytest.mark.parametrize("words", BREACHES)
def test_a_broken_rule_raises_and_is_kept(driver: SimDriver, words: str) -> None:
    with pytest.raises(BackendError) as caught:
        BREACHES[words](driver)
    assert words.partition(",")[0] in str(caught.value)
    assert driver.violations == [str(caught.value)]
    driver.check_invariants()
    driver.manual = False
    driver.close()


def test_what_was_refused_changed_nothing(driver: SimDriver) -> None:
    stream, address = in_flight(driver)
    for refused in (driver.free, driver.destroy_stream):
        with pytest.raises(BackendError):
            refused(address if refused == driver.free else stream)
    driver.run_until_idle()
    assert shows(driver, address, 1)
    driver.free(address)
    driver.destroy_stream(stream)
    assert (driver.live_blocks, driver.live_streams) == ({}, [])


def test_handles_come_back_and_a_dead_handle_means_a_stranger(driver: SimDriver) -> None:
    """A ticket kept for longer than its stream finds another stream behind the handle (pytorch/pytorch#66941)."""
    first, second = driver.create_stream(), driver.create_stream()
    driver.destroy_stream(first)
    driver.destroy_stream(second)
    assert driver.create_stream() == second
    assert driver.create_stream() == first
    event = driver.create_event()
    driver.destroy_event(event)
    assert driver.create_event() == event
    fresh = SimDriver(reuse_handles=False)
    assert len({dead(fresh, "event") for _ in range(10)}) == 10


def test_closing_takes_everything_back(driver: SimDriver) -> None:
    view = driver.view(driver.allocate(64), 64)
    driver.create_stream()
    driver.create_event()
    driver.load(driver.compile("def kernel(x): pass"))
    driver.close()
    assert (driver.live_blocks, driver.live_streams, driver.live_events, driver.live_modules) == ({}, [], [], [])
    assert (view == FREED).all()
    assert driver.violations == []
    with pytest.raises(ClosedError):
        driver.allocate(1)
    driver.close()


def test_closing_over_work_in_flight_is_kept_as_a_violation(driver: SimDriver) -> None:
    in_flight(driver)
    driver.close()
    (violation,) = driver.violations
    assert "1 commands in flight" in violation


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: setattr(d._memory, "used", d._memory.used + 1),
        lambda d: setattr(d._memory.blocks()[0], "pending", 1),
        lambda d: d._time.streams.clear(),
        lambda d: d._streams._free.append(d.live_streams[0]),
        lambda d: d._memory._freed[256].append((d._memory.blocks()[0].address, ONES)),
    ],
)
def test_check_invariants_sees_what_is_wrong(driver: SimDriver, spoil: Callable[[Any], object]) -> None:
    driver.allocate(100)
    driver.create_stream()
    driver.check_invariants()
    spoil(driver)
    with pytest.raises(AssertionError):
        driver.check_invariants()
