"""Giving memory back on demand, and the hooks that are asked to do so."""

from __future__ import annotations

import gc

import pytest

import lifetimes
from lifetimes.errors import CleanupWarning, OutOfMemory
from lifetimes.locks import held_here
from tests.unit.memory.scene import SIZE, Scene


def test_each_level_gives_back_more_than_the_one_before() -> None:
    scene = Scene(manual=True)
    idle, flying, resident = scene.adds(3)
    scene.touch(idle)
    scene.driver.run_until_idle()
    scene.touch(flying)
    scene.write(resident, 7)
    scene.manager.release(idle)
    scene.manager.release(flying)
    assert scene.manager.reclaim("idle") == SIZE
    assert scene.manager.reclaim("idle") == 0
    scene.driver.manual = False
    assert scene.manager.reclaim("wait") == SIZE
    assert scene.manager.reclaim("collect") == 0
    assert scene.resident(resident) == [True]
    assert scene.manager.reclaim() == SIZE
    assert scene.manager.statistics().reserved_bytes == 0
    assert scene.value(resident) == 7
    with pytest.raises(ValueError, match="'all'"):
        scene.manager.reclaim("all")
    scene.close()


def test_host_memory_that_is_held_for_reuse_goes_too() -> None:
    scene = Scene()
    key = scene.add(1)
    scene.touch(key)
    scene.driver.run_until_idle()
    scene.manager.release(key)
    scene.manager.statistics()
    assert scene.manager.host_store.statistics().held_bytes == SIZE
    assert scene.manager.reclaim("idle") == SIZE, "bytes of the device"
    assert scene.manager.host_store.statistics().held_bytes == 0
    scene.close()


def test_what_is_pinned_stays() -> None:
    scene = Scene()
    key = scene.add(1)
    with scene.manager.use(key):
        assert scene.manager.reclaim() == 0
        assert scene.resident(key) == [True]
    scene.close()


def test_hooks_are_told_the_level_with_no_lock_held_and_may_do_as_they_like() -> None:
    scene = Scene(blocks=2)
    a, b = scene.adds(2)
    scene.touch(a, b)
    told: list[str] = []

    @scene.manager.add_reclaim_hook
    def hook(level: str) -> bool:
        assert not held_here()
        told.append(level)
        scene.manager.remove_reclaim_hook(hook)
        scene.manager.add_reclaim_hook(hook)
        scene.manager.add_reclaim_hook(hook)
        scene.touch(scene.add(3))
        return False

    scene.manager.reclaim("idle")
    scene.manager.reclaim("idle")
    assert told == ["idle", "idle"]
    scene.manager.remove_reclaim_hook(hook)
    scene.manager.remove_reclaim_hook(hook)
    scene.manager.reclaim("idle")
    assert told == ["idle", "idle"]
    scene.close()


def test_a_hook_goes_with_the_object_it_belongs_to() -> None:
    scene = Scene()
    told: list[str] = []

    class Cache:
        def drop(self, level: str) -> None:
            told.append(level)

    cache = Cache()
    scene.manager.add_reclaim_hook(cache.drop)
    scene.manager.reclaim("idle")
    del cache
    gc.collect()
    scene.manager.reclaim("idle")
    assert told == ["idle"]
    with pytest.raises(TypeError, match="called"):
        scene.manager.add_reclaim_hook("cache")  # type: ignore[arg-type]
    scene.close()


def test_a_hook_that_fails_is_told_by_a_warning_and_the_others_run() -> None:
    scene = Scene()
    told: list[str] = []

    def bad(level: str) -> None:
        raise ZeroDivisionError("in the hook")

    def good(level: str) -> None:
        told.append(level)

    scene.manager.add_reclaim_hook(bad)
    scene.manager.add_reclaim_hook(good)
    with pytest.warns(CleanupWarning, match="in the hook"):
        scene.manager.reclaim("idle")
    assert told == ["idle"]

    def interrupted(level: str) -> None:
        raise KeyboardInterrupt

    scene.manager.remove_reclaim_hook(bad)
    scene.manager.remove_reclaim_hook(good)
    scene.manager.add_reclaim_hook(interrupted)
    scene.manager.add_reclaim_hook(good)
    with pytest.raises(KeyboardInterrupt):
        scene.manager.reclaim("wait")
    assert told == ["idle", "wait"]
    scene.manager.remove_reclaim_hook(interrupted)
    scene.close()


def test_a_shortage_asks_the_hooks_last_but_one_and_their_recursion_is_limited() -> None:
    """BUG-022 (rapidsai/rmm#1504)."""
    scene = Scene(blocks=2)
    a, b, c, d = scene.adds(4)
    calls: list[str] = []
    held = scene.manager.use_many([(a, "r"), (b, "r")])
    held.__enter__()

    def frees(level: str) -> bool:
        calls.append(level)
        with pytest.raises(OutOfMemory):
            scene.touch(d)  # short of memory as well; asks no hooks again
        if len(calls) == 2:
            held.__exit__(None, None, None)
        return True

    scene.manager.add_reclaim_hook(frees)
    scene.touch(c)
    assert calls == ["hooks", "hooks"]
    scene.manager.remove_reclaim_hook(frees)
    scene.check()
    scene.close()


def test_garbage_is_collected_before_memory_is_called_exhausted_and_within_a_budget() -> None:
    scene = Scene(blocks=2, collect_garbage=True)
    pinned, other = scene.adds(2)

    class Node:
        pass

    def leave_garbage() -> None:
        """A cycle that holds a handle, which pins an array until it goes."""
        key, node = scene.add(1), Node()
        use = scene.manager.use(key)
        use.__enter__()
        node.parts = (node, lifetimes.Lifetime(key, use.__exit__, kind="garbage"))  # type: ignore[attr-defined]

    gc.collect()
    gc.disable()
    try:
        with scene.manager.use(pinned):
            leave_garbage()
            scene.touch(other)
            assert scene.manager.statistics().rungs["evict"] == 1, "nothing pinned it any more"
            leave_garbage()
            collections = gc.get_stats()[2]["collections"]
            scene.manager.ladder._collecting = 1e9
            with pytest.raises(OutOfMemory):
                scene.touch(other)
            assert gc.get_stats()[2]["collections"] == collections, "the budget is spent"
            scene.manager.ladder._collecting = 0.0
            scene.manager.collect_garbage = False
            with pytest.raises(OutOfMemory):
                scene.touch(other)
    finally:
        gc.enable()
    gc.collect()
    lifetimes.drain()
    scene.check()
    scene.close()
