"""`Stream` and `Event`: order on the device, recycled behind the scenes."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from lifetimes.errors import BackendError, OwnershipError
from lifetimes.lifetime import Lifetime
from lifetimes.timeline import Timeline, Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lifetimes.backend import StreamHandle
    from lifetimes.resources.context import Context
    from lifetimes.resources.reservoir import Reservoir
    from lifetimes.timeline import Ticket

__all__ = ["Event", "Stream"]


class Stream(Lifetime[Timeline]):
    """An in-order queue of a device.  Made by `Device.create_stream`.

    Dropping it makes no driver call and waits for nothing: the queue goes back to the context and is handed out again
    once its work has finished, never after a failure.

    >>> import lifetimes
    >>> with lifetimes.open("host") as device:
    ...     stream = device.create_stream()
    ...     event = stream.record()
    ...     event.wait()
    ...     event.completed(), stream.idle
    (True, True)
    """

    __slots__ = ("_context", "_recorded", "_synchronized")

    def __init__(self, context: Context, parents: Sequence[Lifetime[Any]], *, label: str | None = None) -> None:
        self._context = context
        timeline = context.streams.take()
        self._recorded = self._synchronized = timeline.issued  # what is behind these was told to somebody else
        super().__init__(timeline, _give_back, context.streams, timeline, kind="stream", label=label, parents=parents)

    @classmethod
    def borrowed(
        cls, context: Context, parents: Sequence[Lifetime[Any]], handle: StreamHandle, owner: object = None
    ) -> Stream:
        """A queue that somebody else owns, who is held meanwhile.  Each use of it records an event at once."""
        stream = cls.__new__(cls)
        stream._context = context
        stream._recorded = stream._synchronized = 0
        timeline = Timeline(context.driver, handle, borrowed=True)
        Lifetime.__init__(stream, timeline, _retire, context.retired, timeline, owner, kind="stream", parents=parents)
        return stream

    @property
    def timeline(self) -> Timeline:
        """Its order in numbers.  Errors: `ClosedError`."""
        return self.value

    @property
    def handle(self) -> StreamHandle:
        """The driver's own handle, for the user's own calls.  Errors: `ClosedError`."""
        return self.value.handle

    @property
    def idle(self) -> bool:
        """Whether all work so far has finished.  Never blocks."""
        timeline = self._timeline()
        return timeline.done(timeline.tick())

    def work(self) -> Work:
        """Everything enqueued so far, as a task: what `Lifetime.after` takes, and ``.wait()``."""
        timeline = self._timeline()
        return Work(timeline, timeline.tick())

    def record(self, event: Event | None = None) -> Event:
        """An event behind everything so far (a given one is moved there)."""
        event = Event(self._context, (self._context,)) if event is None else event
        event.record(self)
        return event

    def wait_for(self, event: Event) -> None:
        """Work enqueued from now on starts after the event; the host does not block.

        Errors: `OwnershipError` for an event of another device.
        """
        timeline = self._timeline()
        if event._context is not self._context:
            raise OwnershipError(f"{self!r} and {event!r} belong to different devices; wait for the event on the host")
        self._context.driver.stream_wait(timeline.handle, event.value)

    def synchronize(self) -> None:
        """Block until all work so far has finished.  Errors: `BackendError` when some of it, since the last time, failed."""
        timeline = self._timeline()
        since, self._synchronized = self._synchronized, timeline.tick()
        timeline.wait(self._synchronized)
        for _, until, error in list(timeline.failures):
            if until > since:
                raise BackendError(f"work on {self!r} failed: {error}") from error

    def _timeline(self) -> Timeline:
        self._context.check()
        return self.value


class Event(Lifetime[Any]):
    """A point in a stream.  Made by `Device.create_event` or `Stream.record`; recycled like streams.

    It is a task: ``lt.after(event)`` keeps a lifetime until the event has completed.  It stays one when it is closed,
    since the point in the stream is still there.
    """

    __slots__ = ("_at", "_context", "_since")

    def __init__(self, context: Context, parents: Sequence[Lifetime[Any]], *, label: str | None = None) -> None:
        self._context = context
        self._at: Ticket | None = None
        self._since = 0
        handle = context.events.take()
        super().__init__(handle, context.events.give, handle, kind="event", label=label, parents=parents)

    def record(self, stream: Stream) -> None:
        """Move it behind everything enqueued on ``stream`` so far.  Errors: `OwnershipError` for another device's."""
        timeline = stream._timeline()
        if stream._context is not self._context:
            raise OwnershipError(f"{self!r} and {stream!r} belong to different devices; record an event of its own")
        handle = self.value
        # The stream's own mark goes first: a failure is told by the first event behind it, and the arrays need to know.
        sequence = timeline.tick()
        timeline.mark()
        self._context.driver.record(handle, timeline.handle)
        self._at = (timeline, sequence)
        # Failures are told since the event before it: one that the manager recorded in between has told only the arrays.
        self._since, stream._recorded = stream._recorded, sequence

    def completed(self) -> bool:
        """Whether the work before it has finished.  Never blocks.

        Errors: `BackendError` when work failed that was enqueued since the event recorded before it on that stream.
        """
        self._context.check()
        if not self.closed and not self._context.driver.completed(self._value):
            return False
        if self._at is None:
            return True
        timeline, sequence = self._at
        return timeline.done(sequence) and _told(timeline, self._since, sequence)

    def wait(self) -> None:
        """Block until it has.  Errors: as `completed`."""
        self._context.check()
        if not self.closed:
            self._context.driver.wait(self._value)
        if self._at is not None:
            timeline, sequence = self._at
            timeline.wait(sequence)
            _told(timeline, self._since, sequence)


def _told(timeline: Timeline, since: int, sequence: int) -> bool:
    for low, high, error in list(timeline.failures):
        if low < sequence and since < high:
            # A new one each time: the timeline keeps its own, and must not keep the frames of whoever asked.
            raise BackendError(f"work before the event failed: {error}") from error
    return True


def _give_back(streams: Reservoir[Timeline], timeline: Timeline) -> None:
    timeline.issued += 1  # a mark from now on stands behind what the user enqueued on the handle, too
    streams.give(timeline)


def _retire(retired: deque[Timeline], timeline: Timeline, owner: object) -> None:
    """Only the events are ours, and tickets may still need them.  The owner may go now."""
    retired.append(timeline)
