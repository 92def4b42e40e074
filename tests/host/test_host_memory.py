"""Real memory under a limit: accounting, untouched pages, look-up by any address, interrupts, re-entry."""

from __future__ import annotations

import random
import resource
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from lifetimes.errors import BackendError, BusyError, OutOfMemory
from lifetimes.testing.disturb import interrupt, run_disturbed
from lifetimes_host import HostDriver
from lifetimes_host.memory import Memory

MIB = 1 << 20


@pytest.fixture
def memory() -> Iterator[Memory]:
    memory = Memory(10 * MIB)
    yield memory
    memory.check_invariants()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_the_error_names_request_use_and_limit(memory: Memory) -> None:
    memory.allocate(7 * MIB)
    with pytest.raises(OutOfMemory) as caught:
        memory.allocate(4 * MIB)
    for number in (4 * MIB, 7 * MIB, 10 * MIB):
        assert f"{number:,}" in str(caught.value)
    assert memory.used == 7 * MIB


def test_the_limit_can_be_filled_to_the_byte(memory: Memory) -> None:
    first = memory.allocate(10 * MIB - 1)
    second = memory.allocate(1)
    with pytest.raises(OutOfMemory):
        memory.allocate(1)
    memory.free(second)
    memory.free(first)
    assert (memory.used, memory.count) == (0, 0)


def test_a_refusal_by_the_system_is_out_of_memory_and_leaves_no_trace() -> None:
    memory = Memory(2**62)
    memory.allocate(100)
    with pytest.raises(OutOfMemory, match="the system has no") as caught:
        memory.allocate(2**55)
    assert isinstance(caught.value.__cause__, MemoryError)
    assert memory.used == 100
    memory.check_invariants()


@pytest.mark.parametrize("nbytes", [0, -1, -(2**63)])
def test_less_than_one_byte_is_refused(memory: Memory, nbytes: int) -> None:
    with pytest.raises(BackendError, match=str(nbytes)):
        memory.allocate(nbytes)
    assert memory.used == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads resident memory from /proc")
def test_pages_are_not_touched_before_they_are_written() -> None:
    memory = Memory(4096 * MIB)
    before = resident_bytes()
    address = memory.allocate(1024 * MIB)
    assert resident_bytes() - before < 32 * MIB
    memory.block(address)[: 64 * MIB] = 1
    assert resident_bytes() - before > 60 * MIB, "the measure itself works"
    memory.free(address)
    assert resident_bytes() - before < 32 * MIB, "what was freed goes back to the system"


def test_free_refuses_what_is_no_block(memory: Memory) -> None:
    address = memory.allocate(1000)
    for wrong in (0, -1, address + 1, address + 256, 12345):
        with pytest.raises(BackendError):
            memory.free(wrong)
    memory.free(address)
    with pytest.raises(BackendError, match="freed"):
        memory.free(address)
    assert memory.used == 0


def test_any_address_finds_its_block(memory: Memory) -> None:
    """Against a plain scan, with blocks coming and going."""
    dice = random.Random(7)
    blocks: dict[int, int] = {}
    for _ in range(400):
        if blocks and dice.random() < 0.4:
            address = dice.choice(list(blocks))
            memory.free(address)
            del blocks[address]
        else:
            nbytes = dice.randrange(1, 3000)
            blocks[memory.allocate(nbytes)] = nbytes
        for start, nbytes in dice.sample(sorted(blocks.items()), min(3, len(blocks))):
            offset = dice.randrange(nbytes)
            block, found = memory.find(start + offset, nbytes - offset)
            assert (len(block), found) == (nbytes, offset)
            with pytest.raises(BackendError, match="run past the end"):
                memory.find(start + offset, nbytes - offset + 1)
        wild = dice.choice(sorted(blocks) or [4096]) + dice.randrange(-4000, 4000)
        inside = [(start, nbytes) for start, nbytes in blocks.items() if start <= wild < start + nbytes]
        if inside:
            assert memory.find(wild, 1)[1] == wild - inside[0][0]
        else:
            with pytest.raises(BackendError):
                memory.find(wild, 1)
    memory.check_invariants()


def test_what_comes_and_goes_leaves_nothing_in_the_order(memory: Memory) -> None:
    for nbytes in range(1, 20_000, 100):
        address = memory.allocate(nbytes)
        other = memory.allocate(nbytes)
        memory.free(address)
        memory.free(other)
    assert len(memory._order) == memory.count == 0


def test_a_view_that_outlives_its_block_stays_readable(memory: Memory) -> None:
    address = memory.allocate(8 * MIB)
    view = memory.block(address)[:]
    view[:] = 5
    memory.free(address)
    assert memory.used == 0
    assert view[-1] == 5


def test_re_entry_frees_finds_and_refuses_to_allocate(memory: Memory) -> None:
    """What a signal handler may do that arrives on a thread inside the lock."""
    kept, dropped = memory.allocate(500), memory.allocate(700)
    with memory._lock:
        memory.free(dropped)
        with pytest.raises(BackendError):
            memory.free(dropped)
        with pytest.raises(BackendError):
            memory.find(dropped + 1, 1)
        assert memory.find(kept + 499, 1)[1] == 499
        assert memory.used == 1200, "settled when the interrupted call is over"
        with pytest.raises(BusyError):
            memory.allocate(1)
    assert memory.used == 500
    memory.allocate(10 * MIB - 500)


@pytest.mark.parametrize("disturbance", ["interrupt", "free another", "find another"])
def test_ctrl_c_or_a_finalizer_at_any_step_leaves_the_books_right(disturbance: str) -> None:
    def round_trip(memory: Memory) -> None:
        memory.free(memory.allocate(5000))

    for step in range(10_000):
        memory = Memory(MIB)
        other = memory.allocate(300)
        acts: dict[str, Callable[[], object]] = {
            "interrupt": interrupt,
            "free another": partial(memory.free, other),
            "find another": partial(memory.find, other + 7, 1),
        }
        try:
            if not run_disturbed(round_trip, memory, step=step, act=acts[disturbance], after_calls=True):
                break
        except KeyboardInterrupt:
            pass
        memory.check_invariants()
        alive = set(memory._blocks) - {other}
        assert memory.used == (300 if disturbance != "free another" else 0) + 5000 * len(alive)
        for address in alive:  # interrupted between the two calls: it was returned and is still good
            memory.free(address)
    assert step > 20


def test_interior_views_and_copies_share_the_bytes() -> None:
    driver = HostDriver(MIB)
    address, stream = driver.allocate(1000), driver.create_stream()
    driver.view(address, 1000)[:] = 0
    driver.copy_in(address + 10, np.arange(10, dtype=np.uint8), stream)
    assert driver.view(address + 8, 4).tolist() == [0, 0, 0, 1]
    with pytest.raises(BackendError, match="run past"):
        driver.copy_in(address + 995, np.zeros(6, np.uint8), stream)
    with pytest.raises(BackendError, match="run past"):
        driver.view(address, 1001)
    driver.close()


@pytest.mark.parametrize("call", ["copy_in", "copy_out"])
def test_copies_refuse_arrays_with_gaps(call: str) -> None:
    driver = HostDriver(MIB)
    address, stream = driver.allocate(1000), driver.create_stream()
    gaps = np.zeros((10, 10))[:, ::2]
    with pytest.raises(BackendError, match="C-contiguous"):
        driver.copy_in(address, gaps, stream) if call == "copy_in" else driver.copy_out(gaps, address, stream)
    driver.close()


def test_copy_out_refuses_an_array_that_cannot_be_written() -> None:
    driver = HostDriver(MIB)
    address, stream = driver.allocate(1000), driver.create_stream()
    frozen = np.zeros(10)
    frozen.flags.writeable = False
    with pytest.raises(BackendError, match="writable"):
        driver.copy_out(frozen, address, stream)
    with pytest.raises(BackendError, match="-1"):
        driver.copy(address, address + 500, -1, stream)
    driver.close()
