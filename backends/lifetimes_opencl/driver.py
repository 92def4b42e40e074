"""The driver: all of its calls in one class, and its end."""

from __future__ import annotations

import ctypes
import gc
import os
import time
import warnings
import weakref
from typing import Any, Final

from lifetimes.backend import Driver, SupportsCode, SupportsHostCall
from lifetimes.errors import CleanupWarning
from lifetimes_opencl.code import CodeCalls
from lifetimes_opencl.host_calls import HostCalls
from lifetimes_opencl.memory import MemoryCalls
from lifetimes_opencl.order import OrderCalls
from lifetimes_opencl.programs import OpenCLKernel, OpenCLModule
from lifetimes_opencl.runtime import STATUS, cl, raw
from lifetimes_opencl.streams import Held, Mark, OpenCLStream

__all__ = ["CLOSE_SECONDS", "HostVisibleDriver", "OpenCLDriver"]

CLOSE_SECONDS = 5.0
"""How long `OpenCLDriver.close` waits for work that still runs."""
SHORTEST_NAP: Final = 20e-6
LONGEST_NAP: Final = 5e-3

_drivers: weakref.WeakSet[OpenCLDriver] = weakref.WeakSet()


class OpenCLDriver(MemoryCalls, OrderCalls, CodeCalls):
    """One device through PyOpenCL, with a context of its own or somebody else's.

    Threading: any thread.  Ctrl-C does not interrupt a wait: the runtime has no way to stop waiting.
    Errors: beside those of the protocol, `ClosedError` after `close` and in a process that inherited the driver by a fork.

    Complexity: 0.5 us for `record`, 0.1 us for `completed`, 1 us beside the bare call for copies and launches.
    """

    def __init__(self, device: Any, context: Any, memory: str, limit: int | None = None) -> None:
        super().__init__(device, context, memory, limit)
        _drivers.add(self)

    def close(self) -> None:
        """Do what is queued and give everything back.  Twice is fine; in a forked child, nothing.

        Waits 5 s at most, in all, for work that still runs; what it uses is then left as it is, with one `CleanupWarning`.
        Contexts and queues of somebody else are let go and go on to live.
        """
        if self._refusal:
            return
        self._refusal = "is closed"
        streams = [*self._streams, *self._borrowed.streams()]
        deadline = time.monotonic() + CLOSE_SECONDS
        inside = [stream for stream in streams if stream.caller is not None and stream.caller.here]
        late = [stream for stream in streams if stream not in inside and not _settle(stream, deadline)]
        untold = [failure for stream in streams for each in stream.outcomes for failure in each.failures]
        for stream in streams:
            if stream.caller is not None:
                stream.caller.stop()
        if inside:  # in a function on this stream, whose queue cannot end before we return
            _never_release(self)
        elif late:
            _never_release(self)
            warnings.warn(
                f"{len(late)} OpenCL streams still had work {CLOSE_SECONDS:g} s after their driver was closed; "
                "what it uses is left to the end of the process",
                CleanupWarning,
                stacklevel=2,
            )
        else:
            for stream in streams:
                if stream.caller is not None:
                    stream.caller.join(max(deadline - time.monotonic(), 0.0))
                stream.let_go()
                stream.queue = None
            self._streams.clear()
            self._borrowed.clear()
            self.blocks.clear()
            self.context = None
        if untold:
            more = f" (and {len(untold) - 1} more)" if len(untold) > 1 else ""
            warnings.warn(
                f"a function on an OpenCL stream failed and no event was recorded to tell it: {untold[0]}{more}",
                CleanupWarning,
                stacklevel=2,
            )

    def __del__(self) -> None:
        if getattr(self, "_refusal", "not made") or os.getpid() != self._process:
            return
        streams = [*self._streams, *self._borrowed.streams()]
        callers = [stream.caller for stream in streams if stream.caller is not None]
        for caller in callers:
            caller.stop()
        deadline = time.monotonic() + CLOSE_SECONDS
        # A function may wait for anything, and freeing what is in use would end the process.
        if callers or not all(_settle(stream, deadline) for stream in streams):
            _never_release(streams, self.blocks)

    def check_invariants(self) -> None:
        """Recount the memory; meant for tests."""
        self.blocks.check_invariants()

    def _inherited(self) -> None:
        if not self._refusal:
            self._refusal = f"was inherited from process {self._process} by a fork, and its device works for that one"
            _never_release(self)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {self.device.name.strip()!r}, {self.memory} memory, {self._refusal or 'open'}>"
        )


class HostVisibleDriver(OpenCLDriver, HostCalls):
    """A driver whose memory the host can see: fine-grained shared memory of a processor."""


def _settle(stream: OpenCLStream, deadline: float) -> bool:
    """Wait until nothing is left in a stream, but not beyond ``deadline``."""
    try:
        marker = raw._enqueue_marker(stream.queue)
        stream.queue.flush()
        nap = SHORTEST_NAP
        while marker.get_info(STATUS) > 0:
            if time.monotonic() >= deadline:
                return False
            time.sleep(nap)
            nap = min(2 * nap, LONGEST_NAP)
    except cl.Error:  # the queue or its context has gone: there is nothing to wait for
        pass
    return True


def _never_release(*things: object) -> None:
    """Keep objects for the life of the process: releasing them could hang or crash it."""
    for thing in things:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _mark_inherited() -> None:
    """In a forked child.  A release would wait for locks of the runtime that a thread held which is not here."""
    drivers = list(_drivers)
    for driver in drivers:
        driver._inherited()
    if drivers:
        holders = (Held, Mark, OpenCLKernel, OpenCLModule, OpenCLStream)
        _never_release(*(thing for thing in gc.get_objects() if type(thing) in holders))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_inherited)

_driver: type[Driver] = OpenCLDriver
_code: type[SupportsCode] = OpenCLDriver
_calls: type[SupportsHostCall] = HostVisibleDriver
