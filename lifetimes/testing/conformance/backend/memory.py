"""The group about memory: addresses, content, limits."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from lifetimes.backend import Driver, MemoryInfo
from lifetimes.errors import OutOfMemory
from lifetimes.testing.conformance.backend.base import DriverSuite, pattern

__all__ = ["MemoryConformance"]

SIZES = (1, 2, 3, 7, 255, 256, 257, 1000, 4095, 65_535, 65_536, 65_537, 1_000_000)
ARRAYS = (
    np.arange(24.0).reshape(2, 3, 4),
    np.array(7, np.int16),
    np.array([True, False, True]),
    np.arange(12).astype("M8[s]").reshape(3, 4),
    np.array([(1, 2.5), (3, 4.5)], dtype=[("number", "i4"), ("value", "f8")]),
    np.arange(5, dtype=np.float16),
    np.arange(6, dtype=">i4"),
    np.array(["three", "words", "here"]),
    np.arange(4) * (1 + 2j),
)
HUGE = (2**63 - 1, 2**63, 2**64 - 511, 2**64 - 1, 2**80)


class MemoryConformance(DriverSuite):
    """What `allocate`, `free` and the copies promise."""

    @pytest.mark.parametrize("nbytes", SIZES)
    def test_an_address_is_a_plain_int_aligned_to_256(self, driver: Driver, nbytes: int) -> None:
        address = self.allocate(driver, nbytes)
        assert type(address) is int
        assert address > 0
        assert address % 256 == 0

    def test_live_ranges_do_not_overlap(self, driver: Driver) -> None:
        ranges = sorted((self.allocate(driver, nbytes), nbytes) for nbytes in SIZES * 3)
        for (low, nbytes), (high, _) in pairwise(ranges):
            assert low + nbytes <= high

    @pytest.mark.parametrize("nbytes", SIZES)
    def test_copy_in_writes_what_copy_out_reads(self, driver: Driver, stream: Any, nbytes: int) -> None:
        address = self.allocate(driver, nbytes)
        data, found = pattern(nbytes, 5), np.zeros(nbytes, np.uint8)
        driver.copy_in(address, data, stream)
        driver.copy_out(found, address, stream)
        self.wait_for(driver, stream)
        assert np.array_equal(found, data)

    @pytest.mark.parametrize("nbytes", SIZES)
    def test_copy_in_puts_the_bytes_there(self, driver: Driver, stream: Any, nbytes: int) -> None:
        address = self.allocate(driver, nbytes)
        driver.copy_in(address, pattern(nbytes, 9), stream)
        self.wait_for(driver, stream)
        assert np.array_equal(self.peek(driver, address, nbytes), pattern(nbytes, 9))

    @pytest.mark.parametrize("nbytes", SIZES)
    def test_copy_out_reads_the_bytes_there(self, driver: Driver, stream: Any, nbytes: int) -> None:
        address = self.allocate(driver, nbytes)
        self.poke(driver, address, pattern(nbytes, 11))
        found = np.zeros(nbytes, np.uint8)
        driver.copy_out(found, address, stream)
        self.wait_for(driver, stream)
        assert np.array_equal(found, pattern(nbytes, 11))

    @pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype.str}-{array.ndim}d")
    def test_arrays_of_any_shape_and_type_travel_as_their_bytes(
        self, driver: Driver, stream: Any, array: np.ndarray[Any, Any]
    ) -> None:
        address = self.allocate(driver, array.nbytes)
        found = np.zeros_like(array)
        driver.copy_in(address, array, stream)
        driver.copy_out(found, address, stream)
        self.wait_for(driver, stream)
        assert found.tobytes() == array.tobytes()

    def test_a_read_only_array_can_be_copied_in(self, driver: Driver, stream: Any) -> None:
        address = self.allocate(driver, 100)
        data = pattern(100)
        data.flags.writeable = False
        driver.copy_in(address, data, stream)
        self.wait_for(driver, stream)
        assert np.array_equal(self.peek(driver, address, 100), data)

    @pytest.mark.parametrize("nbytes", [1, 33, 70_000])
    def test_an_address_inside_a_block_is_an_address(self, driver: Driver, stream: Any, nbytes: int) -> None:
        address = self.allocate(driver, nbytes + 200)
        before = pattern(nbytes + 200, 3)
        self.poke(driver, address, before)
        driver.copy_in(address + 101, pattern(nbytes, 77), stream)
        found = np.zeros(nbytes, np.uint8)
        driver.copy_out(found, address + 101, stream)
        self.wait_for(driver, stream)
        before[101 : 101 + nbytes] = pattern(nbytes, 77)
        assert np.array_equal(found, pattern(nbytes, 77))
        assert np.array_equal(self.peek(driver, address, nbytes + 200), before), "only its own range was written"

    @pytest.mark.parametrize("nbytes", [1, 255, 4096, 1_000_000])
    def test_copy_moves_bytes_between_blocks(self, driver: Driver, stream: Any, nbytes: int) -> None:
        source, destination = self.allocate(driver, nbytes + 64), self.allocate(driver, nbytes + 64)
        self.poke(driver, source, pattern(nbytes + 64))
        self.poke(driver, destination, np.zeros(nbytes + 64, np.uint8))
        driver.copy(destination + 13, source + 31, nbytes, stream)
        self.wait_for(driver, stream)
        expected = np.zeros(nbytes + 64, np.uint8)
        expected[13 : 13 + nbytes] = pattern(nbytes + 64)[31 : 31 + nbytes]
        assert np.array_equal(self.peek(driver, destination, nbytes + 64), expected)
        assert np.array_equal(self.peek(driver, source, nbytes + 64), pattern(nbytes + 64))

    def test_copy_works_inside_one_block(self, driver: Driver, stream: Any) -> None:
        address = self.allocate(driver, 1000)
        self.poke(driver, address, pattern(1000))
        driver.copy(address, address + 500, 500, stream)
        self.wait_for(driver, stream)
        assert np.array_equal(self.peek(driver, address, 500), pattern(1000)[500:])

    @pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5)])
    def test_copies_of_nothing_do_nothing(self, driver: Driver, stream: Any, shape: tuple[int, ...]) -> None:
        address = self.allocate(driver, 16)
        self.poke(driver, address, pattern(16))
        driver.copy_in(address, np.empty(shape), stream)
        driver.copy_out(np.empty(shape), address, stream)
        driver.copy(address, address + 8, 0, stream)
        self.wait_for(driver, stream)
        assert np.array_equal(self.peek(driver, address, 16), pattern(16))

    def test_more_than_the_largest_allocation_is_out_of_memory(self, driver: Driver) -> None:
        before = driver.memory_info()
        with pytest.raises(OutOfMemory) as caught:
            driver.allocate(driver.max_allocation + 1)
        digits = str(caught.value).replace(",", "").replace("_", "")
        assert str(driver.max_allocation + 1) in digits, "the message names the request"
        if self.exact_memory:
            assert driver.memory_info() == before, "a refused allocation leaves no trace"

    @pytest.mark.parametrize("nbytes", HUGE)
    def test_sizes_near_and_beyond_a_machine_word_are_out_of_memory(self, driver: Driver, nbytes: int) -> None:
        """Rounding them up must not wrap to something small (sonots/cumo#170)."""
        before = driver.memory_info()
        with pytest.raises(OutOfMemory):
            driver.allocate(nbytes)
        if self.exact_memory:
            assert driver.memory_info() == before

    def test_memory_runs_out_and_comes_back(self, driver: Driver) -> None:
        info = driver.memory_info()
        chunk = max(1, (driver.max_allocation if info is None else min(info.free, driver.max_allocation)) // 5)
        for _ in range(2):
            blocks = []
            with pytest.raises(OutOfMemory):
                for _ in range(1000):
                    blocks.append(driver.allocate(chunk))
            assert blocks
            for address in blocks:
                driver.free(address)

    def test_a_freed_block_can_be_had_again(self, driver: Driver) -> None:
        info = driver.memory_info()
        most = driver.max_allocation if info is None else min(info.free, driver.max_allocation)
        for _ in range(5):
            driver.free(driver.allocate(most * 3 // 5 or 1))

    def test_memory_info_follows_what_is_allocated(self, driver: Driver) -> None:
        before = driver.memory_info()
        if before is None:
            pytest.skip("this back end has no such query")
        assert isinstance(before, MemoryInfo)
        assert 0 <= before.free <= before.total
        nbytes = max(1, min(before.free, driver.max_allocation) // 8)
        address = driver.allocate(nbytes)
        during = driver.memory_info()
        driver.free(address)
        after = driver.memory_info()
        assert during is not None
        assert after is not None
        assert during.total == before.total
        assert during.free <= before.free - nbytes
        if self.exact_memory:
            assert after == before

    def test_many_threads_allocate_copy_and_free(self, driver: Driver) -> None:
        def body(seed: int) -> None:
            stream = driver.create_stream()
            for round_ in range(20):
                nbytes = 1 + (seed * 7919 + round_ * 104_729) % 90_000
                address = driver.allocate(nbytes)
                found = np.zeros(nbytes, np.uint8)
                driver.copy_in(address, pattern(nbytes, seed + round_), stream)
                driver.copy_out(found, address, stream)
                self.wait_for(driver, stream)
                assert np.array_equal(found, pattern(nbytes, seed + round_))
                driver.free(address)
            driver.destroy_stream(stream)

        before = driver.memory_info()
        self.in_threads(driver, [lambda seed=seed: body(seed) for seed in range(8)])  # type: ignore[misc]
        if self.exact_memory:
            assert driver.memory_info() == before
