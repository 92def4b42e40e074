"""The order of work on one stream, as numbers.

Each use of a stream gets the next *sequence number*; (timeline, number) is a *ticket*.  A ticket costs a few integers: a
driver event is recorded only when somebody must know whether a number has been reached, and then it is recorded
later on the same stream, which can only err towards waiting longer.  On borrowed streams, which may vanish under us,
every tick records at once; who knows that it will matter calls `Timeline.mark` (Note [Events] in manager/use.py).

Note [Failure].  An event that fails speaks for all work since the event before it.  Work that can fail on its own (a
Python function on the host) is therefore fenced: `fence` before it and `mark` after it, so the failure names exactly that
number.  Whatever cannot be told apart counts as failed: an event recorded while another thread recorded one speaks for the
numbers since the last event that was there before both, and one recorded in the middle of a use (between its work and
its number) speaks for that use as well: see `cover`.

Note [Ticks].  ``issued += 1`` has no call in it, so no other thread and no signal handler gets in between.
"""

from __future__ import annotations

import threading
from _thread import get_ident
from bisect import bisect_left
from itertools import starmap
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from lifetimes.backend import IsSynchronous
from lifetimes.cell import next_key
from lifetimes.errors import BackendError

if TYPE_CHECKING:
    from lifetimes.backend import Driver, EventHandle, StreamHandle

__all__ = ["MANY", "Ticket", "Timeline", "Work", "told"]

MANY: Final = 64
"""From so many marks on, the driver is asked now and then which of them have been reached."""


class _Mark:
    """An event behind ``sequence``; it tells the failures of ``low`` < number <= ``high`` and of the numbers in ``also``."""

    __slots__ = ("also", "gone", "high", "low", "ordinal", "ready", "sequence", "slot", "watchers")

    def __init__(self, ordinal: int, low: int, sequence: int, slot: list[EventHandle]) -> None:
        self.ordinal = ordinal
        self.low = low
        self.sequence = sequence
        self.high = sequence
        self.also: list[int] = []
        self.slot = slot  # holds the event
        self.ready = False  # recorded; until then some thread is at it
        # Threads that are asking the driver about it: its event is not recycled or destroyed meanwhile.  An interrupt may
        # leave one too many, which costs an event until the end and nothing else.
        self.watchers: list[int] = []
        self.gone = False  # reached and out of the list


class _Told:
    """How many failures timelines have told: who remembers the count sees at once that there is nothing new."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


told = _Told()
_sequence = attrgetter("sequence")


class Timeline:
    """Counts the work enqueued on one stream, and says which of it has completed.

    Threading: any thread.  Locks: a leaf lock of its own around a few list operations; the driver is called without it.

    >>> from lifetimes.testing.sim import SimDriver
    >>> driver = SimDriver(manual=True)
    >>> stream = Timeline(driver, driver.create_stream())
    >>> address = driver.allocate(8)
    >>> driver.copy(driver.allocate(8), address, 8, stream.handle)
    >>> number = stream.tick()
    >>> stream.done(number), driver.step(), stream.done(number), stream.error(number)
    (False, 1, True, None)
    """

    __slots__ = (
        "__weakref__", "_lock", "_marks", "_recorded", "_slots", "_spare", "_synchronous", "_tellers", "_waiting", "_watched",
        "borrowed", "closed", "driver", "failures", "handle", "issued", "key", "reached", "recorded",
    )  # fmt: skip

    def __init__(self, driver: Driver, handle: StreamHandle, *, borrowed: bool = False) -> None:
        self.key = next_key()  # never reused, unlike the handle
        self.driver = driver
        self.handle = handle
        self.borrowed = borrowed
        self.closed = False
        self.issued = 0
        self.reached = 0
        self.recorded = 0  # marks so far, counted before they are recorded
        # Invariant: in the order of their making; sequences ascend, all above ``reached``.
        self._marks: list[_Mark] = []
        # Every event ever made has a slot here; an interrupt can lose neither the event nor, at the end, its destruction.
        self._slots: list[list[EventHandle]] = []
        self._spare: list[list[EventHandle]] = []
        self._watched: dict[_Mark, None] = {}  # Invariant: the marks that have watchers
        # (low, high, error): the work in low < number <= high failed.
        self.failures: list[tuple[int, int, BackendError]] = []
        self._tellers: list[int] = []  # for each failure the ordinal of the mark that told it
        self._lock = threading.RLock()
        self._recorded = threading.Condition(self._lock)
        self._waiting = 0  # threads that wait, or are about to, for a mark to be recorded
        self._synchronous = isinstance(driver, IsSynchronous)  # no event tells anything that is not known already

    def __repr__(self) -> str:
        return f"<Timeline #{self.key}: {self.issued} issued, {self.reached} known to be done>"

    def tick(self) -> int:
        """Work has just been enqueued: its number."""
        self.issued = sequence = self.issued + 1
        if self.borrowed:
            self.mark()
        return sequence

    def issue(self) -> int:
        """`tick` without a call to the driver, for borrowed streams too; a `mark` has to follow."""
        self.issued = sequence = self.issued + 1
        return sequence

    def mark(self) -> None:
        """Record an event behind everything issued so far, unless the last one already stands there."""
        if self._synchronous:
            self.reached = self.issued
            return
        mark: _Mark | None = None
        try:
            with self._lock:
                sequence = self.issued
                low = self._marked()
                if sequence <= low or self.closed:
                    return
                slot = self._spare.pop() if self._spare else []
                self.recorded = ordinal = self.recorded + 1
                mark = _Mark(ordinal, low, sequence, slot)
                self._marks.append(mark)
            if not slot:
                self._slots.append(slot)
                slot.extend(starmap(self.driver.create_event, ((),)))
            self.driver.record(slot[0], self.handle)
            mark.high = self.issued  # what was issued meanwhile may stand before the event, or not
            mark.ready = True
        finally:
            if mark is not None and not mark.ready:
                with self._lock:
                    if mark in self._marks:
                        self._marks.remove(mark)
                        if mark.slot:
                            self._spare.append(mark.slot)
            if self._waiting:  # who waits counts itself before it looks whether the mark is ready
                with self._lock:
                    self._recorded.notify_all()
        if len(self._marks) >= MANY and not ordinal % MANY:
            self._advance(sequence, False)  # nobody may ever ask; so there are as many as there is work in flight

    def _marked(self) -> int:
        """Under the lock: up to which number an event stands behind the work."""
        for mark in reversed(self._marks):
            if mark.ready:
                return mark.sequence
        return self.reached

    def fence(self) -> None:
        """Stand an event behind all work so far, so that the failure of what comes next is told apart from it."""
        self.mark()

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

    def cover(self, sequence: int, since: int) -> None:
        """The work of ``sequence`` may have been enqueued before any mark after the first ``since`` (Note [Failure])."""
        with self._lock:
            for mark in reversed(self._marks):
                if mark.ordinal <= since:
                    break
                if sequence > mark.high or not mark.ready:
                    mark.also.append(sequence)
            for (_, high, error), ordinal in zip(list(self.failures), self._tellers, strict=False):
                if ordinal > since and sequence > high:
                    self._fail(sequence - 1, sequence, error, 0)
                    break

    def wait_for(self, other: Timeline, sequence: int) -> None:
        """Work enqueued here from now on starts after ``sequence`` of another stream; the host does not block."""
        if other is self or sequence <= other.reached:
            return
        other._mark_behind(sequence)
        mark = other._watch(sequence)
        if mark is None:
            return
        try:
            self.driver.stream_wait(self.handle, mark.slot[0])
        finally:
            other._unwatch(mark)

    def settle(self) -> None:
        """The stream is idle, says who calls this: all its work has finished.  No event is recorded for it."""
        issued = self.issued
        try:
            self._advance(self._marked(), False)  # learns what failed
        except Exception:  # the context may be gone, and with it what could be learnt
            pass
        with self._lock:
            if self.closed or not self._marks:
                self.reached = max(self.reached, issued)

    def close(self) -> None:
        """Destroy the events.  Call it when the stream is idle: from now on all its work counts as finished."""
        if self.closed:
            return
        try:
            self._advance(self.issued, False)  # learns what failed since the last event
        except Exception:  # the context may be gone
            pass
        self.settle()
        self.closed = True
        with self._lock:
            self.reached = self.issued
            me = get_ident()
            # What another thread is just asking about goes when it has its answer.
            busy = [mark.slot for mark in self._watched if any(thread != me for thread in mark.watchers)]
            slots, self._slots = [slot for slot in self._slots if not any(slot is each for each in busy)], []
            self._marks.clear()
            self._spare.clear()
        for slot in slots:
            _destroy(self.driver, slot)
        if self.borrowed:
            # Perhaps the last reference to somebody's object.  Tickets keep the timeline, and drop it under the lock.
            self.handle = None

    def _advance(self, sequence: int, block: bool) -> bool:
        """Ask the driver about the marks, oldest first, since each tells only its own failure."""
        self._mark_behind(sequence)
        while sequence > self.reached:
            mark = self._oldest(block)
            if mark is None:
                break
            error: BackendError | None = None
            finished = False
            try:
                if block:
                    self.driver.wait(mark.slot[0])
                    finished = True
                else:
                    finished = self.driver.completed(mark.slot[0])
            except BackendError as failure:
                error = failure.with_traceback(None)
                finished = True
            finally:
                if finished:
                    self._reach(mark, error)
                self._unwatch(mark)
            if not finished:
                return False
        return sequence <= self.reached

    def _mark_behind(self, sequence: int) -> None:
        with self._lock:
            marked = self._marked()
        if marked < sequence:
            self.mark()

    def _oldest(self, block: bool) -> _Mark | None:
        """The oldest mark, watched.  One that another thread is just recording is waited for, or is None."""
        with self._lock:
            while self._marks:
                if block:
                    self._waiting += 1
                try:
                    mark = self._marks[0]
                    if mark.ready:
                        self._keep(mark)
                        return mark
                    if not block:
                        return None
                    self._recorded.wait(0.05)  # a notice can be lost to an interrupt
                finally:
                    if block:
                        self._waiting -= 1
        return None

    def _watch(self, sequence: int) -> _Mark | None:
        """The first mark at or behind ``sequence``, kept from being recycled until `_unwatch`."""
        with self._lock:
            for mark in self._marks[bisect_left(self._marks, sequence, key=_sequence) :]:
                if mark.ready:
                    self._keep(mark)
                    return mark
        return None

    def _keep(self, mark: _Mark) -> None:
        self._watched[mark] = None
        mark.watchers.append(get_ident())

    def _unwatch(self, mark: _Mark) -> None:
        with self._lock:
            mark.watchers.remove(get_ident())
            last = not mark.watchers
            if last:
                self._watched.pop(mark, None)
                if mark.gone and not self.closed:
                    self._spare.append(mark.slot)
        if last and self.closed:
            _destroy(self.driver, mark.slot)

    def _reach(self, mark: _Mark, error: BackendError | None) -> None:
        with self._lock:
            if mark.gone or self.closed:
                return  # another thread was told first
            if error is not None:  # first: an interrupt may have it told twice, but not never
                self._fail(mark.low, mark.high, error, mark.ordinal)
                for number in mark.also:
                    self._fail(number - 1, number, error, mark.ordinal)
            mark.gone = True
            self._marks.remove(mark)
            self._reached_up_to(mark.sequence)

    def _fail(self, low: int, high: int, error: BackendError, ordinal: int) -> None:
        del self._tellers[len(self.failures) :]  # one that an interrupt has left alone
        self._tellers.append(ordinal)
        self.failures.append((low, high, error))
        told.count += 1

    def _reached_up_to(self, sequence: int) -> None:
        """Under the lock: all is done up to ``sequence``, as far as no older mark may still tell a failure of it."""
        if self._marks:
            sequence = min(sequence, self._marks[0].sequence - 1)
        self.reached = max(self.reached, sequence)

    def check_invariants(self) -> None:
        """What must hold while no other thread is inside."""
        with self._lock:
            numbers = [mark.sequence for mark in self._marks]
            assert numbers == sorted(numbers), f"marks out of order: {numbers} in {self!r}"
            assert all(self.reached < number <= self.issued for number in numbers), f"stray marks {numbers} in {self!r}"
            assert all(mark.ready for mark in self._marks), f"a mark is being recorded for ever: {self!r}"
            assert not any(mark.gone for mark in self._marks), f"a mark is gone and yet there: {self!r}"
            used = [id(slot) for slot in self._spare] + [id(mark.slot) for mark in self._marks]
            assert len(set(used)) == len(used), f"an event stands in two places: {self!r}"


def _destroy(driver: Driver, slot: list[EventHandle]) -> None:
    while slot:
        driver.destroy_event(slot.pop())


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
