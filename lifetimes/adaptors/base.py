"""A driver over another driver that changes nothing; the others derive from it.

The calls that every driver has are methods here.  Those of optional abilities (`SupportsContext`, `SupportsCode`, ...) become
attributes of the object exactly when upstream has them, because abilities are decided by what an object has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from lifetimes import backend
from lifetimes._typing import HostArray
from lifetimes.backend import Driver, EventHandle, MemoryInfo, StreamHandle

__all__ = ["Adaptor"]

_ABILITIES: Final = [value for name, value in vars(backend).items() if name.startswith(("Supports", "Is"))]


class Adaptor:
    """Passes every call on to ``upstream``, and every attribute that it does not know.

    >>> from lifetimes.testing.sim import SimDriver
    >>> driver = Adaptor(SimDriver(4096))
    >>> driver.free(driver.allocate(100))
    >>> driver.upstream.counts["free"], driver.max_allocation
    (1, 4096)
    """

    def __init__(self, upstream: Driver) -> None:
        self.upstream = upstream
        self.name = upstream.name
        self.out_of_memory_codes = upstream.out_of_memory_codes
        self.max_allocation = upstream.max_allocation
        for ability in _ABILITIES:
            if isinstance(upstream, ability):
                for name in _members(ability):
                    setattr(self, name, getattr(upstream, name))

    def allocate(self, nbytes: int) -> int:
        return self.upstream.allocate(nbytes)

    def free(self, address: int) -> None:
        self.upstream.free(address)

    def copy_in(self, address: int, source: HostArray, stream: StreamHandle) -> None:
        self.upstream.copy_in(address, source, stream)

    def copy_out(self, destination: HostArray, address: int, stream: StreamHandle) -> None:
        self.upstream.copy_out(destination, address, stream)

    def copy(self, destination: int, source: int, nbytes: int, stream: StreamHandle) -> None:
        self.upstream.copy(destination, source, nbytes, stream)

    def memory_info(self) -> MemoryInfo | None:
        return self.upstream.memory_info()

    def create_stream(self) -> StreamHandle:
        return self.upstream.create_stream()

    def destroy_stream(self, stream: StreamHandle) -> None:
        self.upstream.destroy_stream(stream)

    def create_event(self) -> EventHandle:
        return self.upstream.create_event()

    def destroy_event(self, event: EventHandle) -> None:
        self.upstream.destroy_event(event)

    def record(self, event: EventHandle, stream: StreamHandle) -> None:
        self.upstream.record(event, stream)

    def completed(self, event: EventHandle) -> bool:
        return self.upstream.completed(event)

    def wait(self, event: EventHandle) -> None:
        self.upstream.wait(event)

    def stream_wait(self, stream: StreamHandle, event: EventHandle) -> None:
        self.upstream.stream_wait(stream, event)

    def synchronize(self, stream: StreamHandle) -> None:
        self.upstream.synchronize(stream)

    def close(self) -> None:
        self.upstream.close()

    def wrap_calls(self, wrap: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> None:
        """Put ``wrap(name, call)`` in the place of every call of a driver, the optional ones included."""
        for protocol in (Driver, *_ABILITIES):
            for name in _members(protocol):
                call = getattr(self, name, None)
                if callable(call):
                    setattr(self, name, wrap(name, call))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "upstream":
            raise AttributeError(name)
        return getattr(self.upstream, name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over {self.upstream!r}>"


def _members(protocol: type) -> Iterator[str]:
    for name in (*vars(protocol), *getattr(protocol, "__annotations__", ())):
        if not name.startswith("_"):
            yield name


_driver: type[Driver] = Adaptor
