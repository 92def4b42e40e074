"""What a back end promises: small protocols, each member marked must, should or may.

A *back end* describes what is installed; opening one of its devices gives a *driver*, the only object that touches
raw handles.  Addresses are always integers.  Asynchronous calls take a raw stream handle and return at once; what
they need (host arrays, events of a copy) is held by the driver until they completed.

An optional ability is its own protocol (`SupportsContext`, `SupportsCode`, ...).  Whoever opens a driver decides once, by
`isinstance`, which abilities it has, and never by the back end's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from lifetimes._typing import HostArray

__all__ = [
    "Backend",
    "DeviceInfo",
    "Driver",
    "EventHandle",
    "Handle",
    "IsSynchronous",
    "MemoryInfo",
    "StreamHandle",
    "SupportsCode",
    "SupportsContext",
    "SupportsHostCall",
    "SupportsPromptCall",
    "Usability",
]

Handle: TypeAlias = Any
"""A raw handle of the driver's own kind.  Only the driver looks inside."""
StreamHandle: TypeAlias = Any
EventHandle: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Usability:
    """Whether a back end can be used here; if not, why, and what would mend it."""

    usable: bool
    reason: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One device of a back end: its index, name, and total memory in bytes (None where there is no such query)."""

    index: int
    name: str
    total_memory: int | None = None
    version: str = ""

    def matches(self, pattern: str) -> bool:
        """Whether the pattern (``*``, ``?`` and ``[]`` as in a shell, or plain text) occurs in name and version.

        Upper and lower case are alike.

        >>> DeviceInfo(0, "pthread (Portable Computing Language)", version="PoCL 3.0-rc2").matches("pocl 3")
        True
        """
        wanted = pattern.casefold()
        words = f"{self.name} {self.version}".casefold()
        return wanted in words or fnmatchcase(words, f"*{wanted}*")


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """Bytes of device memory, as the driver tells it."""

    free: int
    total: int


@runtime_checkable
class Driver(Protocol):
    """The raw operations of one opened device: memory and order.

    Threading: every call may come from any thread.  Errors: `OutOfMemory` for exactly the codes the driver publishes
    in ``out_of_memory_codes``, `BackendError` for everything else.
    """

    name: str
    """must: the name of the back end, for messages only."""
    out_of_memory_codes: frozenset[object]
    """must: which of the runtime's codes mean out of memory.  Nothing else does."""
    max_allocation: int
    """must: the largest single allocation in bytes."""

    # Memory.
    def allocate(self, nbytes: int) -> int:
        """must: ``nbytes`` >= 1 bytes of device memory, aligned to 256; its address is never 0."""
        ...

    def free(self, address: int) -> None:
        """must: give back an address that `allocate` returned.  All work that uses it has completed by then."""
        ...

    def copy_in(self, address: int, source: HostArray, stream: StreamHandle) -> None:
        """must: host to device.  ``source`` is C-contiguous, unchanged by the caller, and held until the copy is done."""
        ...

    def copy_out(self, destination: HostArray, address: int, stream: StreamHandle) -> None:
        """must: device to host, all of ``destination`` (C-contiguous, writable), which is held until the copy is done."""
        ...

    def copy(self, destination: int, source: int, nbytes: int, stream: StreamHandle) -> None:
        """must: device to device; the two ranges do not overlap."""
        ...

    def memory_info(self) -> MemoryInfo | None:
        """must: free and total bytes, or None where the runtime has no such query."""
        ...

    # Order.
    def create_stream(self) -> StreamHandle:
        """must: an in-order queue of work."""
        ...

    def destroy_stream(self, stream: StreamHandle) -> None:
        """must: give the stream back.  Its work has completed by then."""
        ...

    def create_event(self) -> EventHandle:
        """must: an event that has not been recorded, which counts as completed."""
        ...

    def destroy_event(self, event: EventHandle) -> None:
        """must."""
        ...

    def record(self, event: EventHandle, stream: StreamHandle) -> None:
        """must: the event completes when all work enqueued on ``stream`` so far has.  Recording again resets it."""
        ...

    def completed(self, event: EventHandle) -> bool:
        """must: never blocks.  Raises `BackendError` when work between this and the stream's previous event failed."""
        ...

    def wait(self, event: EventHandle) -> None:
        """must: block until completed, the interpreter free to run other threads.  Raises as `completed` does."""
        ...

    def stream_wait(self, stream: StreamHandle, event: EventHandle) -> None:
        """must: work enqueued on ``stream`` from now on starts after the event; the host does not block."""
        ...

    def synchronize(self, stream: StreamHandle) -> None:
        """must: block until all work of the stream is done.  Failures are told by events, not here."""
        ...

    def close(self) -> None:
        """must: give everything back that the driver itself holds (worker threads, contexts).  Closing twice is fine."""
        ...


@runtime_checkable
class IsSynchronous(Protocol):
    """may: a driver all of whose work is done, or has raised, when the call returns: nobody asks it for events then."""

    synchronous: Literal[True]
    """True.  A driver that does not promise it has no such attribute."""


@runtime_checkable
class SupportsContext(Protocol):
    """should: a driver whose calls need its context to be current on the calling thread."""

    def make_current(self) -> Handle:
        """Make the driver's context current on this thread; the result is what `restore` wants."""
        ...

    def restore(self, previous: Handle) -> None:
        """Put back what was current before, even if that has died meanwhile."""
        ...


@runtime_checkable
class SupportsCode(Protocol):
    """may (must for the JIT): compile, load and launch code."""

    target: str
    """The source language that `compile` takes."""

    def compile(self, source: str) -> bytes:
        """A loadable binary.  Errors: `CompileError` with the source and the compiler's log."""
        ...

    def load(self, binary: bytes) -> Handle:
        """A module handle."""
        ...

    def unload(self, module: Handle) -> None:
        """No kernel of the module is in flight by then."""
        ...

    def function(self, module: Handle, name: str) -> Handle:
        """The kernel of that name.  Errors: `BackendError` that lists the names there are."""
        ...

    def launch(self, function: Handle, size: Sequence[int], args: Sequence[object], stream: StreamHandle) -> None:
        """Enqueue the kernel over ``size`` items; ``args`` are addresses and scalars in the kernel's order."""
        ...


@runtime_checkable
class SupportsHostCall(Protocol):
    """may: device memory that the host can see, so that a Python function can be enqueued on a stream."""

    def view(self, address: int, nbytes: int) -> HostArray:
        """A writable uint8 array over device memory (interior addresses too); it owns nothing."""
        ...

    def call(self, function: Any, args: Sequence[object], stream: StreamHandle) -> None:
        """Enqueue ``function(*args)``; what it raises fails the stream's next event."""
        ...


@runtime_checkable
class SupportsPromptCall(Protocol):
    """may: a function of microseconds can be run at once, where a stream has nothing to do."""

    def call_now(self, function: Any, args: Sequence[object], stream: StreamHandle) -> bool:
        """Run ``function(*args)`` on this thread, if all work of the stream is done and none of it failed untold.

        Else False, and nothing was done.  It blocks on nothing and starts nothing: it is called under a lock, with functions
        of machine code that neither wait nor raise.
        """
        ...


class Backend(Protocol):
    """What is installed.  One object a back end, found by the registry; importing it imports no vendor library."""

    name: str
    """must."""

    def usability(self) -> Usability:
        """must: cheap and safe; what may crash the process is tried in a subprocess."""
        ...

    def devices(self) -> Sequence[DeviceInfo]:
        """must: empty when not usable."""
        ...

    def open(self, index: int = 0) -> Driver:
        """must: a driver for one device.  Errors: `BackendError` naming the indices there are.

        Patterns need nothing here: `lifetimes.open` looks for them in what `devices` tells.
        """
        ...
