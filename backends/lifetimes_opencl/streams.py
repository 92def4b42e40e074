"""Streams and events: in-order queues, and markers in them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from itertools import starmap
from typing import TYPE_CHECKING, Any, Final

from lifetimes_opencl.failures import CallFailure
from lifetimes_opencl.runtime import STATUS

if TYPE_CHECKING:
    from lifetimes_opencl.calls import Caller

__all__ = ["DESTROYED", "Mark", "OpenCLEvent", "OpenCLStream", "Outcome"]


class Held:
    """A command on its way, and what must live until it is done."""

    __slots__ = ("events", "things")

    def __init__(self, things: object) -> None:
        self.things = things
        self.events: list[Any] = []  # empty while the command is being enqueued


class Outcome:
    """Of one function on a stream: whether it has run, and what it raised."""

    __slots__ = ("done", "failures")

    def __init__(self) -> None:
        self.done = False
        self.failures: list[CallFailure] = []


class OpenCLStream:
    """A stream handle: a queue, and what its commands need.

    Note [Letting go].  What a copy needs is let go by the first call that learns that the copy is done: an event that is
    found completed, a `synchronize`, the next copy on the stream.  There is no thread for it, and the list is never longer
    than what is in flight plus one.  Commands finish in order, so only the oldest is ever asked.  Two threads may look
    at once: each takes away exactly the one it has looked at.
    """

    __slots__ = ("__weakref__", "_calls", "borrowed", "caller", "outcomes", "pending", "queue")

    def __init__(self, queue: Any, *, borrowed: bool = False) -> None:
        self.queue = queue  # None once destroyed
        self.borrowed = borrowed
        self.pending: deque[Held] = deque()
        self.outcomes: list[Outcome] = []  # of the functions since the last event
        self.caller: Caller | None = None
        self._calls: dict[int, Any] = {}

    def enqueue(self, function: Callable[..., Any], args: tuple[Any, ...], things: object) -> None:
        """Enqueue ``function(*args)``, a call that returns an event, and hold ``things`` until it is done.

        Errors: what the function raises.  After an interrupt either the command is held or there is none.
        """
        held = Held(things)
        pending = self.pending
        try:
            pending.append(held)
            held.events.extend(starmap(function, (args,)))  # one C call from the runtime's answer to our list
        except BaseException:
            if not held.events:
                _take_away(pending, held)
            raise
        if len(pending) > 1:
            self.let_go()

    def let_go(self) -> None:
        """Drop what finished commands needed.  Note [Letting go]."""
        pending = self.pending
        while pending:
            try:
                oldest = pending[0]
            except IndexError:  # another thread took it
                return
            events = oldest.events
            if not events or events[0].get_info(STATUS) > 0:
                return
            _take_away(pending, oldest)

    def forget_good_outcomes(self) -> None:
        """Of functions that have run and raised nothing: no event needs to be told."""
        outcomes = self.outcomes
        for outcome in outcomes[:]:
            if outcome.done and not outcome.failures:
                try:
                    outcomes.remove(outcome)
                except ValueError:  # another thread did
                    pass

    def calls_lock(self) -> Any:
        """The lock under which functions are put into the queue; made when it is first asked for."""
        return self._calls.get(0) or self._calls.setdefault(0, threading.RLock())

    def end_calls(self) -> bool:
        """End the thread of functions if none is on its way; False if one is, or is being put there."""
        caller = self.caller
        if caller is None:
            return True
        lock = self.calls_lock()
        if lock._is_owned() or not lock.acquire(False):
            return False
        try:
            if not caller.idle:
                return False
            self.caller = None
        finally:
            lock.release()
        caller.stop()
        return True

    def __repr__(self) -> str:
        state = "destroyed" if self.queue is None else f"{len(self.pending)} copies on their way"
        return f"<OpenCL stream {id(self):#x}{', borrowed' if self.borrowed else ''}, {state}>"


class Mark:
    """A marker in a queue, and the functions that it speaks for."""

    __slots__ = ("event", "flushed", "outcomes", "stream", "told")

    def __init__(self, event: Any, stream: OpenCLStream, outcomes: list[Outcome]) -> None:
        self.event = event
        self.stream = stream
        self.outcomes = outcomes
        self.flushed = False
        self.told = False

    def flush(self) -> None:
        """Make sure that the device has heard of it: a runtime may sit on commands until it is told."""
        if not self.flushed:
            queue = self.stream.queue
            if queue is not None:
                queue.flush()
            self.flushed = True

    def failed(self) -> list[CallFailure]:
        """What the functions before it raised, once it is done."""
        return [failure for each in self.outcomes for failure in each.failures]

    def abandon(self) -> None:
        """The event forgets this mark: what nobody was told goes to the stream's next event."""
        if self.outcomes and not self.told:
            self.stream.outcomes[:0] = self.outcomes


class OpenCLEvent:
    """An event handle: a name for its last mark, or for none."""

    __slots__ = ("__weakref__", "mark")

    def __init__(self) -> None:
        self.mark: Mark | None = None

    def __repr__(self) -> str:
        state = "destroyed" if self.mark is DESTROYED else "not recorded" if self.mark is None else "recorded"
        return f"<OpenCL event {id(self):#x}, {state}>"


DESTROYED: Final = Mark(None, OpenCLStream(None), [])
"""The mark of an event that was destroyed."""


def _take_away(pending: deque[Held], held: Held) -> None:
    try:
        pending.remove(held)  # the first one as a rule; by identity
    except ValueError:
        pass
