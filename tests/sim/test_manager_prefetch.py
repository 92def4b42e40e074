"""Prefetching: best effort, and never at the expense of anybody who is at work."""

from __future__ import annotations

import pytest

from lifetimes.errors import BackendError, OwnershipError
from tests.unit.memory.scene import SIZE, Gate, Scene, Thread


def test_it_brings_an_array_and_the_next_use_finds_it() -> None:
    scene = Scene(manual=True)
    key = scene.add(1)
    assert scene.manager.prefetch(key)
    assert not scene.entry(key).pins
    assert scene.driver.pending == 1, "nobody waited for it"
    seen = scene.manager.statistics().hits
    scene.touch(key)
    assert scene.manager.statistics().hits == seen + 1
    scene.driver.run_until_idle()
    assert scene.on_device(key) == 1
    assert scene.driver.counts["copy_in"] == 1
    scene.close()


def test_the_use_waits_for_it_on_its_own_stream() -> None:
    scene = Scene(manual=True)
    key, stream = scene.add(1), scene.stream()
    scene.manager.prefetch(key, stream)
    assert scene.on_device(key) == 1
    assert scene.manager.fetch is not stream
    scene.close()


def test_it_evicts_what_nobody_uses_and_nothing_that_is_pinned() -> None:
    scene = Scene(blocks=2)
    a, b, c = scene.adds(3)
    scene.touch(a, b)
    scene.driver.run_until_idle()
    assert scene.manager.prefetch(c)
    assert scene.resident(a, b, c) == [False, True, True]
    with scene.manager.use_many([(b, "r"), (c, "r")]):
        assert not scene.manager.prefetch(a), "no room, and no error"
        assert scene.resident(a, b, c) == [False, True, True]
        scene.check()
    scene.close()


def test_what_there_is_nothing_to_bring_for_is_there_already() -> None:
    scene = Scene()
    empty, nothing, resident = scene.add(None), scene.manager.add(0), scene.add(1)
    scene.touch(resident)
    uploads = scene.driver.counts["copy_in"]
    assert all(scene.manager.prefetch(key) for key in (empty, nothing, resident))
    assert scene.driver.counts["copy_in"] == uploads
    with pytest.raises(OwnershipError):
        scene.manager.prefetch(123456)
    scene.close()


def test_it_takes_an_array_back_that_is_on_its_way_out() -> None:
    scene = Scene(manual=True)
    key = scene.add(1)
    scene.write(key, 2)
    with pytest.raises(RuntimeError, match="step"):
        scene.manager.evict(key)
    assert scene.manager.prefetch(key)
    assert scene.manager.statistics().pending == 0
    scene.driver.run_until_idle()
    scene.driver.manual = False
    assert scene.value(key) == 2
    scene.close()


def test_broken_arrays_are_not_brought_and_other_troubles_of_the_driver_are_told() -> None:
    scene = Scene()
    wrong, key = scene.adds(2)
    scene.fail(wrong)
    scene.driver.run_until_idle()
    assert scene.manager.evict(wrong)
    assert not scene.manager.prefetch(wrong)
    scene.driver.faults.fail("copy_in")
    with pytest.raises(BackendError, match="planned"):
        scene.manager.prefetch(key)
    scene.check()
    assert scene.value(key) == 2
    scene.close()


def test_it_leaves_arrays_alone_that_others_move_and_does_not_overtake_who_waits() -> None:
    scene = Scene(blocks=2)
    (a, c), large = scene.adds(2), scene.add(3, nbytes=2 * SIZE)
    gate = Gate()
    scene.driver.faults.before("copy_in", 1, gate.stop)
    user = Thread(scene.touch, a)
    gate.wait()
    assert not scene.manager.prefetch(a), "another thread is at it"
    gate.open()
    user.join()
    with scene.manager.use(a):
        waiting = Thread(scene.touch, large)
        while not scene.manager.waiting.line:
            pass
        assert not scene.manager.prefetch(c), "there is room for it, which the other one waits for"
    waiting.join()
    assert scene.resident(a, large, c) == [False, True, False]
    scene.check()
    scene.close()


def test_a_release_while_it_is_brought_is_done_at_the_end() -> None:
    scene = Scene()
    key = scene.add(1)
    scene.driver.faults.before("copy_in", 1, lambda: scene.manager.release(key))
    scene.manager.prefetch(key)
    assert scene.manager.statistics().arrays == 0
    assert scene.manager.statistics().held_bytes == SIZE
    scene.close()
