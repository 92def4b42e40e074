"""The driver of the host: memory of this process, worker threads as streams."""

from __future__ import annotations

import errno
import os
import warnings
import weakref
from collections.abc import Callable, Sequence
from operator import setitem
from time import monotonic

from lifetimes._typing import ByteView, HostArray
from lifetimes.backend import Driver, MemoryInfo, SupportsHostCall, SupportsPromptCall
from lifetimes.errors import BackendError, CleanupWarning, ClosedError
from lifetimes_host.lanes import Lane
from lifetimes_host.limits import check_limit
from lifetimes_host.marks import DESTROYED, DONE, Mark
from lifetimes_host.memory import BYTE, Memory
from lifetimes_host.streams import HostEvent, HostStream, lane_of, mark_of

__all__ = ["INLINE_BYTES", "JOIN_SECONDS", "HostDriver"]

INLINE_BYTES = 64 << 10
"""A copy of at most this many bytes is short: on an idle stream it runs on the caller's thread."""
JOIN_SECONDS = 5.0
"""How long `HostDriver.close` waits for commands that still run."""

_drivers: weakref.WeakSet[HostDriver] = weakref.WeakSet()


class HostDriver:
    """Real memory under ``limit`` bytes (None: 75 % of physical memory, control groups included).

    Copies of more than 64 KiB, and `call`, go through the stream's worker thread, which starts with the first of them;
    NumPy copies at the speed of ``memcpy`` and lets other threads run.  Whatever a queued command needs, it holds until
    it has run and not longer.  What a command raises fails the next event recorded on its stream, and that one only.
    A driver that is dropped without `close` ends its threads and says nothing.

    Errors: beside those of the protocol, `ClosedError` after `close` and in a process that inherited the driver by a
    fork, where its threads do not exist.

    Complexity: on an idle stream about 1 us for a small copy, 0.15 us for `record`, 0.1 us for `completed`; 10 to
    55 us for a trip through the worker.
    Locks: one for the table of blocks, held for table operations only; streams and events take none.

    >>> import numpy as np
    >>> driver = HostDriver(limit=1 << 20)
    >>> address, stream, event = driver.allocate(80), driver.create_stream(), driver.create_event()
    >>> result = np.empty(10)
    >>> driver.copy_in(address, np.arange(10.0), stream)
    >>> driver.copy_out(result, address, stream)
    >>> driver.record(event, stream)
    >>> driver.wait(event)
    >>> result.sum()
    np.float64(45.0)
    >>> driver.memory_info().free
    1048496
    >>> driver.close()
    """

    name = "host"
    out_of_memory_codes: frozenset[object] = frozenset({errno.ENOMEM})

    def __init__(self, limit: int | None = None) -> None:
        self._refusal = ""  # not empty: why every call is refused
        self._streams: set[HostStream] = set()
        self._memory = Memory(check_limit(limit))
        self._process = os.getpid()
        self.max_allocation = self._memory.limit
        _drivers.add(self)

    # Memory.
    def allocate(self, nbytes: int) -> int:
        """``nbytes`` bytes that have not been touched, aligned to 256.

        Errors: `OutOfMemory` with the request, the bytes in use and the limit; also when the system itself refuses.
        """
        if self._refusal:
            self._refuse()
        return self._memory.allocate(nbytes)

    def free(self, address: int) -> None:
        if self._refusal:
            self._refuse()
        self._memory.free(address)

    def memory_info(self) -> MemoryInfo:
        if self._refusal:
            self._refuse()
        memory = self._memory
        return MemoryInfo(memory.limit - memory.used, memory.limit)

    def view(self, address: int, nbytes: int) -> ByteView:
        """Bytes of device memory as an array.  It keeps them readable after a `free`, but not yours."""
        if self._refusal:
            self._refuse()
        block, offset = self._memory.find(address, nbytes)
        return block[offset : offset + nbytes]

    # Copies.
    def copy_in(self, address: int, source: HostArray, stream: HostStream) -> None:
        if self._refusal:
            self._refuse()
        nbytes = source.nbytes
        lane = lane_of(stream)
        if not source.flags.c_contiguous:
            raise BackendError("copy_in needs a C-contiguous array; np.ascontiguousarray makes one")
        if nbytes:
            block, offset = self._memory.find(address, nbytes)
            target = slice(offset, offset + nbytes)
            lane.submit(setitem, (block, target, source.ravel().view(BYTE)), nbytes <= INLINE_BYTES)

    def copy_out(self, destination: HostArray, address: int, stream: HostStream) -> None:
        if self._refusal:
            self._refuse()
        nbytes = destination.nbytes
        lane = lane_of(stream)
        flags = destination.flags
        if not flags.c_contiguous or not flags.writeable:
            raise BackendError("copy_out needs a C-contiguous and writable array; np.empty makes one")
        if nbytes:
            block, offset = self._memory.find(address, nbytes)
            source = block[offset : offset + nbytes]
            lane.submit(setitem, (destination.ravel().view(BYTE), ..., source), nbytes <= INLINE_BYTES)

    def copy(self, destination: int, source: int, nbytes: int, stream: HostStream) -> None:
        if self._refusal:
            self._refuse()
        lane = lane_of(stream)
        if nbytes < 0:
            raise BackendError(f"copy needs a size of at least 0 bytes, not {nbytes}")
        if nbytes:
            block, offset = self._memory.find(destination, nbytes)
            origin, start = self._memory.find(source, nbytes)
            target = slice(offset, offset + nbytes)
            lane.submit(setitem, (block, target, origin[start : start + nbytes]), nbytes <= INLINE_BYTES)

    # Order.
    def create_stream(self) -> HostStream:
        if self._refusal:
            self._refuse()
        stream = HostStream()
        self._streams.add(stream)
        return stream

    def destroy_stream(self, stream: HostStream) -> None:
        """Give the stream back; work that is left in it is still done.  Warns of failures that no event has told."""
        if self._refusal:
            self._refuse()
        lane = lane_of(stream)
        self._streams.discard(stream)
        lane.stop()
        _warn_of_untold(lane)

    def create_event(self) -> HostEvent:
        if self._refusal:
            self._refuse()
        return HostEvent()

    def destroy_event(self, event: HostEvent) -> None:
        if self._refusal:
            self._refuse()
        old = mark_of(event)
        event.mark = DESTROYED
        old.abandon()

    def record(self, event: HostEvent, stream: HostStream) -> None:
        if self._refusal:
            self._refuse()
        old = mark_of(event)
        lane = lane_of(stream)
        if old is not DONE:
            old.abandon()
        if not lane.queue and not lane.running and not lane.failures:  # in this order: Note [Idle] in lanes.py
            event.mark = DONE
            return
        mark = Mark(lane)
        lane.submit(mark.finish, (), True)
        event.mark = mark  # only now: an interrupted call leaves the event as it was

    def completed(self, event: HostEvent) -> bool:
        if self._refusal:
            self._refuse()
        mark = mark_of(event)
        if mark.done:
            if mark.failures:
                mark.tell()
            return True
        if mark.lane is not None:
            mark.lane.nudge()
        return False

    def wait(self, event: HostEvent) -> None:
        """Block until completed.  Ctrl-C interrupts it.  Errors: as `completed`; `BusyError` inside the same stream."""
        if self._refusal:
            self._refuse()
        mark = mark_of(event)
        mark.wait()
        mark.tell()

    def stream_wait(self, stream: HostStream, event: HostEvent) -> None:
        """Order only: a failure that the event tells is not the waiting stream's."""
        if self._refusal:
            self._refuse()
        lane = lane_of(stream)
        mark = mark_of(event)
        if not mark.done and mark.lane is not lane:
            lane.submit(mark.wait, (), False)

    def synchronize(self, stream: HostStream) -> None:
        if self._refusal:
            self._refuse()
        lane = lane_of(stream)
        if not lane.idle():
            mark = Mark(lane)
            lane.submit(mark.release, (), True)
            mark.wait()

    # Host calls.
    def call(
        self, function: Callable[..., object], args: Sequence[object], stream: HostStream, *, short: bool = False
    ) -> None:
        """Run ``function(*args)`` in the stream's order, on its worker thread.

        ``short`` promises that it takes microseconds: on an idle stream it then runs on the caller's thread.
        What it raises fails the stream's next event, in both cases.
        """
        if self._refusal:
            self._refuse()
        lane_of(stream).submit(function, tuple(args), short)

    def call_now(self, function: Callable[..., object], args: Sequence[object], stream: HostStream) -> bool:
        if self._refusal:
            self._refuse()
        return (stream.lane if stream.__class__ is HostStream else lane_of(stream)).run_now(function, args)

    # End.
    def close(self) -> None:
        """Run what is queued, end the worker threads, give all memory back.  Twice is fine; in a forked child, nothing.

        Waits 5 s at most, in all, for commands that still run; those are then left to their daemon threads with one
        `CleanupWarning`.  A failure that no event has told is a `CleanupWarning` too.
        """
        if self._refusal:
            return
        self._refusal = "is closed"
        lanes = [stream.lane for stream in self._streams]
        self._streams.clear()
        for lane in lanes:
            lane.stop()
        deadline = monotonic() + JOIN_SECONDS
        late = sum(not lane.join(deadline - monotonic()) for lane in lanes)
        self._memory.clear()
        if late:
            warnings.warn(
                f"{late} host streams still ran a command {JOIN_SECONDS:g} s after their driver was closed; "
                "the memory it uses stays until it ends",
                CleanupWarning,
                stacklevel=2,
            )
        for lane in lanes:
            _warn_of_untold(lane)

    def __del__(self) -> None:
        for stream in self._streams:  # handles that somebody still holds would keep their threads
            stream.lane.stop()

    def check_invariants(self) -> None:
        """Recount the memory; meant for tests."""
        self._memory.check_invariants()

    def _refuse(self) -> None:
        raise ClosedError(f"this host driver {self._refusal}; open the device again for a new one")

    def _inherited(self) -> None:
        if not self._refusal:
            self._refusal = f"was inherited from process {self._process} by a fork, and its threads live there"

    def __repr__(self) -> str:
        return f"<HostDriver of {self._memory.limit:,} bytes, {self._refusal or 'open'}>"


def _warn_of_untold(lane: Lane) -> None:
    failures, lane.failures = lane.failures, []
    if failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        warnings.warn(
            f"a command on a host stream failed and no event was recorded to tell it: {failures[0]}{more}",
            CleanupWarning,
            stacklevel=3,
        )


def _mark_inherited() -> None:
    for driver in list(_drivers):
        driver._inherited()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_inherited)

_driver: type[Driver] = HostDriver
_calls: type[SupportsHostCall] = HostDriver
_prompt: type[SupportsPromptCall] = HostDriver
