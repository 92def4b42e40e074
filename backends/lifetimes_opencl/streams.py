"""Streams and events: in-order queues, and markers in them.

Note [Held].  PoCL 3.0 ends the process when a command fails whose event nobody holds, when an event completes that such
a failed command waited for, and when memory is freed that a kernel uses.  So the event of each command is held until it
and what it waits for are done, and so is what the command uses.
"""

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

    Note [Letting go].  What a command needs is let go by the first call that learns that it is done: an event that is
    found completed, a `synchronize`, the next command on the stream.  There is no thread for it, and the list is never
    longer than what is in flight plus one.  Commands finish in order, so only the oldest is ever asked.  Two threads may look
    at once: each takes away exactly the one it has looked at.
    """

    __slots__ = ("__weakref__", "_calls", "borrowed", "caller", "outcomes", "pending", "queue")

    def __init__(self, queue: Any, borrowed: Borrowed | None = None) -> None:
        self.queue = queue  # None once destroyed
        self.borrowed = borrowed  # where it is known, when the queue is somebody else's
        self.pending: deque[Held] = deque()
        self.outcomes: list[Outcome] = []  # of the functions since the last event
        self.caller: Caller | None = None
        self._calls: dict[int, Any] = {}

    def enqueue(self, function: Callable[..., Any], args: tuple[Any, ...], things: object) -> Any:
        """Enqueue ``function(*args)``, a call that returns an event, and hold ``things`` until it is done.

        Errors: what the function raises.  After an interrupt either the command is held or there is none.
        """
        held = Held(things)
        pending = self.pending
        try:
            pending.append(held)
            if self.borrowed is not None:
                pending = self.borrowed.keep(self, held)
            held.events.extend(starmap(function, (args,)))  # one C call from the runtime's answer to our list
        except BaseException:
            if not held.events:
                _take_away(pending, held)
            raise
        if len(pending) > 1:
            self.let_go()
        return held.events[0]

    def hold(self, event: Any, things: object) -> None:
        """Hold ``things`` until the event of a command in this queue is done."""
        self.enqueue(_itself, (event,), things)

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
        return f"<OpenCL stream {id(self):#x}{', borrowed' if self.borrowed is not None else ''}, {state}>"


class Borrowed:
    """Streams over somebody else's queues, known as long as something of ours is in them.

    Note [Found and forgotten].  A thread may forget a stream as idle when another has just found it and is about to use
    it.  Whoever uses it therefore makes it known again (`keep`) before anything is enqueued.
    """

    def __init__(self) -> None:
        self._streams: dict[int, OpenCLStream] = {}  # by the pointer of the queue, which the stream keeps alive
        self._lock = threading.RLock()

    def find(self, queue: Any) -> OpenCLStream | None:
        """The stream over a queue that is in use already."""
        return self._streams.get(queue.int_ptr)

    def add(self, queue: Any) -> OpenCLStream:
        """The stream over a queue, a new one if it is not in use."""
        return self._streams.setdefault(queue.int_ptr, OpenCLStream(queue, self))

    def keep(self, stream: OpenCLStream, held: Held) -> deque[Held]:
        """Have ``held``, which ``stream`` has already, in a stream that is known.  Returns its list."""
        with self._lock:
            known = self._streams.setdefault(stream.queue.int_ptr, stream)
            if known is not stream:
                known.pending.append(held)
        return known.pending

    def forget(self, stream: OpenCLStream) -> None:
        """Let go of the queue if nothing of ours is in it."""
        stream.let_go()
        if not stream.pending and stream.end_calls():
            with self._lock:
                pointer = stream.queue.int_ptr
                if not stream.pending and self._streams.get(pointer) is stream:
                    del self._streams[pointer]

    def streams(self) -> list[OpenCLStream]:
        """All that are known."""
        return list(self._streams.values())

    def clear(self) -> None:
        """Forget all of them."""
        self._streams.clear()


class Mark:
    """A marker in a queue, and the functions that it speaks for."""

    __slots__ = ("event", "flushed", "outcomes", "stream", "told")

    def __init__(self, event: Any, stream: OpenCLStream) -> None:
        self.event = event
        self.stream = stream
        self.outcomes: list[Outcome] = []
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
        """The event forgets this mark: what nobody was told goes to the stream's next event.  Note [Held]."""
        if self.event.get_info(STATUS) > 0:
            self.stream.hold(self.event, None)
        outcomes, nothing = self.outcomes, list[Outcome]()
        if outcomes and not self.told:  # no call from here on, so that an interrupt leaves them with one of the two
            self.stream.outcomes[:0] = outcomes
            self.outcomes = nothing


class OpenCLEvent:
    """An event handle: a name for its last mark, or for none."""

    __slots__ = ("__weakref__", "mark")

    def __init__(self) -> None:
        self.mark: Mark | None = None

    def __repr__(self) -> str:
        state = "destroyed" if self.mark is DESTROYED else "not recorded" if self.mark is None else "recorded"
        return f"<OpenCL event {id(self):#x}, {state}>"


DESTROYED: Final = Mark(None, OpenCLStream(None))
"""The mark of an event that was destroyed."""


def _itself(event: Any) -> Any:
    return event


def _take_away(pending: deque[Held], held: Held) -> None:
    try:
        pending.remove(held)  # the first one as a rule; by identity
    except ValueError:
        pass
