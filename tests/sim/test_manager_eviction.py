"""Eviction: who goes, what is copied, when the block is free, and how a use takes an array back on its way out."""

from __future__ import annotations

import numpy as np
import pytest

from lifetimes.errors import CleanupWarning
from lifetimes.testing.sim import WouldBlock
from tests.unit.memory.scene import SIZE, Gate, Scene, Thread


def test_the_one_not_used_for_longest_goes_and_clean_ones_cost_no_copy() -> None:
    scene = Scene(blocks=3)
    keys = scene.adds(3)
    scene.touch(*keys)
    scene.touch(keys[0])
    scene.driver.run_until_idle()
    extra = scene.add(9)
    scene.touch(extra)
    assert scene.resident(*keys, extra) == [True, False, True, True]
    assert scene.driver.counts["copy_out"] == 0
    scene.close()


def test_the_block_stays_until_its_copy_has_landed() -> None:
    """BUG-002 (meta-pytorch/torchrec#4231): the address is not given out before, and the first array reads right."""
    scene = Scene(blocks=1, manual=True)
    first = scene.add(None)
    scene.write(first, 41, "w")
    scene.driver.run_until_idle()
    address = scene.entry(first).block.address
    second = scene.add(42)
    with pytest.raises(WouldBlock):
        scene.touch(second)
    assert scene.manager.memory.pool.held_blocks == 0
    assert scene.entry(first).block.address == address
    assert scene.manager.statistics().pending == 1
    scene.check()
    scene.driver.step()
    scene.touch(second)
    assert scene.entry(second).block.address == address, "now it is given out"
    scene.driver.run_until_idle()
    assert [scene.value(first), scene.value(second)] == [41, 42]
    scene.close()


def test_a_copy_back_waits_for_the_last_write_on_whatever_stream() -> None:
    scene = Scene(manual=True)
    key = scene.add(1)
    scene.touch(key)
    stream = scene.stream()
    scene.write(key, 2, stream=stream)
    with pytest.raises(WouldBlock):
        scene.manager.evict(key)
    order = []
    while scene.driver.step():
        order.append(scene.driver.log[-1][0])
    kinds = [kind for kind, _ in scene.driver.log if kind in ("call done", "copy_out done")]
    assert kinds == ["call done", "copy_out done"]
    assert scene.manager.evict(key)
    assert scene.value(key) == 2
    scene.close()


def evicting(scene: Scene, key: int) -> None:
    """Bring an array into the middle of its eviction."""
    scene.driver.manual = True
    with pytest.raises(WouldBlock):
        scene.manager.evict(key)
    assert scene.manager.statistics().pending == 1


def test_a_reader_takes_it_back_and_the_copy_still_counts() -> None:
    scene = Scene()
    key = scene.add(1)
    scene.write(key, 2)
    evicting(scene, key)
    scene.touch(key)
    assert scene.manager.statistics().pending == 0
    assert scene.manager.statistics().dirty == 0
    scene.check()
    scene.driver.run_until_idle()
    copies = scene.driver.counts["copy_out"]
    assert scene.manager.evict(key), "its content is on the host by now"
    assert scene.driver.counts["copy_out"] == copies
    assert scene.value(key) == 2
    scene.close()


def test_a_writer_takes_it_back_and_the_copy_is_void() -> None:
    scene = Scene()
    key = scene.add(1)
    scene.write(key, 2)
    evicting(scene, key)
    scene.write(key, 3, stream=scene.stream())
    assert scene.manager.statistics().dirty == 1
    scene.check()
    scene.driver.run_until_idle()
    scene.driver.manual = False
    assert scene.value(key) == 3
    assert scene.manager.evict(key)
    assert scene.value(key) == 3
    scene.close()


def test_a_reader_takes_it_back_and_it_is_evicted_again_before_the_copy_has_landed() -> None:
    """What is on the host is not the content yet: neither a read nor an upload may take it for that."""
    scene = Scene()
    key = scene.add(1)
    scene.write(key, 2)
    evicting(scene, key)
    scene.touch(key)
    copies = scene.driver.counts["copy_out"]
    with pytest.raises(WouldBlock):
        scene.manager.evict(key)
    assert scene.driver.counts["copy_out"] == copies, "the copy that is on its way will do"
    assert scene.entry(key).block is not None
    scene.check()
    scene.driver.manual = False
    assert scene.manager.evict(key)
    assert scene.value(key) == 2
    assert scene.on_device(key) == 2
    scene.close()


def test_an_eviction_after_a_reader_took_it_back_with_a_failed_copy_loses_nothing() -> None:
    scene = Scene()
    key = scene.add(1)
    scene.write(key, 2)
    scene.driver.faults.fail("copy_out", at="completion")
    evicting(scene, key)
    scene.touch(key)
    scene.driver.manual = False
    with pytest.warns(CleanupWarning, match="stays on the device"):
        assert not scene.manager.evict(key)
    assert scene.manager.evict(key)
    assert scene.value(key) == 2
    scene.close()


def test_a_release_while_the_copy_is_in_flight_waits_for_it() -> None:
    scene = Scene()
    key = scene.add(1)
    scene.write(key, 2)
    evicting(scene, key)
    block = scene.entry(key).block
    scene.manager.release(key)
    assert scene.manager.memory.purge() == 0
    others = scene.adds(3, first=50)
    assert all(scene.value(each) == 50 + at for at, each in enumerate(others)), "nothing lands in their memory"
    scene.driver.run_until_idle()
    assert all(scene.value(each) == 50 + at for at, each in enumerate(others))
    assert scene.manager.memory.purge() == SIZE
    assert block.address not in scene.driver.live_blocks
    scene.check()
    scene.close()


def test_host_memory_that_an_upload_still_reads_is_not_used_again() -> None:
    """A kernel behind the upload must see the content, though the array is gone and its buffer given back."""
    scene = Scene(manual=True)
    first, seen = scene.add(1), np.zeros(SIZE, np.uint8)
    with scene.manager.use(first) as address:
        scene.driver.copy_out(seen, address, scene.manager.stream.handle)
    scene.manager.release(first)
    scene.add(2)
    scene.driver.run_until_idle()
    assert (seen == 1).all()
    scene.close()


def test_a_landing_copy_does_not_overtake_the_upload_from_the_same_buffer() -> None:
    """Uploaded and read on one stream, evicted for nothing, overwritten on another stream, copied back."""
    scene = Scene(manual=True)
    key, other, seen = scene.add(1), scene.stream(), np.zeros(SIZE, np.uint8)
    with scene.manager.use(key) as address:
        scene.driver.copy_out(seen, address, scene.manager.stream.handle)
    assert scene.manager.evict(key), "clean: its block goes at once, the upload still in flight"
    scene.write(key, 2, "w", other)
    with pytest.raises(WouldBlock):
        scene.manager.evict(key)
    scene.driver.run_until_idle()
    assert (seen == 1).all()
    assert scene.manager.evict(key)
    assert scene.value(key) == 2
    scene.close()


def test_a_block_that_goes_on_at_once_still_serves_its_former_user_first() -> None:
    """The same stream may have it at once; a nested use on another stream must wait for what the first still does."""
    scene = Scene(blocks=1, manual=True)
    first, second, seen, other = scene.add(1), scene.add(None), np.zeros(SIZE, np.uint8), scene.stream()
    with scene.manager.use(first) as address:
        scene.driver.copy_out(seen, address, scene.manager.stream.handle)
    with scene.manager.use(second, "w"):
        with scene.manager.use(second, "w", other) as address:
            scene.fill(address, 2, other)
    while scene.driver.step():
        pass
    assert (seen == 1).all()
    scene.driver.manual = False
    assert scene.value(second) == 2
    scene.close()


def test_one_array_moved_a_thousand_times_is_one_finalizer_and_no_growth() -> None:
    """Hazard of the ancestors: each eviction and reload attached one more finalizer."""
    scene = Scene(blocks=1)
    keys = scene.adds(2)
    for at in range(1000):
        scene.write(keys[at % 2], 1 + at % 100)
        if at == 11:
            events, slots = len(scene.driver.live_events), len(scene.manager.host_store._alive)
            entry = scene.entry(keys[1])
            sizes = (len(entry.reads), len(entry.pins), len(entry.earlier or ()), len(scene.manager.late))
            scene.driver.log.clear()
    entry = scene.entry(keys[1])
    assert (len(entry.reads), len(entry.pins), len(entry.earlier or ()), len(scene.manager.late)) == sizes
    assert len(scene.driver.live_events) <= events + 2
    assert len(scene.manager.host_store._alive) == slots
    statistics = scene.manager.statistics()
    assert statistics.evictions == statistics.uploads - 1 == 999
    for key in keys:
        scene.manager.release(key)
    statistics = scene.manager.statistics()
    assert (statistics.array_bytes, statistics.resident_bytes, statistics.dirty, statistics.pending) == (0, 0, 0, 0)
    scene.close()


def test_a_void_copy_is_not_taken_for_the_one_that_is_just_being_made() -> None:
    """A writer took the array back from its eviction; it is evicted again, and the old copy completes meanwhile."""
    scene, copying = Scene(manual=True), Gate()
    key = scene.add(1)
    scene.write(key, 2)
    with pytest.raises(RuntimeError, match="step"):
        scene.manager.evict(key)
    scene.write(key, 3)
    scene.driver.run_until_idle()
    scene.driver.manual = False
    scene.driver.faults.before("copy_out", 1, copying.stop)
    evictor = Thread(scene.manager.evict, key)
    copying.wait()
    scene.manager.statistics()  # settles what has completed
    copying.open()
    assert evictor.join()
    assert scene.value(key) == 3
    scene.close()
