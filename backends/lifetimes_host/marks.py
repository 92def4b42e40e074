"""Marks: the completions that events are names for."""

from __future__ import annotations

import _thread
from typing import TYPE_CHECKING, Any

from lifetimes_host.failure import Failure

if TYPE_CHECKING:
    from lifetimes_host.lanes import Lane

__all__ = ["DESTROYED", "DONE", "Mark"]

LOOK_SECONDS = 1.0
"""A wait looks up this often: a Ctrl-C right before a thread goes to sleep does not wake it."""


class Mark:
    """The completion of everything enqueued on a lane before it.  Done once, for ever.

    Note [Untold failures].  A failure is told by the event that was recorded after it.  If that event is recorded again
    or destroyed before anybody has asked it, the failure goes back to the lane and is told by the lane's next event.
    """

    __slots__ = ("abandoned", "done", "failures", "lane", "told", "waiters")

    def __init__(self, lane: Lane | None) -> None:
        self.lane = lane
        self.done = lane is None
        self.failures: tuple[Failure, ...] = ()  # what to tell; set before `done`
        self.told = False
        self.abandoned = False
        self.waiters: list[Any] = []  # one locked lock for each waiting thread; released when done

    def finish(self) -> None:
        """Run by the lane in its turn: take over the failures so far and let the waiters go."""
        lane = self.lane
        if lane is not None and lane.failures and not self.abandoned:
            self.failures = tuple(lane.failures)
            lane.failures.clear()
        self.release()
        if self.abandoned:  # perhaps by another thread in the lines above
            self.abandon()

    def abandon(self) -> None:
        """The event forgets this mark (Note [Untold failures])."""
        self.abandoned = True
        lane = self.lane
        if lane is not None and not self.told:
            failures, self.failures = self.failures, ()
            lane.failures[:0] = failures

    def release(self) -> None:
        """Run by the lane in its turn: let the waiters go, and leave the failures to the next event."""
        self.done = True
        while self.waiters:
            try:
                self.waiters.pop().release()
            except IndexError:  # another thread took the last one
                return

    def wait(self) -> None:
        """Block until done; Ctrl-C interrupts it.  Errors: `BusyError` where it would wait for its own thread."""
        lane = self.lane
        if self.done or lane is None:
            return
        lane.refuse_to_wait_for_itself()
        lock = _thread.allocate_lock()
        lock.acquire()
        self.waiters.append(lock)
        if not self.done:  # asked again: it may have been done before the lock was there to be released
            lane.nudge()
            while not lock.acquire(True, LOOK_SECONDS):
                lane.nudge()

    def tell(self) -> None:
        """Raise what failed.  Errors: `BackendError` from the first failure; further ones are notes."""
        if self.failures:
            self.told = True
            raise self.failures[0].as_error(self.failures[1:])


DONE = Mark(None)
"""The mark of an event that has nothing to wait for and nothing to tell."""
DESTROYED = Mark(None)
