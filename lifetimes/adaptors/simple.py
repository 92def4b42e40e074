"""A driver of four functions, for runtimes that have no back end here."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from lifetimes._typing import HostArray
from lifetimes.backend import Driver, EventHandle, IsSynchronous, MemoryInfo, StreamHandle
from lifetimes.errors import BackendError, OutOfMemory
from lifetimes.sizes import parse_size

__all__ = ["SimpleDriver", "simple_driver"]

OutOfMemorySpec: TypeAlias = type[BaseException] | tuple[type[BaseException], ...] | Callable[[Exception], bool]

_BASE: Final = 1 << 52
"""Where the made-up addresses of handles that are no integers begin: far from real memory."""
_ALIGNMENT: Final = 256


def simple_driver(
    *,
    allocate: Callable[[int], Any],
    free: Callable[[Any], object],
    copy_in: Callable[[Any, HostArray], object],
    copy_out: Callable[[HostArray, Any], object],
    copy: Callable[[Any, Any, int], object] | None = None,
    total: int | str | None = None,
    out_of_memory: OutOfMemorySpec = MemoryError,
    name: str = "simple",
) -> SimpleDriver:
    """A driver for ``Manager`` from functions over memory of your own.

    - ``allocate(nbytes)`` gives an address (an integer above 0) or any other handle, ``free(handle)`` takes it back;
    - ``copy_in(handle, array)`` and ``copy_out(array, handle)`` copy a whole C-contiguous NumPy array of bytes and are done
      when they return; ``copy(destination, source, nbytes)``, if given, copies inside the device.

    A handle that is no integer gets an address made up for it; `SimpleDriver.handle` gives the handle back.
    ``total`` is the memory there is (bytes, or ``"8GiB"``; None: nobody knows, and only `allocate` says when it is full).
    ``out_of_memory`` says which errors of ``allocate`` mean that it is: exception types, or a function of the error.
    Other errors of the functions become `BackendError`.

    >>> import numpy as np
    >>> from lifetimes.manager import Manager
    >>> driver = simple_driver(
    ...     allocate=bytearray, free=bytearray.clear, total="1MiB",
    ...     copy_in=lambda buffer, array: buffer.__setitem__(slice(len(array)), array.tobytes()),
    ...     copy_out=lambda array, buffer: array.__setitem__(slice(None), list(buffer[: len(array)])),
    ... )
    >>> with Manager(driver, memory_limit="64KiB") as manager:
    ...     key = manager.add(np.arange(4))
    ...     with manager.use(key) as address:
    ...         list(driver.handle(address)[:32:8])
    [0, 1, 2, 3]
    """
    return SimpleDriver(
        allocate,
        free,
        copy_in,
        copy_out,
        copy,
        None if total is None else parse_size(total, "total"),
        out_of_memory,
        name,
    )


class SimpleDriver:
    """What `simple_driver` makes.  Everything is done when the call returns, so streams and events are mere numbers.

    Threading: as far as the functions allow it.  Locks: one, for the table of handles.
    """

    out_of_memory_codes: frozenset[object] = frozenset()
    synchronous: Literal[True] = True

    def __init__(
        self,
        allocate: Callable[[int], Any],
        free: Callable[[Any], object],
        copy_in: Callable[[Any, HostArray], object],
        copy_out: Callable[[HostArray, Any], object],
        copy: Callable[[Any, Any, int], object] | None,
        total: int | None,
        out_of_memory: OutOfMemorySpec,
        name: str,
    ) -> None:
        self.name = name
        self.max_allocation = 2**63 - 1 if total is None else total
        self._functions = (allocate, free, copy_in, copy_out, copy)
        self._total = total
        self._is_out_of_memory = _predicate(out_of_memory)
        self._blocks: dict[int, tuple[Any, int]] = {}  # address -> handle and bytes
        self._next = _BASE
        self._numbers = count(1)
        self._lock = threading.RLock()

    def handle(self, address: int) -> Any:
        """What ``allocate`` returned for the block at ``address``.  Errors: `BackendError` when no block starts there."""
        found = self._blocks.get(address)
        if found is None:
            raise BackendError(f"no block of {self.name!r} starts at {address:#x}; it was freed or is another's")
        return found[0]

    # Memory.
    def allocate(self, nbytes: int) -> int:
        try:
            handle = self._functions[0](nbytes)
        except OutOfMemory:
            raise
        except Exception as error:
            if self._is_out_of_memory(error):
                raise OutOfMemory(f"{self.name!r} has no {nbytes} bytes: {error}") from error
            raise self._failed("allocate", error) from error
        with self._lock:
            if isinstance(handle, int) and not isinstance(handle, bool):
                address = int(handle)
                if address <= 0 or address in self._blocks:
                    raise BackendError(f"allocate of {self.name!r} gave the address {address:#x}, which cannot be")
            else:
                address = self._next
                self._next += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
            self._blocks[address] = (handle, nbytes)
        return address

    def free(self, address: int) -> None:
        handle = self.handle(address)
        del self._blocks[address]
        self._call("free", self._functions[1], handle)

    def copy_in(self, address: int, source: HostArray, stream: StreamHandle) -> None:
        if source.nbytes:
            self._call("copy_in", self._functions[2], self.handle(address), source.reshape(-1).view(np.uint8))

    def copy_out(self, destination: HostArray, address: int, stream: StreamHandle) -> None:
        if destination.nbytes:
            self._call("copy_out", self._functions[3], destination.reshape(-1).view(np.uint8), self.handle(address))

    def copy(self, destination: int, source: int, nbytes: int, stream: StreamHandle) -> None:
        copy = self._functions[4]
        if copy is not None:
            self._call("copy", copy, self.handle(destination), self.handle(source), nbytes)
        elif nbytes:
            between = np.empty(nbytes, np.uint8)
            self.copy_out(between, source, stream)
            self.copy_in(destination, between, stream)

    def memory_info(self) -> MemoryInfo | None:
        if self._total is None:
            return None
        with self._lock:
            used = sum(nbytes for _, nbytes in self._blocks.values())
        return MemoryInfo(max(self._total - used, 0), self._total)

    # Order: everything is done at once.
    def create_stream(self) -> StreamHandle:
        return next(self._numbers)

    def destroy_stream(self, stream: StreamHandle) -> None:
        pass

    def create_event(self) -> EventHandle:
        return next(self._numbers)

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
        """Free what is left."""
        for address in list(self._blocks):
            self.free(address)

    def _call(self, name: str, function: Callable[..., object], *args: object) -> None:
        try:
            function(*args)
        except Exception as error:
            raise self._failed(name, error) from error

    def _failed(self, name: str, error: Exception) -> BackendError:
        return BackendError(f"{name} of {self.name!r} failed: {type(error).__name__}: {error}")

    def __repr__(self) -> str:
        return f"<SimpleDriver {self.name!r} with {len(self._blocks)} blocks>"


def _predicate(spec: OutOfMemorySpec) -> Callable[[Exception], bool]:
    if isinstance(spec, (type, tuple)):
        return lambda error: isinstance(error, spec)
    return spec


_driver: type[Driver] = SimpleDriver
_synchronous: type[IsSynchronous] = SimpleDriver
