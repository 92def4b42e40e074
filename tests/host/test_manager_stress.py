"""Real memory, real threads, checksums; few rounds and small sizes every time, many and large ones with ``-m stress``."""

from __future__ import annotations

import gc
import os
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest

import lifetimes
from lifetimes.errors import OutOfMemory
from lifetimes.manager import Manager
from lifetimes_host import HostDriver
from tests.unit.memory.scene import LONG, Thread


def resident_bytes() -> int:
    """What the process has in memory now."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pytest.skip("no /proc here")


@pytest.mark.parametrize("rounds", [100, pytest.param(2000, marks=LONG)])
@pytest.mark.parametrize("policy", ["lru", "sieve"])
def test_eight_threads_with_checksums(policy: str, rounds: int, tmp_path: Path) -> None:
    """Each array has one writer at a time; readers on other threads see whole contents only."""
    driver = HostDriver(1 << 24)
    manager = Manager(
        driver,
        memory_limit="1MiB",
        host_limit="1MiB",
        spill_dir=tmp_path,
        policy=policy,
        table="sorted",
        pool_bytes="256KiB",
    )
    sizes = [1000, 4096, 20_000, 65_536]
    keys = [manager.add(np.zeros(sizes[at % 4], np.uint8)) for at in range(64)]
    guards = [threading.Lock() for _ in keys]

    def whole(data: np.ndarray) -> bool:
        return bool((data == data[0]).all())

    def work(seed: int) -> int:
        rng = np.random.default_rng(seed)
        checksum = 0
        for _ in range(rounds):
            at = int(rng.integers(len(keys)))
            key, size, kind = keys[at], sizes[at % 4], int(rng.integers(7))
            with guards[at]:
                if kind == 0:
                    value = int(rng.integers(1, 255))
                    with manager.use(key, "rw") as address:
                        driver.call(np.copyto, (driver.view(address, size), np.uint8(value)), manager.stream.handle)
                    assert manager.read(key, np.empty(size, np.uint8))[0] == value
                elif kind == 1:
                    out = manager.read(key, np.empty(size, np.uint8))
                    assert whole(out)
                    checksum = zlib.crc32(out.data, checksum)
                elif kind == 2:
                    manager.evict(key)
                elif kind == 3:
                    manager.prefetch(key)
                elif kind == 4:
                    other = keys[(at + 1) % len(keys)]
                    with manager.use_many([(key, "r"), (other, "r")]) as addresses:
                        assert all(addresses)
                elif kind == 5:
                    manager.write(key, np.full(size, int(rng.integers(1, 255)), np.uint8))
                else:
                    temporary = manager.add(np.full(size, 7, np.uint8))
                    with manager.use(temporary):
                        pass
                    manager.release(temporary)
        return checksum

    threads = [Thread(work, seed) for seed in range(8)]
    for thread in threads:
        thread._thread.join(600)
        thread.join()
    manager.check_invariants()
    for key, size in zip(keys, sizes * 16, strict=True):
        assert whole(manager.read(key, np.empty(size, np.uint8)))
    statistics = manager.statistics()
    assert statistics.evictions > 50
    assert statistics.peak_bytes <= 1 << 20
    assert manager.host_store.statistics().peak_bytes <= 1 << 20
    manager.close()
    driver.check_invariants()
    driver.close()


def test_limits_reclaims_and_eight_threads() -> None:
    driver = HostDriver(1 << 24)
    manager = Manager(driver, memory_limit="512KiB", pin_timeout=20.0)
    keys = [manager.add(np.full(16_384, at, np.uint8)) for at in range(60)]
    stop: list[None] = []

    def use(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(150):
            chosen = rng.choice(len(keys), 3, replace=False)
            with manager.use_many([(keys[int(at)], "r") for at in chosen]) as addresses:
                for address, at in zip(addresses, chosen, strict=True):
                    driver.synchronize(manager.stream.handle)
                    assert driver.view(address, 16_384)[5] == at

    def meddle() -> None:
        rng = np.random.default_rng(99)
        while not stop:
            try:
                manager.set_limit(hard=int(rng.integers(300, 512)) << 10, soft=int(rng.integers(100, 512)) << 10)
            except lifetimes.BusyError:
                pass
            manager.reclaim("wait")
            manager.statistics()

    threads = [Thread(use, seed) for seed in range(6)]
    meddlers = [Thread(meddle) for _ in range(2)]
    for thread in threads:
        thread._thread.join(300)
        thread.join()
    stop.append(None)
    for thread in meddlers:
        thread.join()
    manager.check_invariants()
    manager.close()
    driver.close()


@pytest.mark.parametrize("cycles", [10_000, pytest.param(100_000, marks=LONG)])
def test_many_evictions_and_reloads_leave_nothing_behind(cycles: int) -> None:
    """Hazard of the ancestors: one more finalizer for each. Memory stays flat, statistics balance to zero."""
    with lifetimes.open("host", memory_limit="64KiB") as device:
        arrays = [device.asarray(np.full(8192, at, np.uint8)) for at in range(16)]
        manager = device.manager
        cells = [array._cell for array in arrays]

        def cycle(count: int) -> None:
            for at in range(count):
                key = arrays[at % 16].key
                with manager.use(key, "rw"):
                    pass
                if at % 3 == 0:
                    assert manager.evict(key)

        cycle(1000)
        gc.collect()
        objects = len(gc.get_objects())  # first: the list of them takes megabytes in a large process
        before = resident_bytes()
        cycle(cycles)
        gc.collect()
        assert resident_bytes() - before < 4 << 20
        assert len(gc.get_objects()) - objects < 500
        assert not any(cell.added for cell in cells), "the finalizer that each began with, and no other"
        assert manager.statistics().evictions > cycles // 2
        assert all((array.numpy() == at).all() for at, array in enumerate(arrays))
        for array in arrays:
            array.close()
        statistics = manager.statistics()
        assert (statistics.arrays, statistics.array_bytes, statistics.resident_bytes, statistics.dirty_bytes) == (
            0,
            0,
            0,
            0,
        )
        assert manager.host_store.statistics().used_bytes == 0
        manager.check_invariants()


@pytest.mark.parametrize(
    "total", [pytest.param(1 << 30, marks=pytest.mark.slow), pytest.param(8 << 30, marks=LONG)], ids=["1 GiB", "8 GiB"]
)
def test_arrays_eight_times_the_device_and_four_times_the_host(total: int, tmp_path: Path) -> None:
    """The content is intact."""
    limit, host_limit, nbytes = total // 8, total // 4, total // 128
    driver = HostDriver(limit + (1 << 20))
    manager = Manager(driver, memory_limit=limit, host_limit=host_limit, spill_dir=tmp_path)
    count = total // nbytes
    pattern = (np.arange(nbytes, dtype=np.uint32) * 2654435761 >> 24).astype(np.uint8)
    keys = [manager.add(pattern + np.uint8(at)) for at in range(count)]

    def add(view: np.ndarray, number: int) -> None:
        np.add(view, np.uint8(number % 256), out=view)

    for at, key in enumerate(keys):
        with manager.use(key, "rw") as address:
            driver.call(add, (driver.view(address, nbytes), 3 * at), manager.stream.handle)
    out = np.empty(nbytes, np.uint8)
    for at, key in enumerate(keys):
        manager.read(key, out)
        assert np.array_equal(out, pattern + np.uint8(4 * at % 256))
    statistics, host = manager.statistics(), manager.host_store.statistics()
    assert statistics.peak_bytes <= limit
    assert host.peak_bytes <= host_limit
    assert statistics.peak_spilled_bytes >= total - limit - host_limit - 2 * nbytes
    manager.check_invariants()
    manager.close()
    driver.close()
    assert list(tmp_path.iterdir()) == []


def test_an_out_of_memory_keeps_no_array_alive() -> None:
    with lifetimes.open("host", memory_limit="64KiB") as device:
        array = device.empty(8000, "u1")
        key = array.key
        try:
            with device.use(read=[array]):
                with device.use(write=[device.empty(65_000, "u1")]):
                    pass
        except OutOfMemory as error:
            kept = error.with_traceback(None)
            kept.__context__ = None
        del array
        assert device.manager.table.get(key) is None
        assert "64" in str(kept)
