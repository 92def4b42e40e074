"""The allocation ladder: what is given up, in which order, before a request fails, and what the error says."""

from __future__ import annotations

import contextlib
import gc
import random
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
import pytest

from lifetimes.device import Device
from lifetimes.errors import BackendError, CleanupWarning, OutOfMemory
from lifetimes.manager import Manager
from lifetimes.manager.eviction import TRIES
from lifetimes.manager.shortage import Shortage
from lifetimes.origins import get_stacks, set_stacks
from lifetimes.policies.lru import LRUPolicy
from lifetimes.testing.sim import SimDriver
from tests.unit.memory.scene import SIZE, Gate, Scene, Thread


def test_pinned_arrays_stay_and_do_not_slow_the_next_search() -> None:
    """BUG-074 (redpanda-data/redpanda#29991): at most about two looks at each, however many are pinned."""
    looks = 0

    class Counting(LRUPolicy):
        def candidates(self) -> Iterator[int]:
            nonlocal looks
            for key in super().candidates():
                looks += 1
                yield key

    count = 10_000
    driver = SimDriver(1 << 30)
    manager = Manager(driver, memory_limit=(count + 2) * 256, policy=Counting(), collect_garbage=False)
    pinned = [manager.add(256) for _ in range(count)]
    with manager.use_many([(key, "w") for key in pinned]):
        free = [manager.add(256) for _ in range(200)]
        for key in free:
            with manager.use(key, "w"):
                pass
        assert looks <= 2 * count + 2 * len(free)
    manager.check_invariants()
    assert len(manager.policy) == count + 2, "the last unpin puts them back"
    manager.close()


def test_asking_for_ten_times_what_there_is_gives_what_there_is() -> None:
    """BUG-074 (redpanda-data/redpanda#29991)."""
    scene = Scene(blocks=4)
    keys = scene.adds(4)
    scene.touch(*keys)
    assert scene.manager.evictor.evict_some(40 * SIZE)
    assert scene.resident(*keys) == [False] * 4
    assert not scene.manager.evictor.evict_some(40 * SIZE)
    scene.close()


def test_when_everything_is_pinned_it_fails_at_once_and_names_the_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    """BUG-016 (AccelerateHS/accelerate#255): one pass over the candidates, and no waiting for what cannot come."""
    scene = Scene(blocks=4)

    def wait(*args: object) -> NoReturn:
        raise AssertionError("it waits for its own pins")

    monkeypatch.setattr(type(scene.manager.waiting), "wait", wait)
    keys = scene.adds(4)
    extra = scene.add(9)
    with scene.manager.use_many([(key, "r") for key in keys]):
        with pytest.raises(OutOfMemory, match="pinned=4"), scene.manager.use(extra):
            pass
        scene.check()
    with scene.manager.use_many([(key, "r") for key in keys[1:]]), scene.manager.use(extra):
        pass
    scene.close()


def test_a_victim_that_is_pinned_right_after_it_was_chosen_ends_the_search_too() -> None:
    """BUG-016 (AccelerateHS/accelerate#255): while it is copied back, a use takes it, again and again."""
    scene = Scene(blocks=4)
    keys = scene.adds(4)
    for key in keys:
        scene.write(key, 5)
    uses: list[Any] = []

    def take_them_all() -> None:
        for key in keys:
            if scene.entry(key).owner == 0 and len(uses) < 4:
                use = scene.manager.use(key)
                use.__enter__()
                uses.append(use)

    scene.driver.faults.before("copy_out", 1, take_them_all, times=None)
    with pytest.raises(OutOfMemory), scene.manager.use(scene.add(None, nbytes=4 * SIZE), "w"):
        pass
    for use in uses:
        use.__exit__(None, None, None)
    scene.driver.faults.clear()
    scene.check()
    assert [scene.value(key) for key in keys] == [5] * 4
    scene.close()


def test_a_copy_that_cannot_be_enqueued_leaves_the_array_and_the_next_victim_goes() -> None:
    scene = Scene(blocks=2)
    keys = scene.adds(2)
    for key in keys:
        scene.write(key, key % 100)
    scene.driver.run_until_idle()
    scene.driver.faults.fail("copy_out")
    with pytest.warns(CleanupWarning, match="stays on the device"):
        scene.touch(scene.add(9))
    assert scene.resident(*keys) == [True, False]
    assert [scene.value(key) for key in keys] == [key % 100 for key in keys]
    scene.close()


@pytest.mark.parametrize("at", ["call", "completion"])
def test_copies_that_always_fail_end_in_an_error_and_lose_nothing(at: Any) -> None:
    scene = Scene(blocks=3)
    keys = scene.adds(3)
    for key in keys:
        scene.write(key, 70)
    extra = scene.add(9)
    scene.driver.faults.fail("copy_out", times=None, at=at)
    with pytest.warns(CleanupWarning), pytest.raises(OutOfMemory):
        scene.touch(extra)
    assert scene.driver.faults.strikes < 40
    scene.driver.faults.clear()
    scene.check()
    assert [scene.value(key) for key in keys] == [70] * 3
    scene.touch(extra)
    scene.close()


@pytest.mark.parametrize(("at", "latency"), [("call", 1.0), ("completion", 1.0), ("completion", 0)])
def test_copies_that_always_fail_are_not_tried_for_ever_and_what_needs_none_goes_instead(
    at: Any, latency: float
) -> None:
    """However many arrays there are, and however fast the device says no."""
    scene = Scene(blocks=101, total=1 << 20, latency=latency)
    written = scene.adds(100)
    for key in written:
        scene.write(key, 70)
    clean, one, two = scene.add(1), scene.add(2), scene.add(3, nbytes=2 * SIZE)
    scene.touch(clean)
    scene.driver.run_until_idle()
    scene.driver.faults.fail("copy_out", times=None, at=at)
    with pytest.warns(CleanupWarning):
        scene.touch(one)
    assert scene.resident(clean, one) == [False, True], "the clean one, although it was used last"
    with pytest.warns(CleanupWarning), pytest.raises(OutOfMemory):
        scene.touch(two)
    assert scene.driver.faults.strikes <= 4 * TRIES
    scene.driver.faults.clear()
    assert [scene.value(key) for key in written] == [70] * 100
    scene.close()


def test_without_host_memory_what_needs_no_copy_goes() -> None:
    scene = Scene(blocks=21, host_limit=SIZE)
    written = [scene.add(None) for _ in range(20)]
    for key in written:
        scene.write(key, 70, "w")
    clean, extra = (
        scene.add(1, copy=False),
        scene.add(2),
    )  # the first has host memory of its own, the second all there is
    scene.touch(clean)
    scene.driver.run_until_idle()
    scene.touch(extra)
    assert scene.resident(clean, extra, *written) == [False] + [True] * 21
    assert scene.driver.counts["copy_out"] == 0
    scene.close()


def test_no_error_that_was_dealt_with_or_raised_is_kept() -> None:
    """Neither by the frames it went through, nor those by it: whoever drops it frees what they hold."""
    scene, gate = Scene(blocks=1, pin_timeout=0.0), Gate()
    used, wanted = scene.adds(2)

    def hold() -> None:
        with scene.manager.use(used):
            gate.stop()

    def shortages() -> int:
        return sum(isinstance(each, (Shortage, OutOfMemory)) for each in gc.get_objects())

    calls = (
        lambda: scene.touch(wanted),
        lambda: scene.manager.use_many([(used, "r"), (wanted, "r")]).__enter__(),
        lambda: scene.manager.prefetch(wanted),
    )
    gc.collect()
    gc.disable()
    try:
        before = shortages()
        with scene.manager.use(used):
            for call in calls:
                with contextlib.suppress(OutOfMemory):
                    call()
        assert shortages() == before, "only its own pin in the way"
        holder = Thread(hold)
        gate.wait()
        for call in calls:
            with contextlib.suppress(OutOfMemory):
                call()
        assert shortages() == before, "another thread's pin in the way"
        gate.open()
        holder.join()
    finally:
        gc.enable()
    scene.close()


def test_a_driver_with_less_memory_than_the_limit_is_served_by_evicting_more() -> None:
    """Somebody else has taken the rest of the device."""
    driver = SimDriver(8 * SIZE)
    manager = Manager(driver, memory_limit=8 * SIZE, collect_garbage=False)
    keys = [manager.add(np.full(SIZE, at, np.uint8)) for at in range(8)]
    taken = driver.allocate(3 * SIZE)
    for key in keys:
        with manager.use(key, "rw"):
            pass
    large = manager.add(np.full(4 * SIZE, 99, np.uint8))
    with manager.use(large):
        pass
    manager.check_invariants()
    assert [manager.read(key, np.empty(SIZE, np.uint8))[0] for key in keys] == list(range(8))
    manager.close()
    driver.free(taken)
    assert driver.live_blocks == {}


def test_an_array_that_is_too_large_for_the_driver_fails_after_everything_was_tried() -> None:
    driver = SimDriver(8 * SIZE)
    manager = Manager(driver, memory_limit=8 * SIZE, collect_garbage=False)
    keys = [manager.add(np.full(SIZE, at, np.uint8)) for at in range(3)]
    for key in keys:
        with manager.use(key, "rw"):
            pass
    taken = driver.allocate(4 * SIZE)
    with pytest.raises(OutOfMemory, match="tried: pool, driver, drain, purge, evict"):
        with manager.use(manager.add(5 * SIZE), "w"):
            pass
    assert [manager.read(key, np.empty(SIZE, np.uint8))[0] for key in keys] == list(range(3))
    driver.free(taken)
    manager.close()


def test_only_an_out_of_memory_is_retried() -> None:
    scene = Scene(blocks=2)
    keys = scene.adds(2)
    scene.touch(*keys)
    scene.manager.set_limit(hard=4 * SIZE)
    tries = scene.driver.counts["allocate"]
    scene.driver.faults.fail("allocate", error=BackendError)
    with pytest.raises(BackendError, match="planned"):
        scene.touch(scene.add(3))
    assert scene.driver.counts["allocate"] == tries + 1
    assert scene.resident(*keys) == [True, True]
    scene.close()


def test_blocks_held_for_reuse_are_given_back_before_a_limit_is_called_exceeded() -> None:
    """BUG-031 (cupy/cupy#7678): limit 1000, 500 taken and given back, 800 asked for."""
    driver = SimDriver(4096)
    manager = Manager(driver, memory_limit=1000)
    first = manager.add(500)
    with manager.use(first, "w"):
        pass
    manager.release(first)
    statistics = manager.statistics()
    assert (statistics.reserved_bytes, statistics.held_bytes) == (512, 512)
    with manager.use(manager.add(800), "w"):
        statistics = manager.statistics()
        assert statistics.held_bytes == 0
        assert 800 <= statistics.reserved_bytes <= 1000
    manager.close()


def test_a_small_block_between_does_not_spoil_a_large_one() -> None:
    """BUG-055 (DiamondLightSource/httomo#667): blocks are never split, and idle ones go back when others are wanted."""
    scene = Scene(blocks=8)
    scene.touch(scene.add(1), temporary := scene.add(2, nbytes=4 * SIZE))
    scene.manager.release(temporary)
    scene.touch(scene.add(3))
    with scene.manager.use_many([(scene.add(4), "r"), (scene.add(5, nbytes=4 * SIZE), "r")]):
        assert scene.manager.statistics().evictions == 0
    whole = scene.add(6, nbytes=8 * SIZE)
    assert scene.on_device(whole) == 6
    scene.close()


def test_memory_that_is_free_can_be_had_whatever_came_before() -> None:
    """BUG-055 (DiamondLightSource/httomo#667): at random; a request is served if it fits beside what is in use."""
    rng = random.Random(55)
    scene = Scene(blocks=16)
    live: dict[int, int] = {}
    sizes = [256, 512, 1024, 3 * SIZE, 4 * SIZE, 8 * SIZE]
    for _ in range(50_000):
        nbytes = rng.choice(sizes)
        if sum(live.values()) + nbytes <= 16 * SIZE:
            key = scene.add(nbytes=nbytes)
            with scene.manager.use(key, "w"):
                live[key] = nbytes
        else:
            key = rng.choice(list(live))
            scene.manager.release(key)
            del live[key]
    assert scene.manager.statistics().evictions == 0
    scene.check()
    scene.close()


def test_the_retry_holds_no_reference_to_what_it_frees() -> None:
    """BUG-082 (cupy/cupy#1256): limit 100, 30 in use, 30 dropped, 60 asked for: the first try succeeds."""
    driver = SimDriver(200 * 1024)
    manager = Manager(driver, memory_limit=100 * 1024)
    x, y = manager.add(30 * 1024), manager.add(30 * 1024)
    with manager.use(x, "w"):
        with manager.use(y, "w") as at_y:
            pass
        manager.release(y)
        with manager.use(manager.add(60 * 1024), "w"):
            log = [(kind, detail) for kind, detail in driver.log if kind in ("allocate", "free")]
            freed, last = log.index(("free", at_y)), max(at for at, (kind, _) in enumerate(log) if kind == "allocate")
            assert freed < last
    manager.close()


def test_after_a_wait_the_pool_is_asked_before_anything_else() -> None:
    """BUG-083 (pytorch/pytorch#189504): a block of 80 waits for an event; a request of 80 gets that block."""
    driver = SimDriver(100 * 1024)
    manager = Manager(driver, memory_limit=100 * 1024)
    other = manager.transfer
    first = manager.add(80 * 1024)
    with manager.use(first, "w", other) as address:
        driver.call(int, (), other.handle)
    manager.release(first)
    with manager.use(manager.add(80 * 1024), "w") as again:
        assert again == address
    assert manager.statistics().rungs["in-flight"] == 1
    assert driver.counts["allocate"] == 1
    manager.close()


def test_a_copy_that_is_done_at_once_leaves_its_block_to_who_wanted_it() -> None:
    """As after a wait: the pool is asked before anything else is tried, and the driver not at all."""
    scene = Scene(blocks=2, latency=0)
    keys = scene.adds(6)
    for _ in range(5):
        for key in keys:
            scene.write(key, 7)
    assert scene.manager.statistics().rungs == {"driver": 2, "evict": 28}
    assert scene.driver.counts["allocate"] == 2
    scene.close()


def test_each_rung_is_tried_in_order_and_counted() -> None:
    scene = Scene(blocks=2)
    manager = scene.manager
    a, b = scene.adds(2)
    scene.touch(a, b)
    assert manager.statistics().rungs == {"driver": 2}
    manager.release(a)
    c = scene.add(3)
    scene.touch(c)
    assert manager.statistics().rungs == {"driver": 2, "pool": 1}
    scene.driver.run_until_idle()
    d = scene.add(4)
    scene.touch(d)
    assert manager.statistics().rungs["evict"] == 1
    for key in (c, d):
        scene.write(key, 9)
    e = scene.add(5)
    scene.touch(e)
    assert manager.statistics().rungs["copy-back"] == 1
    scene.driver.run_until_idle()
    with manager.use_many([(key, "r") for key in (c, d)]), pytest.raises(OutOfMemory) as caught, manager.use(e):
        pass
    assert "tried: pool, driver, drain, purge, evict, copy-back, in-flight, hooks, collect" in str(caught.value)
    scene.close()


def test_the_error_says_where_the_arrays_were_made() -> None:
    before = get_stacks()
    set_stacks("line")
    try:
        with Device(SimDriver(8 * SIZE), memory_limit=2 * SIZE, collect_garbage=False) as device:
            weights = device.empty(2 * SIZE, "u1", label="weights")
            with device.use(write=[weights]), pytest.raises(OutOfMemory) as caught:
                with device.use(write=[device.empty(SIZE, "u1")]):
                    pass
    finally:
        set_stacks(before)
    text = str(caught.value)
    assert f"'weights': 2 KiB, dirty, in use by thread {threading.get_ident()}" in text
    assert f"made at {__file__}:" in text
    assert "in test_the_error_says_where_the_arrays_were_made" in text


def test_the_error_says_who_holds_what_and_keeps_nothing_alive() -> None:
    scene = Scene(blocks=2)
    a, b = scene.add(1, label="weights"), scene.add(2)
    with scene.manager.use_many([(a, "r"), (b, "r")]):
        with pytest.raises(OutOfMemory) as caught, scene.manager.use(scene.add(3)):
            pass
    text = str(caught.value)
    for words in (
        "1 KiB of device memory",
        "2 KiB of the limit of 2 KiB",
        f"array #{a} 'weights'",
        "in use by thread",
        "0 B held by the pool in 0 blocks",
        "tried",
    ):
        assert words in text
    assert all(isinstance(arg, str) for arg in caught.value.args)
    scene.close()


def test_a_rolled_back_acquire_gives_its_blocks_back_with_their_tickets() -> None:
    """The first of two got a block that its former stream still uses; the second got none."""
    scene = Scene(blocks=3, manual=True)
    old, stream = scene.add(None), scene.stream()
    scene.write(old, 1, "w", stream)
    scene.manager.release(old)
    (held,) = scene.manager.memory.pool.blocks()
    a, b, pinned = scene.add(None), scene.add(None), scene.adds(2)
    with scene.manager.use_many([(key, "w") for key in pinned]):
        with pytest.raises(OutOfMemory), scene.manager.use_many([(a, "w"), (b, "w")], stream):
            pass
    assert held in scene.manager.memory.pool.blocks()
    assert any(line is stream and number > stream.reached for line, number in held.tickets)
    scene.check()
    scene.close()
