"""Code that interrupts the library inside its own lock: a signal handler, a tracer, a finalizer of the collector."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from lifetimes.errors import BusyError, CleanupWarning, OutOfMemory
from lifetimes.locks import lock
from tests.unit.memory.scene import SIZE, Scene, Thread


def test_what_needs_an_answer_is_refused() -> None:
    scene = Scene()
    key = scene.add(1)
    out = np.empty(SIZE, np.uint8)
    with lock:
        for call in (
            lambda: scene.manager.use(key).__enter__(), lambda: scene.manager.use_many([(key, "r")]).__enter__(),
            lambda: scene.manager.add(1), lambda: scene.manager.evict(key), lambda: scene.manager.read(key, out),
            lambda: scene.manager.write(key, out), lambda: scene.manager.prefetch(key), scene.manager.reclaim,
            lambda: scene.manager.set_limit(hard=SIZE), lambda: scene.manager.adopt(4096, 1),
            lambda: scene.manager.host_store.take(10),
        ):  # fmt: skip
            with pytest.raises(BusyError, match="interrupted"):
                call()
    scene.check()
    scene.close()


def test_drops_closes_and_releases_are_done_later() -> None:
    scene = Scene()
    keys = scene.adds(3)
    scene.touch(*keys)
    with lock:
        for key in keys[:2]:
            scene.manager.release(key)
        assert scene.manager.statistics().arrays == 0, "the last published snapshot: from the start"
    assert len(scene.manager.table) == 3
    scene.touch(keys[2])
    assert len(scene.manager.table) == 1
    with lock:
        scene.manager.close()
    assert not scene.manager.closed
    scene.manager.statistics()
    assert scene.manager.closed
    assert scene.driver.live_blocks == {}


def test_a_late_release_of_nothing_is_told_by_a_warning() -> None:
    scene = Scene()
    with lock:
        scene.manager.release(987654)
    with pytest.warns(CleanupWarning, match="987654"):
        scene.manager.statistics()
    scene.close()


def test_statistics_give_the_last_published_snapshot() -> None:
    scene = Scene()
    key = scene.add(1)
    published = scene.manager.statistics()
    scene.touch(key)
    with lock:
        assert scene.manager.statistics() is published
    assert scene.manager.statistics().resident == 1
    scene.close()


def test_a_use_that_was_never_left_goes_with_its_object() -> None:
    """A generator dropped in the middle leaves properly; this is for what not even `__exit__` could be run for."""
    scene = Scene()
    key, other = scene.adds(2)
    use, many = scene.manager.use(key), scene.manager.use_many([(key, "r"), (other, "rw")])
    use.__enter__()
    many.__enter__()
    assert scene.manager.statistics().pinned == 2
    del use
    assert scene.manager.statistics().pinned == 2
    with lock:
        del many
        assert len(scene.entry(other).pins) == 1, "not under the lock"
    assert scene.manager.statistics().pinned == 0
    scene.check()
    scene.close()


def test_a_collection_in_the_middle_of_a_call_may_release_arrays() -> None:
    """The finalizer runs inside the driver call that the manager makes."""
    scene = Scene(blocks=2)
    a, b, c = scene.adds(3)
    scene.touch(a, b)

    def collect() -> None:
        gc.collect()
        scene.manager.release(a)

    scene.driver.faults.before("copy_in", 1, collect)
    scene.touch(c)
    assert scene.manager.statistics().arrays == 2
    scene.check()
    assert [scene.value(b), scene.value(c)] == [2, 3]
    scene.close()


def test_a_policy_is_never_asked_about_keys_it_does_not_hold() -> None:
    """Its ``touch`` may raise for those: pinned, evicted, adopted and released arrays never reach it."""
    from lifetimes.policies.lru import LRUPolicy

    class Strict(LRUPolicy):
        def __init__(self) -> None:
            super().__init__()
            move = self._order.move_to_end

            def touch(key: int) -> None:
                assert key in self._order
                move(key)

            self.touch = touch

    scene = Scene(blocks=2, policy=Strict())
    keys = scene.adds(3)
    foreign = scene.manager.adopt(1 << 40, 10)
    with scene.manager.use_many([(keys[0], "r"), (keys[1], "rw")]):
        with pytest.raises(OutOfMemory), scene.manager.use(keys[2]):
            pass
        with scene.manager.use(keys[0]), scene.manager.use(keys[1]), scene.manager.use(foreign):
            pass
    scene.touch(*keys, foreign)
    scene.manager.release(foreign)
    scene.check()
    scene.close()


def test_many_threads_and_a_finalizer_that_uses_the_manager() -> None:
    """BUG-004 and BUG-022: no lock of the library is held when a finalizer, a hook or the driver runs."""
    scene = Scene(blocks=4)
    keys = scene.adds(8)

    def work(seed: int) -> None:
        for at in range(40):
            scene.touch(keys[(seed + at) % 8])
            temporary = scene.add(9)
            scene.touch(temporary)
            scene.manager.release(temporary)

    scene.driver.faults.before("allocate", 1, scene.manager.statistics, times=None)
    scene.driver.faults.before("free", 1, scene.manager.statistics, times=None)
    threads = [Thread(work, seed) for seed in range(4)]
    for thread in threads:
        thread.join()
    scene.driver.faults.clear()
    scene.check()
    assert [scene.value(key) for key in keys] == [1, 2, 3, 4, 5, 6, 7, 8]
    scene.close()
