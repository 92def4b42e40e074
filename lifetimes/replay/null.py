"""A device that gives addresses and moves nothing: what remains of a replay on it is the cost of the manager."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from lifetimes._typing import HostArray
from lifetimes.backend import (
    Backend,
    DeviceInfo,
    Driver,
    EventHandle,
    IsSynchronous,
    MemoryInfo,
    StreamHandle,
    Usability,
)

__all__ = ["TOTAL", "NullBackend", "NullDriver", "backend"]

TOTAL: Final = 1 << 46
"""Bytes that it pretends to have."""


class NullDriver:
    """Addresses ascend and are never given twice; work is done as soon as it is enqueued; content is lost.

    >>> driver = NullDriver()
    >>> first, second = driver.allocate(1000), driver.allocate(1)
    >>> second - first
    1024
    """

    name = "null"
    synchronous: Literal[True] = True
    out_of_memory_codes: frozenset[object] = frozenset()
    max_allocation = TOTAL

    def __init__(self) -> None:
        self._next = 1 << 20

    def allocate(self, nbytes: int) -> int:
        address = self._next
        self._next = address + nbytes + 255 & -256
        return address

    def free(self, address: int) -> None:
        pass

    def copy_in(self, address: int, source: HostArray, stream: StreamHandle) -> None:
        pass

    def copy_out(self, destination: HostArray, address: int, stream: StreamHandle) -> None:
        pass

    def copy(self, destination: int, source: int, nbytes: int, stream: StreamHandle) -> None:
        pass

    def memory_info(self) -> MemoryInfo | None:
        return MemoryInfo(TOTAL, TOTAL)

    def create_stream(self) -> StreamHandle:
        return 0

    def destroy_stream(self, stream: StreamHandle) -> None:
        pass

    def create_event(self) -> EventHandle:
        return 0

    def destroy_event(self, event: EventHandle) -> None:
        pass

    def record(self, event: EventHandle, stream: StreamHandle) -> None:
        pass

    def completed(self, event: EventHandle) -> bool:
        return True

    def wait(self, event: EventHandle) -> None:
        pass

    def stream_wait(self, stream: StreamHandle, event: EventHandle) -> None:
        pass

    def synchronize(self, stream: StreamHandle) -> None:
        pass

    def close(self) -> None:
        pass


class NullBackend:
    """One such device."""

    name = "null"

    def usability(self) -> Usability:
        return Usability(True)

    def devices(self) -> Sequence[DeviceInfo]:
        return (DeviceInfo(0, "nothing", TOTAL),)

    def open(self, index: int = 0) -> Driver:
        return NullDriver()


backend: Backend = NullBackend()
_driver: Driver = NullDriver()
_synchronous: IsSynchronous = NullDriver()
