"""Stream and event handles."""

from __future__ import annotations

from lifetimes.errors import BackendError
from lifetimes_host.lanes import Lane
from lifetimes_host.marks import DESTROYED, DONE, Mark

__all__ = ["HostEvent", "HostStream", "lane_of", "mark_of"]


class HostStream:
    """A stream handle.  Its worker ends when the handle and what is queued are gone."""

    __slots__ = ("__weakref__", "lane")

    def __init__(self) -> None:
        self.lane = Lane()

    def __del__(self) -> None:
        self.lane.stop()

    def __repr__(self) -> str:
        state = "stopped" if self.lane.stopped else "idle" if self.lane.idle() else "busy"
        return f"<host stream {id(self):#x}, {state}>"


class HostEvent:
    """An event handle: a name for the mark of its last recording."""

    __slots__ = ("__weakref__", "mark")

    def __init__(self) -> None:
        self.mark = DONE

    def __repr__(self) -> str:
        state = "destroyed" if self.mark is DESTROYED else "completed" if self.mark.done else "pending"
        return f"<host event {id(self):#x}, {state}>"


def lane_of(stream: object) -> Lane:
    """The lane behind a stream handle.  Errors: `BackendError` for what is no live stream."""
    if stream.__class__ is HostStream:
        lane: Lane = stream.lane
        if not lane.stopped:
            return lane
        raise BackendError(f"{stream!r} was destroyed")
    raise BackendError(f"{stream!r} is no stream of the host back end")


def mark_of(event: object) -> Mark:
    """The mark behind an event handle.  Errors: `BackendError` for what is no live event."""
    if event.__class__ is HostEvent:
        mark: Mark = event.mark
        if mark is not DESTROYED:
            return mark
        raise BackendError(f"{event!r} was used after it was destroyed")
    raise BackendError(f"{event!r} is no event of the host back end")
