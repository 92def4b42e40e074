"""The order of work on one stream, as numbers.

Each use of a stream gets the next *sequence number*; (timeline, number) is a *ticket*.  A ticket costs a few integers: a
driver event is recorded only when somebody must know whether a number has been reached, and then it is recorded
later on the same stream, which can only err towards waiting longer.  On borrowed streams, which may vanish under us,
every tick records at once.

Note [Failure].  An event that fails speaks for all work since the event before it.  Work that can fail on its own (a
Python function on the host) is therefore fenced: `fence` records before and after it, so the failure names exactly that
number.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from lifetimes.cell import next_key
from lifetimes.errors import BackendError

if TYPE_CHECKING:
    from lifetimes.backend import Driver, EventHandle, StreamHandle

__all__ = ["Ticket", "Timeline", "Work"]


class _Mark:
    """An event recorded behind ``sequence``."""

    __slots__ = ("event", "gone", "sequence", "watchers")

    def __init__(self, sequence: int, event: EventHandle) -> None:
        self.sequence = sequence
        self.event = event
        self.watchers = 0  # threads that are asking the driver about it: not recycled meanwhile
        self.gone = False  # reached and out of the queue


class Timeline:
    """Counts the work enqueued on one stream, and says which of it has completed.

    Threading: any thread.  Locks: a leaf lock of its own around a few list operations; the driver is called without it.
    """

    __slots__ = (
        "__weakref__", "failures", "_lock", "_marks", "_spare", "borrowed", "driver", "handle", "issued", "key", "reached",
    )  # fmt: skip

    def __init__(self, driver: Driver, handle: StreamHandle, *, borrowed: bool = False) -> None:
        self.key = next_key()  # never reused, unlike the handle
        self.driver = driver
        self.handle = handle
        self.borrowed = borrowed
        self.issued = 0
        self.reached = 0
        # Invariant: sequences ascend, all above ``reached``.
        self._marks: deque[_Mark] = deque()
        self._spare: list[EventHandle] = []
        # Invariant: (low, high, error): the work in low < sequence <= high failed.
        self.failures: list[tuple[int, int, BackendError]] = []
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Timeline #{self.key}: {self.issued} issued, {self.reached} known to be done>"

    def tick(self) -> int:
        """Work has just been enqueued: its number."""
        self.issued = sequence = self.issued + 1
        if self.borrowed:
            self.mark()
        return sequence

    def mark(self) -> None:
        """Record an event behind everything issued so far, unless the last one already stands there."""
        sequence = self.issued
        marks = self._marks
        if sequence <= self.reached or (marks and marks[-1].sequence >= sequence):
            return
        try:
            event = self._spare.pop()
        except IndexError:
            event = self.driver.create_event()
        self.driver.record(event, self.handle)
        with self._lock:
            # Another thread may have marked meanwhile; ours was recorded after ``sequence`` in any case.
            at = len(marks)
            while at and marks[at - 1].sequence > sequence:
                at -= 1
            marks.insert(at, _Mark(sequence, event))

    def done(self, sequence: int) -> bool:
        """Whether that work has finished; failed work has.  Never blocks.  Complexity: O(1) when it is known already."""
        return sequence <= self.reached or self._advance(sequence, False)

    def wait(self, sequence: int) -> None:
        """Block until that work has finished.  Work that failed is told by `error`."""
        if sequence > self.reached:
            self._advance(sequence, True)

    def error(self, sequence: int) -> BackendError | None:
        """Why that work failed, or None.  Only known once it is `done`."""
        for low, high, error in self.failures:
            if low < sequence <= high:
                return error
        return None

    def fence(self) -> None:
        """Stand an event behind all work so far, so that the failure of what comes next is told apart from it."""
        self.mark()

    def wait_for(self, other: Timeline, sequence: int) -> None:
        """Work enqueued here from now on starts after ``sequence`` of another stream; the host does not block."""
        if other is self or sequence <= other.reached:
            return
        other._mark_behind(sequence)
        mark = other._watch(sequence)
        if mark is None:
            return
        try:
            self.driver.stream_wait(self.handle, mark.event)
        finally:
            other._unwatch(mark)

    def close(self) -> None:
        """Destroy the events.  Call it when the stream is idle."""
        with self._lock:
            events = [mark.event for mark in self._marks] + self._spare
            self._marks.clear()
            self._spare = []
        for event in events:
            self.driver.destroy_event(event)

    def _advance(self, sequence: int, block: bool) -> bool:
        """Ask the driver about the marks, oldest first, since each tells only its own failure."""
        self._mark_behind(sequence)
        while sequence > self.reached:
            mark = self._watch(0)
            if mark is None:
                break
            error: BackendError | None = None
            finished = False
            try:
                if block:
                    self.driver.wait(mark.event)
                    finished = True
                else:
                    finished = self.driver.completed(mark.event)
            except BackendError as failure:
                error = failure.with_traceback(None)
                finished = True
            finally:
                if finished:
                    self._reach(mark, error)
                self._unwatch(mark)
            if not finished:
                return False
        return True

    def _mark_behind(self, sequence: int) -> None:
        marks = self._marks
        if not marks or marks[-1].sequence < sequence:
            self.mark()

    def _watch(self, sequence: int) -> _Mark | None:
        """The first mark at or behind ``sequence``, kept from being recycled until `_unwatch`."""
        with self._lock:
            for mark in self._marks:
                if mark.sequence >= sequence:
                    mark.watchers += 1
                    return mark
        return None

    def _unwatch(self, mark: _Mark) -> None:
        with self._lock:
            mark.watchers -= 1
            if mark.gone and not mark.watchers:
                self._spare.append(mark.event)

    def _reach(self, mark: _Mark, error: BackendError | None) -> None:
        with self._lock:
            if mark.gone:
                return  # another thread was told first
            mark.gone = True
            self._marks.remove(mark)
            if error is not None:
                self.failures.append((self.reached, mark.sequence, error))
            self.reached = max(self.reached, mark.sequence)


class Work:
    """A ticket as a task: what `Lifetime.after` takes."""

    __slots__ = ("sequence", "timeline")

    def __init__(self, timeline: Timeline, sequence: int) -> None:
        self.timeline = timeline
        self.sequence = sequence

    @property
    def stream_key(self) -> int:
        """The stream's never reused number: work of one stream completes in order."""
        return self.timeline.key

    def completed(self) -> bool:
        """Whether the work has finished.  Errors: the `BackendError` it failed with."""
        if not self.timeline.done(self.sequence):
            return False
        error = self.timeline.error(self.sequence)
        if error is not None:
            raise error
        return True

    def wait(self) -> None:
        """Block until it has.  Errors: as `completed`."""
        self.timeline.wait(self.sequence)
        self.completed()


Ticket: TypeAlias = tuple[Timeline, int]
"""Where on which stream: (timeline, sequence number)."""
