"""`Stream` and `Event`: order on the device, recycled behind the scenes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lifetimes.errors import OwnershipError
from lifetimes.lifetime import Lifetime
from lifetimes.timeline import Timeline, Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lifetimes.backend import StreamHandle
    from lifetimes.resources.context import Context

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

    __slots__ = ("_context",)

    def __init__(self, context: Context, parents: Sequence[Lifetime[Any]], *, label: str | None = None) -> None:
        self._context = context
        timeline = context.streams.take()
        super().__init__(timeline, context.streams.give, timeline, kind="stream", label=label, parents=parents)

    @classmethod
    def borrowed(
        cls, context: Context, parents: Sequence[Lifetime[Any]], handle: StreamHandle, owner: object = None
    ) -> Stream:
        """A queue that somebody else owns, who is held meanwhile.  Each use of it records an event at once."""
        stream = cls.__new__(cls)
        stream._context = context
        timeline = Timeline(context.driver, handle, borrowed=True)
        Lifetime.__init__(stream, timeline, _end_borrowing, timeline, owner, kind="stream", parents=parents)
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
        timeline = self.value
        return timeline.done(timeline.tick())

    def work(self) -> Work:
        """Everything enqueued so far, as a task: what `Lifetime.after` takes, and ``.wait()``."""
        timeline = self.value
        return Work(timeline, timeline.tick())

    def record(self, event: Event | None = None) -> Event:
        """An event behind everything so far (a given one is moved there)."""
        event = Event(self._context, (self._context,)) if event is None else event
        event.record(self)
        return event

    def wait_for(self, event: Event) -> None:
        """Work enqueued from now on starts after the event; the host does not block."""
        self._context.driver.stream_wait(self.handle, event.value)

    def synchronize(self) -> None:
        """Block until all work so far has finished.  Errors: `BackendError` when some of it failed."""
        self.work().wait()


class Event(Lifetime[Any]):
    """A point in a stream.  Made by `Device.create_event` or `Stream.record`; recycled like streams.

    It is a task: ``lt.after(event)`` keeps a lifetime until the event has completed.
    """

    __slots__ = ("_context",)

    def __init__(self, context: Context, parents: Sequence[Lifetime[Any]], *, label: str | None = None) -> None:
        self._context = context
        handle = context.events.take()
        super().__init__(handle, context.events.give, handle, kind="event", label=label, parents=parents)

    def record(self, stream: Stream) -> None:
        """Move it behind everything enqueued on ``stream`` so far."""
        if stream._context is not self._context:
            raise OwnershipError(f"{self!r} and {stream!r} belong to different devices")
        self._context.driver.record(self.value, stream.handle)

    def completed(self) -> bool:
        """Whether the work before it has finished.  Never blocks.  Errors: `BackendError` when that failed."""
        finished: bool = self._context.driver.completed(self.value)
        return finished

    def wait(self) -> None:
        """Block until it has.  Errors: as `completed`."""
        self._context.driver.wait(self.value)


def _end_borrowing(timeline: Timeline, owner: object) -> None:
    """Only the events are ours; the owner may go now."""
    timeline.close()
