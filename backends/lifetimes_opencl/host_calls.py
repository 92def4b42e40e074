"""The calls of drivers whose memory the host can see: views, and Python functions on a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from lifetimes._typing import ByteView
from lifetimes.errors import BackendError, BusyError
from lifetimes_opencl.base import DriverBase
from lifetimes_opencl.blocks import SvmBlock
from lifetimes_opencl.calls import Caller, Job
from lifetimes_opencl.runtime import cl, raw

__all__ = ["HostCalls"]

MANY: Final = 64
"""So many outcomes may wait for an event before a call looks which of them can be forgotten."""


class HostCalls(DriverBase):
    """Only for fine-grained shared memory of a processor, where looking is allowed while no work is on the memory."""

    def view(self, address: int, nbytes: int) -> ByteView:
        """Bytes of device memory as an array.  It keeps them readable after a `free`, but not yours."""
        if self._refusal:
            self._refuse()
        block, offset = self.blocks.find(address, nbytes)
        if not isinstance(block, SvmBlock):
            raise BackendError(f"the buffer adopted at {block.address:#x} cannot be seen by the host; copy it out")
        return block.array[offset : offset + nbytes]

    def call(self, function: Callable[..., object], args: Sequence[object], stream: Any) -> None:
        """Run ``function(*args)`` in the stream's order, on a thread of the stream; the caller goes on at once.

        What it raises fails the stream's next event and stops nothing.
        Errors: `BusyError` from code that interrupted this very call on the same stream.
        Locks: the stream's, so that functions run in the order in which they stand in the queue.
        """
        checked = self._stream(stream)
        lock = checked.calls_lock()
        job = Job(function, tuple(args), cl.UserEvent(self.context))
        if lock._is_owned():  # what threading.Condition asks too
            raise BusyError("call was used by code that interrupted a call on the same stream on this thread")
        try:
            with lock:
                job.before = raw._enqueue_marker(checked.queue)
                barrier = (checked.queue, [job.after])
                job.barrier = checked.enqueue(raw._enqueue_barrier_with_wait_list, barrier, None)
                checked.queue.flush()
                if len(checked.outcomes) >= MANY:
                    checked.forget_good_outcomes()
                checked.outcomes.append(job.outcome)
                if checked.caller is None:
                    checked.caller = Caller()
                taken = checked.caller.submit(job)
            if not taken:
                job.run()
        except cl.Error as error:
            job.take_back()
            raise self._error(error, "calling a function on a stream") from error
        except BaseException:  # an interrupt: perhaps the queue waits already, for a function that will not run
            job.take_back()
            raise
