"""Arrays come, are used, move and go; and what cannot be is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lifetimes.errors import BackendError, BusyError, ClosedError, InternalError, OutOfMemory, OwnershipError
from lifetimes.manager import Manager
from lifetimes.testing.sim import SimDriver
from tests.unit.memory.scene import SIZE, Scene


def test_an_array_goes_to_the_device_at_its_first_use_and_not_before() -> None:
    scene = Scene()
    key = scene.add(5)
    assert scene.driver.counts["allocate"] == scene.driver.counts["copy_in"] == 0
    assert scene.on_device(key) == 5
    assert scene.on_device(key) == 5
    assert scene.driver.counts["copy_in"] == 1
    scene.close()


def test_what_will_be_overwritten_is_not_uploaded() -> None:
    scene = Scene()
    key = scene.add(5)
    scene.write(key, 6, "w")
    assert scene.value(key) == 6
    assert scene.driver.counts["copy_in"] == 0
    scene.close()


def test_reading_what_the_host_has_needs_no_transfer() -> None:
    """BUG-103 (AccelerateHS/accelerate#290): give the device side back, keep the value; the next use uploads once."""
    scene = Scene()
    key = scene.add(5)
    scene.touch(key)
    before = scene.manager.statistics().resident_bytes
    assert scene.manager.evict(key)
    assert scene.manager.statistics().resident_bytes == before - SIZE
    copies = scene.driver.counts["copy_out"]
    assert scene.value(key) == 5
    assert scene.driver.counts["copy_out"] == copies
    uploads = scene.driver.counts["copy_in"]
    scene.touch(key, key)
    assert scene.driver.counts["copy_in"] == uploads + 1
    scene.close()


def test_copies_are_made_when_they_are_needed_and_not_otherwise() -> None:
    """BUG-047 (AccelerateHS/accelerate#325): clean and dirty on both sides."""
    scene = Scene()
    key = scene.add(1)

    def copied_back() -> int:
        before = scene.driver.counts["copy_out"]
        assert scene.manager.evict(key)
        return scene.driver.counts["copy_out"] - before

    scene.touch(key)
    assert copied_back() == 0
    scene.touch(key)
    scene.write(key, 2)
    assert copied_back() == 1
    assert copied_back() == 0
    scene.write(key, 3)
    assert copied_back() == 1
    scene.touch(key)
    assert copied_back() == 0
    scene.manager.write(key, np.full(SIZE, 4, np.uint8))
    assert scene.on_device(key) == 4
    assert scene.value(key) == 4
    scene.close()


def test_a_write_after_a_reload_is_kept() -> None:
    """Hazard of the ancestors: a reload counts as clean for ever, and the write in place is lost."""
    scene = Scene()
    key = scene.add(1)
    for value in range(2, 6):
        scene.write(key, value)
        assert scene.manager.evict(key)
        assert scene.value(key) == value
    scene.close()


def test_borrowed_memory_is_read_where_it_is_and_never_written() -> None:
    scene = Scene()
    source = np.full(SIZE, 7, np.uint8)
    key = scene.add(None) and scene.manager.add(source, copy=False)
    assert scene.manager.host_store.statistics().used_bytes == 0
    assert scene.on_device(key) == 7
    scene.write(key, 8)
    assert scene.manager.evict(key)
    assert scene.value(key) == 8
    assert (source == 7).all()
    scene.close()


def test_a_copy_is_a_copy() -> None:
    scene = Scene()
    source = np.full((4, 256), 7, np.uint8)
    key, strided = scene.manager.add(source), scene.manager.add(source[:, ::2], copy=False)
    source[:] = 9
    assert scene.value(key) == 7
    assert scene.value(strided) == 7
    scene.close()


def test_a_release_frees_when_the_last_use_has_completed() -> None:
    scene = Scene(manual=True)
    key = scene.add(1)
    scene.touch(key)
    block = scene.entry(key).block
    scene.manager.release(key)
    assert scene.manager.memory.purge() == 0, "the upload is in flight"
    assert block.address in scene.driver.live_blocks
    scene.driver.run_until_idle()
    assert scene.manager.memory.purge() == SIZE
    scene.close()


def test_a_pinned_array_goes_at_its_last_unpin() -> None:
    scene = Scene()
    key = scene.add(1)
    with scene.manager.use(key) as address:
        with scene.manager.use(key):
            scene.manager.release(key)
            assert scene.manager.owner_of(address) is None, "nobody finds it any more"
            with pytest.raises(OwnershipError, match="released"), scene.manager.use(key):
                pass
        assert scene.manager.statistics().pinned == 1
        assert scene.manager.statistics().arrays == 0
        scene.manager.check_invariants()
    assert scene.manager.statistics().pinned == 0
    assert scene.manager.memory.pool.held_bytes == SIZE
    scene.close()


def test_releasing_twice_is_an_error_and_changes_nothing() -> None:
    """BUG-056 (rapidsai/rmm#2404): a free of something that is not there must not be counted."""
    scene = Scene()
    key = scene.add(1)
    scene.touch(key)
    scene.manager.release(key)
    before = scene.manager.statistics()
    for unknown in (key, 12345678):
        with pytest.raises(OwnershipError, match=str(unknown)):
            scene.manager.release(unknown)
    assert scene.manager.statistics() == before
    scene.close()


def test_totals_are_right_when_tracking_begins_late_and_limits_change() -> None:
    """BUG-056 (rapidsai/rmm#2404): nothing falls below zero, and the peak is the highest."""
    scene = Scene()
    keys = scene.adds(3)
    scene.touch(*keys)
    peak = scene.manager.statistics().peak_bytes
    scene.manager.set_limit(hard=2 * SIZE)
    scene.manager.release(keys[0])
    scene.manager.set_limit(hard=4 * SIZE)
    for key in keys[1:]:
        scene.manager.release(key)
        scene.check()
    statistics = scene.manager.statistics()
    assert statistics.arrays == statistics.array_bytes == statistics.resident == 0
    assert statistics.peak_bytes == peak == 3 * SIZE
    assert statistics.total_bytes == 3 * SIZE
    scene.close()


@pytest.mark.parametrize("size", [-1, 2**63, 2**64 - 1, 2**64 - 511, 1.5, "12", None, True])
def test_bad_sizes_are_refused_and_change_nothing(size: Any) -> None:
    """BUG-005 (sonots/cumo#170), BUG-058 (inducer/pyopencl#345)."""
    scene = Scene()
    scene.touch(scene.add(1))
    before = scene.manager.statistics()
    with pytest.raises((ValueError, TypeError, OutOfMemory)):
        scene.manager.add(size)
    assert scene.manager.statistics() == before
    scene.close()


def test_more_than_the_limit_is_refused_at_once() -> None:
    scene = Scene(blocks=2)
    with pytest.raises(OutOfMemory, match="2049"):
        scene.add(nbytes=2 * SIZE + 1)
    key = scene.add(3, nbytes=2 * SIZE)
    assert scene.on_device(key) == 3
    scene.close()


def test_the_whole_limit_can_be_had_and_not_a_byte_more() -> None:
    """BUG-101 (rapidsai/rmm#527): the maximum is not rounded otherwise than the request."""
    for nbytes in range(1, 1026):
        driver = SimDriver(4096)
        with Manager(driver, memory_limit=nbytes) as manager:
            with manager.use(manager.add(nbytes), "w"):
                assert driver.in_use <= nbytes


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5)])
def test_arrays_of_zero_bytes_are_everywhere_and_cost_nothing(shape: tuple[int, ...]) -> None:
    """BUG-059 (libocca/occa#712): no runtime call with a size of zero, on any path."""
    scene = Scene()
    manager = scene.manager
    keys = [manager.add(np.empty(shape)), manager.add(0), manager.add(np.empty(shape), copy=False)]
    other = scene.add(1)
    for key in keys:
        for mode in ("r", "rw", "w"):
            with manager.use(key, mode) as address:
                assert address == 0
            with manager.use_many([(key, mode), (other, "r"), (key, "r")]) as addresses:
                assert addresses[0] == addresses[2] == 0 != addresses[1]
        manager.write(key, np.empty(shape, np.float64 if key != keys[1] else np.uint8))
        assert manager.read(key, np.empty(0, np.uint8)).size == 0
        assert manager.evict(key)
        assert manager.prefetch(key)
        scene.check()
    assert manager.owner_of(0) is None
    manager.release(keys[0])
    manager.release(keys[1])
    sizes = [detail for kind, detail in scene.driver.log if kind in ("allocate", "copy_in", "copy_out")]
    assert all(detail[1] for detail in sizes)  # type: ignore[index]
    assert scene.driver.counts["allocate"] == 1
    scene.close()


def test_modes_streams_and_dtypes_are_checked_at_the_door() -> None:
    scene = Scene()
    key = scene.add(1)
    with pytest.raises(ValueError, match="'x'"):
        scene.manager.use(key, "x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'wr'"):
        scene.manager.use_many([(key, "wr")]).__enter__()  # type: ignore[list-item]
    with pytest.raises(TypeError, match="stream"):
        scene.manager.use(key, "r", "stream 0")
    with pytest.raises(TypeError, match="object"):
        scene.manager.add(np.array([object()]))
    with pytest.raises(TypeError, match="object"):
        scene.manager.write(key, np.full(SIZE // 8, None))
    with pytest.raises(ValueError, match="1024"):
        scene.manager.read(key, np.empty(SIZE - 1, np.uint8))
    with pytest.raises(ValueError, match="1024"):
        scene.manager.read(key, np.empty((64, 32), np.uint8)[:, ::2])
    with pytest.raises(ValueError, match="1024"):
        scene.manager.write(key, np.empty(SIZE + 1, np.uint8))
    with pytest.raises(ValueError, match="host_store"):
        Manager(scene.driver, host_store=scene.manager.host_store, host_limit=100)
    scene.close()


def test_a_use_is_entered_once() -> None:
    scene = Scene()
    key = scene.add(1)
    use, many = scene.manager.use(key), scene.manager.use_many([(key, "r")])
    for each in (use, many):
        with each:
            with pytest.raises(BusyError, match="once"):
                each.__enter__()
        with pytest.raises(BusyError, match="once"):
            each.__enter__()
    scene.manager.check_invariants()
    scene.close()


def test_the_same_array_twice_is_one_pin_in_the_mode_that_covers_both() -> None:
    scene = Scene()
    key, other = scene.adds(2)
    with scene.manager.use_many([(key, "r"), (other, "r"), (key, "w")]) as (first, _, second):
        assert first == second
        assert len(scene.entry(key).pins) == 1
        scene.fill(first, 9)
    assert scene.driver.counts["copy_in"] == 2, "read and overwritten is updated: it had to be uploaded"
    assert scene.value(key) == 9
    with scene.manager.use_many([(key, "w"), (key, "w")]) as (address, _):
        scene.fill(address, 10)
    assert scene.value(key) == 10
    with scene.manager.use_many([]) as nothing:
        assert nothing == ()
    scene.close()


def test_the_owner_of_an_address_is_found_by_any_byte_of_the_array() -> None:
    scene = Scene()
    key, small = scene.add(1), scene.add(2, nbytes=10)
    with scene.manager.use_many([(key, "r"), (small, "r")]) as (at, at_small):
        assert scene.manager.owner_of(at) == (key, 0)
        assert scene.manager.owner_of(at + SIZE - 1) == (key, SIZE - 1)
        assert scene.manager.owner_of(at_small + 9) == (small, 9)
        assert scene.manager.owner_of(at_small + 10) is None, "the rest of its block is nobody's"
        assert scene.manager.owner_of(at - 1) is None
        assert scene.manager.owner_of(0) is None
    scene.manager.evict(key)
    assert scene.manager.owner_of(at) is None
    scene.close()


def test_a_body_that_raises_leaves_no_pin_and_what_it_wrote() -> None:
    scene = Scene()
    key = scene.add(1)
    for error in (ZeroDivisionError, KeyboardInterrupt, SystemExit):
        with pytest.raises(error), scene.manager.use_many([(key, "rw")]) as (address,):
            scene.fill(address, 5)
            raise error
        with pytest.raises(error), scene.manager.use(key, "rw") as address:
            scene.fill(address, 6)
            raise error
        assert scene.manager.statistics().pinned == 0
    assert scene.manager.evict(key)
    assert scene.value(key) == 6
    scene.close()


def test_closing_while_an_array_is_in_use_is_refused_and_changes_nothing() -> None:
    scene = Scene()
    key = scene.add(1)
    with scene.manager.use(key):
        with pytest.raises(BusyError, match="thread"):
            scene.manager.close()
        assert scene.on_device(key) == 1
    scene.close()


def test_after_the_close_everything_says_so() -> None:
    scene = Scene()
    key = scene.add(1)
    manager = scene.manager
    scene.close()
    manager.close()
    for call in (
        lambda: manager.add(1), lambda: manager.use(key).__enter__(), lambda: manager.evict(key),
        lambda: manager.release(key), lambda: manager.read(key, np.empty(SIZE, np.uint8)),
        lambda: manager.prefetch(key), lambda: manager.adopt(4096, 1), lambda: manager.use_many([(key, "r")]).__enter__(),
    ):  # fmt: skip
        with pytest.raises(ClosedError):
            call()
    assert manager.statistics().arrays == 0


def test_closing_waits_for_what_is_in_flight_on_every_stream() -> None:
    scene = Scene()
    keys = scene.adds(3)
    mine, borrowed = scene.stream(), scene.stream(borrowed=True)
    scene.write(keys[0], 2, stream=mine)
    scene.write(keys[1], 3, stream=borrowed)
    scene.write(keys[2], 4)
    scene.manager.release(keys[1])
    scene.manager.evictor.evict_some(SIZE)
    assert scene.driver.pending
    scene.manager.close()
    assert scene.driver.live_blocks == {}
    assert not scene.driver.violations


def test_a_close_that_cannot_wait_can_be_tried_again() -> None:
    scene = Scene(manual=True)
    scene.write(scene.add(1), 2)
    with pytest.raises(RuntimeError, match="step"):
        scene.manager.close()
    scene.driver.run_until_idle()
    scene.manager.close()
    assert scene.driver.live_blocks == {}


def test_a_manager_is_a_context_manager_and_the_users_error_wins() -> None:
    driver = SimDriver(4096)
    with Manager(driver) as manager:
        manager.add(1)
    assert manager.closed
    with pytest.raises(ClosedError), manager:
        pass
    with pytest.raises(ZeroDivisionError) as caught:
        with Manager(driver) as manager:
            use = manager.use(manager.add(10), "w")
            use.__enter__()
            raise ZeroDivisionError
    assert "while closing" in caught.value.__notes__[0]
    use.__exit__(None, None, None)
    manager.close()


def test_tables_and_policies_are_chosen_by_name_and_refused_by_name() -> None:
    for options in ({"table": "nonsense"}, {"policy": "nonsense"}, {"address_table": "dict"}):
        with pytest.raises((ValueError, TypeError), match=r"nonsense|ordered"):
            Manager(SimDriver(4096), **options)  # type: ignore[arg-type]


def test_a_driver_that_fails_at_the_start_is_told() -> None:
    driver = SimDriver(4096)
    driver.faults.fail("create_stream")
    with pytest.raises(BackendError):
        Manager(driver)


def test_an_impossible_move_is_reported_as_a_bug() -> None:
    scene = Scene()
    key = scene.add(1)
    with pytest.raises(InternalError, match="report"):
        scene.entry(key).become(8)
    scene.close()


def test_replacing_an_array_by_a_larger_one_counts_only_what_is_there() -> None:
    """BUG-053 (tkem/cachetools#405): with 10 blocks, a=3 and b=3; b becomes 7: both stay; b becomes 8: only a goes."""
    scene = Scene(blocks=10)
    a, b = scene.add(1, nbytes=3 * SIZE), scene.add(2, nbytes=3 * SIZE)
    scene.touch(b, a)
    for size, stays in ((7, True), (8, False), (2, False)):
        scene.manager.release(b)
        b = scene.add(3, nbytes=size * SIZE)
        scene.driver.run_until_idle()
        scene.touch(b)
        assert scene.resident(a, b) == [stays, True]
        assert scene.manager.statistics().resident_bytes == (3 * stays + size) * SIZE
    with pytest.raises(OutOfMemory):
        scene.add(nbytes=11 * SIZE)
    assert scene.resident(a, b) == [False, True]
    scene.close()


def test_a_value_read_while_an_earlier_one_is_held_is_not_counted_twice_or_forgotten() -> None:
    """BUG-073 (dask/distributed#3756): what the user holds is the user's; the manager counts its own copy, once."""
    scene = Scene()
    key = scene.add(1)
    scene.write(key, 2)
    held = scene.manager.read(key, np.empty(SIZE, np.uint8))
    scene.manager.evict(key)
    again = scene.manager.read(key, np.empty(SIZE, np.uint8))
    assert again is not held
    assert scene.manager.host_store.statistics().used_bytes == SIZE
    scene.manager.release(key)
    assert scene.manager.host_store.statistics().used_bytes == 0
    scene.close()
