"""A random program against a driver, with plain bytes as the oracle.

    class MyMachine(DriverMachine):
        def open(self):
            return my_package.backend.open()

    TestMyMachine = MyMachine.TestCase

Needs Hypothesis, which is why the package does not import it by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lifetimes.backend import Driver
from lifetimes.errors import OutOfMemory
from lifetimes.testing.conformance.backend.base import pattern

__all__ = ["DriverMachine"]

STREAMS = 3
EVENTS = 3


class DriverMachine(RuleBasedStateMachine):
    """Allocations, copies on three streams that are ordered by events, waits, frees.

    The model has the bytes that each block must show once its stream has been waited for.  A block that changes streams
    is ordered by an event, as the protocol demands; what the driver makes of it is compared at each wait.
    """

    limit = 1 << 20
    """Bytes that the machine keeps allocated at most."""

    def open(self) -> Driver:
        """The driver under test; to be overridden."""
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.driver = self.open()
        self.streams = [self.driver.create_stream() for _ in range(STREAMS)]
        self.events = [self.driver.create_event() for _ in range(EVENTS)]
        self.blocks: dict[int, np.ndarray[Any, Any]] = {}  # address -> what must be there, oldest first: addresses vary
        self.last: dict[int, int] = {}  # address -> index of the stream that used it last
        self.results: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], int]] = []  # found, expected, stream
        self.recorded: dict[int, int] = {}  # event -> stream
        self.used = 0

    @initialize(nbytes=st.integers(1, 300_000))
    def first(self, nbytes: int) -> None:
        self.take(nbytes)

    @rule(nbytes=st.one_of(st.integers(1, 2000), st.integers(1, 300_000)))
    def take(self, nbytes: int) -> None:
        if self.used + nbytes > self.limit:
            return
        address = self.driver.allocate(nbytes)
        assert not any(low < address + nbytes and address < low + len(data) for low, data in self.blocks.items())
        self.blocks[address] = np.zeros(nbytes, np.uint8)
        self.used += nbytes
        self.write(address, 0, nbytes, 0, 0)

    @precondition(lambda self: self.blocks)
    @rule(data=st.data())
    def give(self, data: st.DataObject) -> None:
        address = data.draw(st.sampled_from(list(self.blocks)))
        self.settle(self.last[address])
        self.driver.free(address)
        self.used -= len(self.blocks.pop(address))
        del self.last[address]

    @precondition(lambda self: self.blocks)
    @rule(data=st.data(), seed=st.integers(0, 250), stream=st.integers(0, STREAMS - 1))
    def copy_in(self, data: st.DataObject, seed: int, stream: int) -> None:
        address, low, high = self.part(data)
        self.write(address, low, high, seed, stream)

    def write(self, address: int, low: int, high: int, seed: int, stream: int) -> None:
        source = pattern(high - low, seed)
        self.order(address, stream)
        self.driver.copy_in(address + low, source.copy(), self.streams[stream])
        self.blocks[address][low:high] = source

    @precondition(lambda self: self.blocks)
    @rule(data=st.data(), stream=st.integers(0, STREAMS - 1))
    def copy_out(self, data: st.DataObject, stream: int) -> None:
        address, low, high = self.part(data)
        found = np.zeros(high - low, np.uint8)
        self.order(address, stream)
        self.driver.copy_out(found, address + low, self.streams[stream])
        self.results.append((found, self.blocks[address][low:high].copy(), stream))

    @precondition(lambda self: len(self.blocks) > 1)
    @rule(data=st.data(), stream=st.integers(0, STREAMS - 1))
    def copy(self, data: st.DataObject, stream: int) -> None:
        source, low, high = self.part(data)
        target = data.draw(st.sampled_from([block for block in self.blocks if block != source]))
        high = min(high, low + len(self.blocks[target]))
        self.order(source, stream)
        self.order(target, stream)
        self.driver.copy(target, source + low, high - low, self.streams[stream])
        self.blocks[target][: high - low] = self.blocks[source][low:high]

    @rule(event=st.integers(0, EVENTS - 1), stream=st.integers(0, STREAMS - 1))
    def record(self, event: int, stream: int) -> None:
        self.driver.record(self.events[event], self.streams[stream])
        self.recorded[event] = stream

    @rule(event=st.integers(0, EVENTS - 1), stream=st.integers(0, STREAMS - 1))
    def stream_wait(self, event: int, stream: int) -> None:
        self.driver.stream_wait(self.streams[stream], self.events[event])

    @rule(event=st.integers(0, EVENTS - 1))
    def wait(self, event: int) -> None:
        self.driver.wait(self.events[event])
        assert self.driver.completed(self.events[event]) is True

    @rule(stream=st.integers(0, STREAMS - 1))
    def settle(self, stream: int) -> None:
        self.driver.synchronize(self.streams[stream])
        for found, expected, where in self.results:
            if where == stream:
                assert np.array_equal(found, expected)
        self.results = [result for result in self.results if result[2] != stream]

    @rule()
    def too_much(self) -> None:
        before = self.driver.memory_info()
        try:
            self.driver.allocate(self.driver.max_allocation + 1)
        except OutOfMemory:
            assert self.driver.memory_info() == before
        else:
            raise AssertionError("more than the largest allocation was granted")

    def part(self, data: st.DataObject) -> tuple[int, int, int]:
        """A block and a range inside it."""
        address = data.draw(st.sampled_from(list(self.blocks)))
        low = data.draw(st.integers(0, len(self.blocks[address]) - 1))
        high = data.draw(st.integers(low + 1, len(self.blocks[address])))
        return address, low, high

    def order(self, address: int, stream: int) -> None:
        """Let ``stream`` come after whatever used the block last."""
        last = self.last.get(address, stream)
        if last != stream:
            event = self.driver.create_event()
            self.driver.record(event, self.streams[last])
            self.driver.stream_wait(self.streams[stream], event)
            self.driver.destroy_event(event)
        self.last[address] = stream

    @invariant()
    def holds_its_invariants(self) -> None:
        check = getattr(self.driver, "check_invariants", None)
        if check is not None:
            check()
        assert not getattr(self.driver, "violations", [])

    def teardown(self) -> None:
        try:
            for stream in range(STREAMS):
                self.settle(stream)
            for address in list(self.blocks):
                self.driver.free(address)
            for handle in self.streams:
                self.driver.destroy_stream(handle)
            for handle in self.events:
                self.driver.destroy_event(handle)
            self.holds_its_invariants()
        finally:
            self.driver.close()
