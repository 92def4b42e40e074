"""Limits: how they are written, how they change while the manager runs, and what caps the pool."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lifetimes.errors import BusyError, CleanupWarning, OutOfMemory
from lifetimes.manager import Manager
from lifetimes.testing.sim import SimDriver
from tests.unit.memory.scene import SIZE, Gate, Scene, Thread

BAD = [
    (0, ValueError), (-1, ValueError), (float("nan"), TypeError), (1.5, TypeError), (True, TypeError), ("1 XB", ValueError),
    ("0%", ValueError), ("101%", ValueError), ("-5%", ValueError), ("", ValueError), (2**70, ValueError), ("1TiB", ValueError),
    ("half", ValueError), ([1], TypeError),
]  # fmt: skip


@pytest.mark.parametrize(("limit", "error"), BAD)
def test_limits_that_cannot_be_are_refused_at_every_door(limit: Any, error: type[Exception]) -> None:
    """BUG-100 (rapidsai/dask-cuda#943)."""
    for name in ("memory_limit", "soft_limit"):
        with pytest.raises(error):
            Manager(SimDriver(1 << 20), **{name: limit})
    scene = Scene()
    for name in ("hard", "soft"):
        with pytest.raises(error):
            scene.manager.set_limit(**{name: limit})
    assert scene.manager.memory.limit == 4 * SIZE
    assert scene.manager.memory.soft is None
    scene.close()


@pytest.mark.parametrize(
    ("limit", "nbytes"), [(None, 1 << 20), (1, 1), ("64KiB", 1 << 16), ("25%", 1 << 18), ("64kB", 64000)]
)
def test_limits_mean_the_same_everywhere(limit: Any, nbytes: int) -> None:
    """BUG-100 (rapidsai/dask-cuda#943): None is all of the device and evicts nothing."""
    manager = Manager(SimDriver(1 << 20), memory_limit=limit)
    assert manager.statistics().limit == nbytes
    manager.set_limit(hard=1000)
    manager.set_limit(hard=limit)
    assert manager.statistics().limit == nbytes
    manager.close()


def test_without_a_limit_of_its_own_nothing_is_evicted_before_the_device_is_full() -> None:
    driver = SimDriver(16 * SIZE)
    with Manager(driver) as manager:
        for _ in range(16):
            with manager.use(manager.add(SIZE), "w"):
                pass
        assert manager.statistics().evictions == 0


def test_a_lower_limit_holds_when_the_call_returns_and_nothing_is_lost() -> None:
    scene = Scene(blocks=8)
    keys = scene.adds(8)
    for key in keys[:4]:
        scene.write(key, 50)
    scene.touch(*keys[4:])
    scene.manager.set_limit(hard=2 * SIZE)
    assert scene.driver.in_use <= 2 * SIZE
    scene.check()
    assert [scene.value(key) for key in keys] == [50] * 4 + [5, 6, 7, 8]
    scene.manager.set_limit(hard=None)
    assert scene.manager.memory.limit == scene.manager.total
    scene.close()


def test_a_hard_limit_below_what_is_pinned_is_refused_and_changes_nothing() -> None:
    scene = Scene(blocks=4)
    keys = scene.adds(4)
    scene.touch(*keys)
    with scene.manager.use_many([(key, "r") for key in keys[:3]]):
        with pytest.raises(BusyError, match="soft limit"):
            scene.manager.set_limit(hard=3 * SIZE - 1)
        assert scene.resident(*keys) == [True] * 4
        assert scene.manager.memory.limit == 4 * SIZE
        scene.manager.set_limit(hard=3 * SIZE)
        assert scene.resident(*keys) == [True] * 3 + [False]
    scene.close()


def test_a_hard_limit_that_cannot_be_reached_because_copies_fail_is_taken_back() -> None:
    scene = Scene(blocks=4)
    keys = scene.adds(4)
    for key in keys:
        scene.write(key, 7)
    scene.driver.faults.fail("copy_out", times=None, at="completion")
    with pytest.warns(CleanupWarning), pytest.raises(BusyError, match="copied back"):
        scene.manager.set_limit(hard=SIZE)
    scene.driver.faults.clear()
    assert scene.manager.memory.limit == 4 * SIZE
    assert [scene.value(key) for key in keys] == [7] * 4
    scene.close()


def test_a_soft_limit_applies_as_pins_drop() -> None:
    scene = Scene(blocks=8)
    keys = scene.adds(6)
    with scene.manager.use_many([(key, "r") for key in keys]):
        scene.manager.set_limit(soft=2 * SIZE)
        assert scene.manager.statistics().reserved_bytes == 6 * SIZE
        scene.driver.run_until_idle()
    assert sum(scene.resident(*keys)) == 2, "nobody has asked for anything meanwhile"
    assert scene.manager.statistics().reserved_bytes <= 2 * SIZE
    more = scene.add(9)
    with scene.manager.use_many([(key, "r") for key in (*keys[:3], more)]):
        assert scene.manager.statistics().reserved_bytes == 4 * SIZE, "it is only aimed at"
        scene.driver.run_until_idle()
    assert scene.manager.statistics().reserved_bytes <= 2 * SIZE
    assert [scene.value(key) for key in keys] == [1, 2, 3, 4, 5, 6]
    scene.manager.set_limit(soft=None)
    scene.touch(*keys, more)
    assert scene.manager.statistics().reserved_bytes == 7 * SIZE
    scene.close()


def test_a_soft_limit_that_cannot_be_reached_is_not_tried_for_ever() -> None:
    """There is no host memory to copy to; the next call may try again."""
    scene = Scene(blocks=4, host_limit=SIZE)
    keys = [scene.add(None) for _ in range(4)]
    for key in keys:
        scene.write(key, 7, "w")
    filler = scene.add(1)
    scene.manager.set_limit(soft=SIZE)
    assert sum(scene.resident(*keys)) == 4
    scene.manager.release(filler)
    scene.manager.statistics()
    scene.driver.run_until_idle()
    scene.manager.statistics()
    assert sum(scene.resident(*keys)) == 3
    scene.close()


def test_both_limits_at_once() -> None:
    scene = Scene(blocks=8)
    keys = scene.adds(8)
    scene.touch(*keys)
    scene.driver.run_until_idle()
    scene.manager.set_limit(hard=6 * SIZE, soft="4KiB")
    statistics = scene.manager.statistics()
    assert (statistics.limit, statistics.soft_limit) == (6 * SIZE, 4 * SIZE)
    assert statistics.reserved_bytes <= 4 * SIZE
    scene.close()


def test_a_limit_is_lowered_while_others_allocate() -> None:
    """The bytes that the driver is just being asked for cannot be given up."""
    scene = Scene(blocks=4)
    gate, keys = Gate(), scene.adds(4)
    scene.driver.faults.before("allocate", 1, gate.stop)
    user = Thread(scene.touch, keys[0])
    gate.wait()
    with pytest.raises(BusyError):
        scene.manager.set_limit(hard=SIZE - 1)
    scene.manager.set_limit(hard=2 * SIZE)
    gate.open()
    user.join()
    scene.touch(*keys)
    assert scene.driver.in_use <= 2 * SIZE
    scene.check()
    scene.close()


def test_the_pool_of_a_manager_is_capped_by_bytes_and_age() -> None:
    scene = Scene(blocks=8, pool_bytes=2 * SIZE)
    keys = scene.adds(6)
    scene.touch(*keys)
    scene.driver.run_until_idle()
    for key in keys:
        scene.manager.release(key)
    assert scene.manager.statistics().held_bytes == 2 * SIZE
    scene.close()
    aged = Scene(blocks=8, pool_age=1e-9)
    key = aged.add(1)
    aged.touch(key)
    aged.driver.run_until_idle()
    aged.manager.release(key)
    assert aged.manager.statistics().held_bytes == 0
    aged.close()


def test_an_array_larger_than_a_lowered_limit_says_so_at_its_next_use() -> None:
    scene = Scene(blocks=4)
    key = scene.add(1, nbytes=3 * SIZE)
    scene.touch(key)
    scene.driver.run_until_idle()
    scene.manager.set_limit(hard=2 * SIZE)
    with pytest.raises(OutOfMemory, match="3 KiB"):
        scene.touch(key)
    assert scene.value(key) == 1
    scene.close()


def test_what_is_read_counts_in_host_memory_only() -> None:
    scene = Scene(blocks=2)
    keys = scene.adds(6)
    assert [scene.value(key) for key in keys] == [1, 2, 3, 4, 5, 6]
    assert scene.driver.in_use == 0
    out = np.empty(SIZE, np.uint8)
    assert scene.manager.read(keys[0], out) is out
    scene.close()
