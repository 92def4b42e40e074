"""The pool hands a block out again when the work that used it last allows it, and not before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lifetimes.errors import BackendError, BusyError, CleanupWarning, OutOfMemory
from lifetimes.locks import lock
from lifetimes.pool import NULL_BLOCK, Pool
from lifetimes.testing.sim import SimDriver
from lifetimes.timeline import Timeline


class Two:
    """A driver whose time stands still, a pool, and two streams."""

    def __init__(self, **caps: Any) -> None:
        self.driver = SimDriver(64 << 10, manual=True)
        self.pool = Pool(self.driver, **caps)
        self.s, self.t = (Timeline(self.driver, self.driver.create_stream()) for _ in range(2))

    def work(self, address: int, stream: Timeline) -> tuple[Timeline, int]:
        self.driver.copy_in(address, np.zeros(100, np.uint8), stream.handle)
        return stream, stream.tick()


def test_the_stream_that_used_it_last_gets_it_at_once() -> None:
    two = Two()
    block = two.pool.take(100, two.s)
    two.pool.give(block, [two.work(block.address, two.s)])
    assert two.pool.take(100, two.s) is block
    assert two.driver.counts["create_event"] == 0, "and nobody is asked"


def test_another_stream_waits_for_every_stream_that_used_it() -> None:
    """BUG-001 (inducer/pyopencl#447): two queues used it, one is done, the other is not."""
    two = Two()
    block = two.pool.take(100, two.s)
    on_s = two.work(block.address, two.s)
    two.s.mark()
    on_t = two.work(block.address, two.t)
    two.t.mark()
    two.pool.give(block, [on_s, on_t])
    other = two.pool.take(100, two.s)
    assert other.address != block.address
    two.driver.step()
    assert two.pool.take(100, two.s).address not in (block.address, other.address), "only the first queue is done"
    two.driver.step()
    assert two.pool.take(100, two.s) is block
    assert not two.driver.violations


def test_within_a_class_the_oldest_goes_first() -> None:
    two = Two()
    blocks = [two.pool.take(1000, two.s) for _ in range(4)]
    for block in blocks:
        two.pool.give(block)
    assert [two.pool.take(1000, two.s) for _ in range(4)] == blocks


def test_a_block_in_flight_does_not_hide_an_idle_one_behind_it() -> None:
    two = Two()
    busy, idle = two.pool.take(100, two.s), two.pool.take(100, two.s)
    two.pool.give(busy, [two.work(busy.address, two.s)])
    two.pool.give(idle)
    assert two.pool.take(100, two.t) is idle


def test_only_the_same_class_fits() -> None:
    two = Two()
    block = two.pool.take(1000, two.s)
    two.pool.give(block)
    assert two.pool.take(1100, two.s) is not block
    assert two.pool.take(1020, two.s) is block


def test_zero_bytes_alias_nothing_and_bad_sizes_change_nothing() -> None:
    """BUG-005 (sonots/cumo#170)."""
    two = Two()
    warm = two.pool.take(64, two.s)
    two.pool.give(warm)
    before = two.pool.statistics()
    for size in (2**64 - 1, 2**64 - 511, 2**63, 1 << 20):
        with pytest.raises(OutOfMemory):
            two.pool.take(size, two.s)
    bad: Any
    for bad in (-1, 1.5, True, "64"):
        with pytest.raises((ValueError, TypeError)):
            two.pool.take(bad, two.s)
    one, other = two.pool.take(0, two.s), two.pool.take(0, two.s)
    assert one is other is NULL_BLOCK
    assert one.address == 0
    two.pool.give(one)
    two.pool.give(other)
    assert two.pool.statistics() == before
    assert two.pool.take(64, two.s) is warm


def test_over_the_cap_the_largest_idle_blocks_go_back_to_the_driver() -> None:
    two = Two(max_bytes=3000)
    small, middle, large = (two.pool.take(nbytes, two.s) for nbytes in (256, 1024, 4096))
    flying = two.pool.take(4096, two.s)
    ticket = two.work(flying.address, two.t)
    for block in (small, middle):
        two.pool.give(block)
    two.pool.give(flying, [ticket])
    assert two.pool.held_bytes == 4096, "what is in flight stays, although that is over the cap"
    two.driver.run_until_idle()
    two.pool.give(large)
    assert two.pool.held_bytes <= 3000
    assert large.address not in two.driver.live_blocks
    for block in [two.pool.take(nbytes, two.s) for nbytes in (256, 1024, 4096)]:
        two.pool.give(block)
    assert two.pool.held_bytes == 256 + 1024, "the small ones stay: they free little, and cost as many calls"
    two.pool.check_invariants()
    assert not two.driver.violations


def test_blocks_that_lie_too_long_go_back_to_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    two = Two(max_age=10.0)
    old, young = two.pool.take(100, two.s), two.pool.take(100, two.s)
    two.pool.give(old)
    now[0] = 8.0
    two.pool.give(young)
    assert two.pool.held_blocks == 2
    now[0] = 11.0
    two.pool.give(two.pool.take(5000, two.s))
    assert old.address not in two.driver.live_blocks
    assert young.address in two.driver.live_blocks


def test_a_driver_that_does_not_take_a_block_back_is_told_by_a_warning_and_the_rest_is_freed() -> None:
    two = Two()
    for block in [two.pool.take(nbytes, two.s) for nbytes in (100, 1000, 5000)]:
        two.pool.give(block)
    two.driver.faults.fail("free", 2)
    with pytest.warns(CleanupWarning, match="did not take back"):
        assert two.pool.purge() == 256 + 1024 + 5120
    assert len(two.driver.live_blocks) == 1
    assert two.pool.held_bytes == two.pool.held_blocks == 0


def test_a_refused_allocation_changes_nothing() -> None:
    two = Two()
    two.driver.faults.fail("allocate", error=BackendError)
    before = two.pool.statistics()
    with pytest.raises(BackendError):
        two.pool.take(100, two.s)
    assert two.pool.statistics() == before


def test_the_pool_is_refused_to_whoever_interrupted_the_library() -> None:
    two = Two()
    block = two.pool.take(100, two.s)
    with lock:
        with pytest.raises(BusyError, match="interrupted"):
            two.pool.take(100, two.s)
        with pytest.raises(BusyError, match="interrupted"):
            two.pool.give(block)


def test_a_free_never_needs_an_index_that_is_gone() -> None:
    """BUG-089 (cupy/cupy#1165): many sizes given back, their classes emptied, and one allocation of everything."""
    driver = SimDriver(1 << 20)
    pool, stream = Pool(driver), Timeline(driver, driver.create_stream())
    sizes = range(1, 60_000, 1500)
    blocks = [pool.take(nbytes, stream) for nbytes in sizes if nbytes < 20_000]
    for block in blocks[::2]:
        pool.give(block)
    pool.purge()
    for block in blocks[1::2]:
        pool.give(block)
    pool.check_invariants()
    assert pool.purge() > 0
    assert driver.in_use == 0
    pool.give(pool.take(1 << 20, stream))
    pool.check_invariants()


STEPS = st.tuples(st.sampled_from(["take", "give", "purge", "step"]), st.integers(0, 4000), st.booleans())


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEPS, max_size=60))
def test_no_block_is_in_two_hands_and_the_totals_are_right(program: list[tuple[str, int, bool]]) -> None:
    two = Two(max_bytes=20_000)
    taken: list[Any] = []
    for what, number, first in program:
        stream = two.s if first else two.t
        if what == "take" and len(taken) < 10:
            block = two.pool.take(number + 1, stream)
            assert block not in taken
            assert block.capacity > number
            taken.append(block)
        elif what == "give" and taken:
            block = taken.pop(number % len(taken))
            ticket = two.work(block.address, stream)
            two.pool.give(block, [ticket])
        elif what == "purge":
            two.pool.purge(number)
        else:
            two.driver.step()
        two.pool.check_invariants()
        held = sum(two.driver.live_blocks.values()) - sum(block.capacity for block in taken)
        assert two.pool.held_bytes == held
    assert not two.driver.violations
