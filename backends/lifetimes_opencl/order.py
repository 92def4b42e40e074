"""The driver's calls about order: streams, events, waiting, and what events can tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from lifetimes.errors import BackendError, BusyError
from lifetimes_opencl.base import DriverBase
from lifetimes_opencl.failures import code_name
from lifetimes_opencl.runtime import STATUS, cl, raw
from lifetimes_opencl.streams import DESTROYED, Mark, OpenCLEvent, OpenCLStream

__all__ = ["EventTimes", "OrderCalls"]

STATES: Final = {3: "queued", 2: "submitted", 1: "running", 0: "completed"}


@dataclass(frozen=True, slots=True)
class EventTimes:
    """When an event's marker was queued, submitted, started and ended: nanoseconds of the device's own clock."""

    queued: int
    submitted: int
    started: int
    ended: int


class OrderCalls(DriverBase):
    """Streams are in-order queues that keep times, events are markers in them.

    A command that fails on the device fails, in most runtimes, everything that was enqueued behind it already; events
    tell so with the runtime's code.
    """

    def create_stream(self) -> OpenCLStream:
        """An in-order queue that keeps times."""
        if self._refusal:
            self._refuse()
        try:
            queue = cl.CommandQueue(self.context, self.device, properties=cl.command_queue_properties.PROFILING_ENABLE)
        except cl.Error as error:
            raise self._error(error, "creating a queue") from error
        stream = OpenCLStream(queue)
        try:
            self._streams.add(stream)
            return stream
        except BaseException:  # an interrupt: the caller never learns of the stream
            self._streams.discard(stream)
            raise

    def destroy_stream(self, stream: Any) -> None:
        """Give the stream back; work that is left in it is still done.  Somebody else's queue is only forgotten."""
        checked = self._stream(stream)
        self.synchronize(checked)
        if checked.borrowed is not None:
            self._borrowed.forget(checked)
            return
        self._streams.discard(checked)
        self._end_stream(checked)

    def _end_stream(self, stream: OpenCLStream) -> None:
        if stream.caller is not None:
            stream.caller.stop()
        stream.let_go()
        stream.queue = None

    def create_event(self) -> OpenCLEvent:
        """An event without a marker, which counts as completed.  Costs the runtime nothing."""
        if self._refusal:
            self._refuse()
        return OpenCLEvent()

    def destroy_event(self, event: Any) -> None:
        """Its marker goes; failures that nobody was told go to the stream's next event."""
        mark = self._mark(event)
        if mark is not None:
            mark.abandon()
        event.mark = DESTROYED
        if mark is not None and mark.stream.borrowed is not None:
            self._borrowed.forget(mark.stream)

    def record(self, event: Any, stream: Any) -> None:
        """Put a new marker behind everything enqueued so far."""
        checked = self._stream(stream)
        old = self._mark(event)
        try:
            mark = Mark(raw._enqueue_marker(checked.queue), checked)
        except cl.Error as error:
            raise self._error(error, "recording an event") from error
        if old is not None:
            old.abandon()
        # No call from here on: an interrupt or another thread would find outcomes that no event tells, or two.
        outcomes = checked.outcomes
        if outcomes:
            checked.outcomes = mark.outcomes
            mark.outcomes = outcomes
        event.mark = mark

    def completed(self, event: Any) -> bool:
        """Never blocks.  Errors: `BackendError` when work before it failed, as often as it is asked."""
        mark = self._mark(event)
        if mark is None:
            return True
        status = mark.event.get_info(STATUS)
        if status > 0:
            mark.flush()
            return False
        self._finished(mark, status)
        return True

    def wait(self, event: Any) -> None:
        """Block until completed.  Errors: as `completed`; `BusyError` inside a function on the same stream."""
        mark = self._mark(event)
        if mark is None:
            return
        if mark.event.get_info(STATUS) > 0:
            self._refuse_to_wait_for_itself(mark.stream)
            try:
                mark.event.wait()
            except cl.Error as error:
                if mark.event.get_info(STATUS) >= 0:  # it is the waiting that failed
                    raise self._error(error, "waiting for an event") from error
        self._finished(mark, mark.event.get_info(STATUS))

    def _finished(self, mark: Mark, status: int) -> None:
        """Let go of what finished with the mark, and tell what failed before it."""
        if mark.stream.pending:
            mark.stream.let_go()
        failed = mark.failed() if mark.outcomes else []
        if failed:
            mark.told = True
            raise failed[0].as_error(failed[1:])
        if status < 0:
            raise BackendError(
                f"work before an event failed on {self.device.name.strip()!r}: the device says {code_name(status)}"
            )

    def stream_wait(self, stream: Any, event: Any) -> None:
        """Order only, for functions that fail.  Work that failed on the device fails what waits for it as well."""
        checked = self._stream(stream)
        mark = self._mark(event)
        if mark is None or mark.stream is checked or mark.event.get_info(STATUS) <= 0:
            return
        mark.flush()
        try:
            barrier = checked.enqueue(raw._enqueue_barrier_with_wait_list, (checked.queue, [mark.event]), None)
            mark.stream.hold(mark.event, barrier)  # Note [Held] in streams.py
        except cl.Error as error:
            raise self._error(error, "waiting for an event of another stream") from error

    def synchronize(self, stream: Any) -> None:
        """Block until all work of the stream is done.  Errors: `BusyError` inside a function on it."""
        checked = self._stream(stream)
        self._refuse_to_wait_for_itself(checked)
        try:
            checked.queue.finish()
        except cl.Error as error:
            raise self._error(error, "waiting for a queue") from error
        if checked.pending:
            checked.let_go()
        if checked.outcomes:
            checked.forget_good_outcomes()

    def _refuse_to_wait_for_itself(self, stream: OpenCLStream) -> None:
        if stream.caller is not None and stream.caller.here:
            raise BusyError(
                "this would wait for a stream from inside a function on that same stream, for ever; "
                "wait on another stream's event, or after the function has returned"
            )

    # What OpenCL events can tell beside being completed.

    def status(self, event: Any) -> str:
        """``queued``, ``submitted``, ``running``, ``completed``, ``failed``, or ``not recorded``.  Never blocks."""
        mark = self._mark(event)
        return "not recorded" if mark is None else STATES.get(mark.event.get_info(STATUS), "failed")

    def times(self, event: Any) -> EventTimes:
        """When the event's marker passed through the queue.

        Errors: `BackendError` before it has completed, when it was not recorded, and on somebody else's queue that keeps
        no times.
        """
        mark = self._mark(event)
        if mark is None:
            raise BackendError(f"{event!r} has no times: record it first")
        try:
            profile = mark.event.profile
            return EventTimes(profile.queued, profile.submit, profile.start, profile.end)
        except cl.Error as error:
            raise self._error(error, f"the times of an event that is {self.status(event)}") from error

    def elapsed(self, first: Any, last: Any) -> float:
        """Seconds between two events of this device, by its own clock.  Errors: as `times`."""
        return (self.times(last).ended - self.times(first).ended) / 1e9
