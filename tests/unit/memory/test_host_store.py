"""Host buffers: under a limit, pooled, and counted until nobody refers to them."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from lifetimes.errors import BusyError, OutOfMemory
from lifetimes.host_store import HostStore
from lifetimes.locks import lock
from lifetimes.testing.sim import SimDriver
from lifetimes.timeline import Timeline


def test_a_buffer_is_reused_warm_and_only_by_its_class() -> None:
    store = HostStore()
    first, second = store.take(1000), store.take(1000)
    base = second.base
    store.give(first)
    store.give(second)
    assert store.take(990).base is base, "the one given last"
    assert store.take(5000).base is not first.base
    store.check_invariants()


def test_no_bytes_cost_nothing() -> None:
    store = HostStore("1KiB")
    nothing = store.take(0)
    assert nothing.nbytes == 0
    store.give(nothing)
    assert store.statistics().used_bytes == store.statistics().held_bytes == 0


def test_the_limit_bounds_buffers_in_use_and_held_together() -> None:
    store = HostStore(4096)
    buffers = [store.take(1024) for _ in range(4)]
    with pytest.raises(OutOfMemory, match="no spill directory"):
        store.take(1)
    for buffer in buffers[:3]:
        store.give(buffer)
    del buffer
    buffers[:3] = []
    large = store.take(3000)
    assert store.statistics().peak_bytes <= 4096
    store.check_invariants()
    with pytest.raises(OutOfMemory, match="more than the host limit"):
        store.take(4097)
    store.give(large)
    assert store.take(4096 - 1024).nbytes == 3072
    store.check_invariants()


def test_what_is_held_is_bounded_by_itself_too() -> None:
    store = HostStore(held_limit=2048)
    buffers = [store.take(1024) for _ in range(4)]
    for buffer in buffers:
        store.give(buffer)
    assert store.statistics().held_bytes == 2048
    assert store.trim() == 2048
    del buffer, buffers
    assert store.statistics().used_bytes == store.statistics().held_bytes == 0
    store.check_invariants()


def test_a_buffer_that_somebody_still_refers_to_counts() -> None:
    """BUG-073 (dask/distributed#3756): both are alive, so both count; when both are gone, nothing does."""
    store = HostStore(4096)
    buffer = store.take(2048)
    store.give(buffer)
    store.trim()
    assert store.statistics().used_bytes == 2048
    with pytest.raises(OutOfMemory):
        store.take(4096)
    del buffer
    assert store.statistics().used_bytes == 0
    store.take(4096)


def test_a_buffer_with_a_copy_in_flight_waits_for_it() -> None:
    driver = SimDriver(manual=True)
    stream = Timeline(driver, driver.create_stream())
    store = HostStore(2048)
    buffer = store.take(2048)
    driver.copy_out(buffer, driver.allocate(2048), stream.handle)
    base = buffer.base
    store.give(buffer, [(stream, stream.tick())])
    with pytest.raises(RuntimeError, match="step"):
        store.take(2048)
    driver.run_until_idle()
    assert store.take(2048).base is base
    store.check_invariants()


def test_a_full_store_waits_for_copies_in_flight() -> None:
    driver = SimDriver()
    stream = Timeline(driver, driver.create_stream())
    store = HostStore(2048)
    buffer = store.take(2048)
    driver.copy_out(buffer, driver.allocate(2048), stream.handle)
    store.give(buffer, [(stream, stream.tick())])
    del buffer
    assert store.take(2048).nbytes == 2048
    assert driver.now > 0


def test_the_store_is_refused_inside_the_lock() -> None:
    store = HostStore()
    with lock, pytest.raises(BusyError, match="interrupted"):
        store.take(1)


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "x", "50%"])
def test_limits_are_checked(limit: Any) -> None:
    for name in ("limit", "held_limit"):
        with pytest.raises((ValueError, TypeError)):
            HostStore(**{name: limit})


def test_a_failed_allocation_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    store = HostStore(4096)

    def fail(*args: object) -> None:
        raise MemoryError("nothing left")

    monkeypatch.setattr(np, "empty", fail)
    with pytest.raises(MemoryError, match="nothing left"):
        store.take(1000)
    monkeypatch.undo()
    store.check_invariants()
    store.take(4096)


def test_many_threads_stay_under_the_limit_together() -> None:
    store = HostStore(10_240)
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for _ in range(300):
                try:
                    buffer = store.take(int(rng.integers(1, 3000)))
                except OutOfMemory:
                    continue
                buffer[:] = seed
                assert store._bytes <= 10_240
                assert (buffer == seed).all()
                store.give(buffer)
                del buffer
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    store.check_invariants()
    assert "10 KiB" in repr(store)
