"""Work in flight as one task: what a module and a whole context wait for before they are released.

Both ask the streams themselves, so nothing has to be remembered for each piece of work.
"""

from __future__ import annotations

from collections.abc import Collection

from lifetimes._typing import StandingTask
from lifetimes.locks import lock
from lifetimes.timeline import Timeline

__all__ = ["AllStreams", "LastLaunches"]

MANY = 8
"""From so many streams on, those that have finished are forgotten."""


class AllStreams:
    """Everything enqueued on some streams, as a task for `Lifetime.after`.  ``timelines`` may grow meanwhile."""

    __slots__ = ("timelines",)

    def __init__(self, *timelines: Collection[Timeline]) -> None:
        self.timelines = timelines

    def completed(self) -> bool:
        """Whether all of it has finished.  Work that failed has, and says so elsewhere."""
        return all(timeline.done(timeline.issued) for each in self.timelines for timeline in list(each))

    def wait(self) -> None:
        """Block until it has."""
        for each in self.timelines:
            for timeline in list(each):
                timeline.wait(timeline.issued)

    def idle(self) -> bool:
        """Whether none of it is known to be in flight.  Locks: none; no driver is asked."""
        return not self._busy()

    def _busy(self) -> int:
        """Streams that are not known to be idle."""
        return sum(timeline.issued > timeline.reached for each in self.timelines for timeline in list(each))

    def __repr__(self) -> str:
        streams = sum(map(len, self.timelines))
        return f"<work on {streams} stream{'s' * (streams != 1)}, {self._busy()} not known to be idle>"


class LastLaunches:
    """The last launch of a kernel on each stream, as a task: work of one stream completes in order."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: dict[Timeline, int] = {}

    def add(self, timeline: Timeline, sequence: int) -> None:
        """One more launch.  Locks: the library's, so that of two threads the later launch stays."""
        finished: list[Timeline] = []
        if len(self.last) > MANY:
            finished = [each for each, launched in list(self.last.items()) if launched <= each.reached]
        with lock:
            self.last[timeline] = max(sequence, self.last.get(timeline, 0))
            for each in finished:
                if self.last.get(each, 0) <= each.reached:
                    self.last.pop(each, None)

    def completed(self) -> bool:
        """Whether every launch has finished."""
        return all(timeline.done(sequence) for timeline, sequence in list(self.last.items()))

    def wait(self) -> None:
        """Block until they have."""
        for timeline, sequence in list(self.last.items()):
            timeline.wait(sequence)

    def idle(self) -> bool:
        """Whether none of them is known to be in flight.  Locks: none; no driver is asked."""
        return not self._busy()

    def _busy(self) -> int:
        """Streams on which the last launch is not known to have finished."""
        return sum(sequence > timeline.reached for timeline, sequence in list(self.last.items()))

    def __repr__(self) -> str:
        streams = len(self.last)
        return f"<launches on {streams} stream{'s' * (streams != 1)}, {self._busy()} not known to have finished>"


_all_streams: type[StandingTask] = AllStreams
_last_launches: type[StandingTask] = LastLaunches
