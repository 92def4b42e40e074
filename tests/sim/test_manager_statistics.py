"""Statistics are integers that follow every move, and a recount finds them right, or says what is wrong."""

from __future__ import annotations

import dataclasses

import pytest

from lifetimes.entry import DIRTY
from tests.unit.memory.scene import SIZE, Scene


def test_every_number_is_what_it_says() -> None:
    scene = Scene(blocks=8)
    a, b, c, d = scene.adds(4)
    empty = scene.add(None)
    foreign = scene.manager.adopt(1 << 40, 100)
    scene.touch(a, b, c)
    scene.write(b, 9)
    scene.manager.evict(c)
    with scene.manager.use_many([(a, "r"), (empty, "r")]):
        statistics = scene.manager.statistics()
        assert (statistics.pinned, statistics.pinned_bytes) == (2, 2 * SIZE)
    statistics = scene.manager.statistics()
    assert (statistics.arrays, statistics.array_bytes) == (6, 5 * SIZE + 100)
    assert statistics.total_bytes == statistics.peak_array_bytes == 5 * SIZE + 100
    assert (statistics.resident, statistics.resident_bytes) == (4, 3 * SIZE + 100)
    assert (statistics.dirty, statistics.dirty_bytes) == (1, SIZE)
    assert (statistics.pinned, statistics.peak_pinned_bytes) == (0, 2 * SIZE)
    assert (statistics.unmanaged, statistics.unmanaged_bytes) == (1, 100)
    assert (statistics.reserved_bytes, statistics.held_bytes, statistics.held_blocks) == (3 * SIZE, 0, 0)
    assert (statistics.uploads, statistics.upload_bytes) == (3, 3 * SIZE)
    assert (statistics.evictions, statistics.evicted_bytes, statistics.copybacks) == (1, SIZE, 0)
    assert (statistics.hits, statistics.misses) == (2, 4)
    assert statistics.limit == 8 * SIZE
    assert statistics.soft_limit is None
    for key in (a, b, c, d, empty, foreign):
        scene.manager.release(key)
    statistics = scene.manager.statistics()
    balanced = ("arrays", "array_bytes", "resident", "resident_bytes", "dirty", "pinned_bytes", "pending", "unmanaged")
    assert [getattr(statistics, name) for name in balanced] == [0] * len(balanced)
    assert statistics.held_bytes == statistics.reserved_bytes > 0
    scene.close()


@pytest.mark.parametrize("together", [False, True])
def test_one_look_up_in_sixty_four_is_timed(together: bool) -> None:
    scene = Scene()
    keys = scene.adds(3)
    scene.touch(*keys)
    for _ in range(640):
        if together:
            with scene.manager.use_many([(key, "r") for key in keys]):
                pass
        else:
            scene.touch(*keys)
    statistics = scene.manager.statistics()
    uses = 640 if together else 3 * 640
    assert uses / 64 <= statistics.lookups <= uses / 64 + 4
    assert statistics.lookup_ns > 10
    scene.close()


def test_misses_are_not_timed_more_often_than_hits() -> None:
    scene = Scene()
    for key in scene.adds(200):  # each is used once, so each misses and the hits stay where they are
        scene.touch(key)
    statistics = scene.manager.statistics()
    assert (statistics.hits, statistics.misses) == (0, 200)
    assert 200 // 64 <= statistics.lookups <= 200 // 64 + 2
    scene.close()


def test_a_snapshot_is_frozen() -> None:
    scene = Scene()
    statistics = scene.manager.statistics()
    with pytest.raises(dataclasses.FrozenInstanceError):
        statistics.arrays = 5  # type: ignore[misc]
    scene.touch(scene.add(1))
    assert statistics.rungs == {}
    scene.close()


PLANTED = {
    "a count": lambda scene, entry: setattr(scene.manager.counters, "resident", 7),
    "a sum": lambda scene, entry: scene.manager.counters.sums.__setitem__(DIRTY, 5),
    "a lost pin count": lambda scene, entry: setattr(scene.manager.counters, "pinned_bytes", 1),
    "a pin that nobody lists": lambda scene, entry: entry.pins.__setitem__(1, 1),
    "reserved bytes": lambda scene, entry: setattr(scene.manager.memory, "reserved", 1),
    "held bytes": lambda scene, entry: setattr(scene.manager.memory.pool, "held_bytes", 1),
    "a lost block": lambda scene, entry: setattr(entry, "block", None),
    "a lost owner": lambda scene, entry: setattr(entry, "owner", 5),
    "an unknown key in the policy": lambda scene, entry: scene.manager.policy.add(99999, 1),
    "a key the policy has lost": lambda scene, entry: scene.manager.policy.remove(entry.key),
    "a missing host copy": lambda scene, entry: setattr(entry, "host", None),
    "an address that is gone": lambda scene, entry: scene.manager.memory.addresses.pop(entry.block.address),
    "a block of another": lambda scene, entry: setattr(entry.block, "owner", 1),
    "host bytes": lambda scene, entry: setattr(scene.manager.host_store, "_bytes", 1),
    "a forgotten departure": lambda scene, entry: setattr(entry, "released", True),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found_by_the_recount(name: str) -> None:
    scene = Scene()
    key = scene.add(1)
    scene.touch(key)
    scene.manager.check_invariants()
    PLANTED[name](scene, scene.entry(key))
    with pytest.raises(AssertionError):
        scene.manager.check_invariants()


def test_a_repair_mends_what_follows_from_the_entries() -> None:
    scene = Scene()
    keys = scene.adds(3)
    scene.touch(*keys)
    scene.manager.release(keys[0])
    manager = scene.manager
    manager.counters.resident = 9
    manager.counters.sums[DIRTY] = 4
    manager.memory.reserved = 1
    manager.memory.addresses.clear()
    manager.memory.pool.held_bytes = 3
    manager.policy.remove(keys[1])
    manager.policy.add(99999, 1)
    manager.pinned[scene.entry(keys[2])] = None
    with pytest.raises(AssertionError):
        manager.check_invariants()
    manager.repair()
    scene.check()
    assert [scene.value(key) for key in keys[1:]] == [2, 3]
    scene.close()
