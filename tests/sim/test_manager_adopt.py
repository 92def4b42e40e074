"""Memory of somebody else: used, found by address, and never freed, evicted or swept."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import lifetimes
from lifetimes.errors import BrokenError, ClosedError, OwnershipError
from tests.unit.memory.scene import SIZE, Scene


class Foreign:
    """Memory that belongs to somebody else."""

    def __init__(self, scene: Scene, nbytes: int = SIZE) -> None:
        self.address = scene.driver.allocate(nbytes)
        self.told: list[int] = []


def test_it_can_be_used_written_read_and_found() -> None:
    scene = Scene()
    foreign = Foreign(scene)
    key = scene.manager.adopt(foreign.address, SIZE, label="theirs")
    scene.write(key, 7, "w")
    assert scene.value(key) == 7
    with scene.manager.use(key) as address:
        assert address == foreign.address
    assert scene.manager.owner_of(foreign.address + 5) == (key, 5)
    assert scene.manager.owner_of(foreign.address + SIZE) is None
    statistics = scene.manager.statistics()
    assert (statistics.unmanaged, statistics.unmanaged_bytes, statistics.reserved_bytes) == (1, SIZE, 0)
    scene.manager.release(key)
    scene.driver.free(foreign.address)
    scene.close()


def test_it_is_never_freed_evicted_or_swept() -> None:
    """Hazard of the ancestors (AccelerateHS/accelerate#563): a sweep took foreign memory for its own."""
    scene = Scene(blocks=2)
    foreign = Foreign(scene)
    key = scene.manager.adopt(foreign.address, SIZE)
    scene.write(key, 7, "w")
    assert not scene.manager.evict(key)
    scene.touch(*scene.adds(5, first=50))
    scene.manager.reclaim("evict")
    assert scene.manager.prefetch(key)
    gc.collect()
    scene.manager.set_limit(hard=SIZE, soft=SIZE)
    assert scene.value(key) == 7
    assert foreign.address in scene.driver.live_blocks
    scene.manager.release(key)
    scene.manager.memory.purge()
    assert foreign.address in scene.driver.live_blocks
    with pytest.raises(OwnershipError):
        scene.manager.release(key)
    scene.driver.free(foreign.address)
    scene.close()


def test_its_owner_is_told_when_the_last_work_has_completed_and_not_before() -> None:
    scene = Scene(manual=True)
    foreign = Foreign(scene)
    key = scene.manager.adopt(foreign.address, SIZE, on_release=foreign.told.append)
    scene.write(key, 7, "w")
    with scene.manager.use(key):
        scene.manager.release(key)
        assert scene.manager.owner_of(foreign.address) is None
    lifetimes.drain()
    assert foreign.told == [], "the work is in flight"
    scene.driver.run_until_idle()
    lifetimes.drain()
    assert foreign.told == [foreign.address]
    scene.driver.free(foreign.address)
    scene.close()


def test_closing_tells_the_owner_too() -> None:
    scene = Scene()
    foreign = Foreign(scene)
    key = scene.manager.adopt(foreign.address, SIZE, on_release=foreign.told.append)
    scene.write(key, 7, "w")
    scene.manager.close()
    assert foreign.told == [foreign.address]
    assert foreign.address in scene.driver.live_blocks
    assert not scene.driver.violations


def test_the_owner_lives_as_long_as_it_is_needed() -> None:
    class Owner:
        pass

    scene = Scene()
    foreign, owner = Foreign(scene), Owner()
    watch = weakref.ref(owner)
    key = scene.manager.adopt(foreign.address, SIZE, owner)
    del owner
    assert watch() is not None
    scene.manager.release(key)
    lifetimes.drain()
    assert watch() is None
    scene.driver.free(foreign.address)
    scene.close()


@pytest.mark.parametrize(
    ("offset", "nbytes"), [(0, SIZE), (0, 1), (10, 10), (SIZE - 1, 1), (-10, 20), (-10, SIZE + 20), (SIZE - 1, 100)]
)
def test_adopting_inside_across_or_around_a_live_block_is_refused(offset: int, nbytes: int) -> None:
    scene = Scene()
    own, foreign = scene.add(1), Foreign(scene)
    scene.touch(own)
    key = scene.manager.adopt(foreign.address, SIZE)
    before = scene.manager.statistics()
    for address in (foreign.address, scene.entry(own).block.address):
        with pytest.raises(OwnershipError, match="overlap"):
            scene.manager.adopt(address + offset, nbytes)
    assert scene.manager.statistics() == before
    neighbours = [scene.manager.adopt(foreign.address - 10, 10), scene.manager.adopt(foreign.address + SIZE, 10)]
    for each in (key, *neighbours):
        scene.manager.release(each)
    scene.driver.free(foreign.address)
    scene.close()


@pytest.mark.parametrize(("address", "nbytes", "error"), [
    (0, 1, ValueError), (-256, 1, ValueError), (True, 1, TypeError), ("0x100", 1, TypeError), (256.0, 1, TypeError),
    (256, -1, ValueError), (256, 2**64, MemoryError), (256, True, TypeError),
])  # fmt: skip
def test_addresses_and_sizes_are_checked(address: Any, nbytes: Any, error: type[Exception]) -> None:
    scene = Scene()
    before = lifetimes.live()
    with pytest.raises(error):
        scene.manager.adopt(address, nbytes)
    with pytest.raises(TypeError, match="on_release"):
        scene.manager.adopt(256, 1, on_release="nothing to call")  # type: ignore[arg-type]
    assert len(lifetimes.live()) == len(before)
    scene.close()


def test_a_block_that_its_owner_freed_without_a_word_makes_way_for_the_drivers_next() -> None:
    scene = Scene()
    foreign = Foreign(scene)
    key = scene.manager.adopt(foreign.address, SIZE)
    scene.driver.free(foreign.address)
    own = scene.add(1)
    with pytest.warns(lifetimes.CleanupWarning, match="without a release"):
        scene.touch(own)
    assert scene.entry(own).block.address == foreign.address
    assert scene.manager.owner_of(foreign.address) == (own, 0)
    scene.manager.release(key)
    assert scene.value(own) == 1
    scene.close()


def test_a_failed_write_breaks_adopted_memory_and_an_overwrite_mends_it() -> None:
    scene = Scene()
    foreign = Foreign(scene)
    key = scene.manager.adopt(foreign.address, SIZE, on_release=foreign.told.append)
    scene.fail(key, "w")
    with pytest.raises(BrokenError):
        scene.value(key)
    assert not scene.manager.evict(key)
    scene.check()
    scene.write(key, 5, "w")
    assert scene.value(key) == 5
    scene.manager.release(key)
    lifetimes.drain()
    assert foreign.told == [foreign.address]
    scene.driver.free(foreign.address)
    scene.close()


def test_no_bytes_can_be_adopted_and_a_closed_manager_adopts_nothing() -> None:
    scene = Scene()
    key = scene.manager.adopt(0, 0)
    with scene.manager.use(key, "rw") as address:
        assert address == 0
    assert scene.manager.read(key, np.empty(0, np.uint8)).size == 0
    scene.manager.release(key)
    scene.close()
    with pytest.raises(ClosedError):
        scene.manager.adopt(4096, 10)


def test_what_is_not_adopted_stays_the_callers() -> None:
    """Who frees memory when he is told would free what is refused as well: a block of ours, or his own a second time."""
    scene = Scene()
    own, foreign = scene.add(1), Foreign(scene)
    scene.touch(own)
    address = scene.entry(own).block.address
    with pytest.raises(OwnershipError, match="overlap"):
        scene.manager.adopt(address, SIZE, on_release=foreign.told.append)
    scene.driver.free(foreign.address)
    scene.close()
    with pytest.raises(ClosedError):
        scene.manager.adopt(foreign.address, SIZE, on_release=foreign.told.append)
    gc.collect()
    assert not foreign.told
