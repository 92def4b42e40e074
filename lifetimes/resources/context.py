"""`Context`: the root of a device's resources, and what recycles its streams and events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from lifetimes.errors import BackendError, ClosedError
from lifetimes.lifetime import Lifetime
from lifetimes.resources.guard import GuardedDriver
from lifetimes.resources.reservoir import Reservoir
from lifetimes.timeline import Timeline

if TYPE_CHECKING:
    from lifetimes.backend import Driver

__all__ = ["Context"]


class Context(Lifetime["Driver"]):
    """Owns a driver.  Everything of the device is a child of it, so the driver is closed last.

    ``driver`` is the guarded driver that all children share; ``generation`` is never reused, unlike raw handles.
    """

    __slots__ = ("driver", "events", "guard", "streams")

    def __init__(self, driver: Driver, *, label: str | None = None) -> None:
        self.guard = guard = GuardedDriver(driver)
        # The guard has the members that the driver has; only their names are made at run time.
        self.driver = shared = cast("Driver", guard)
        self.streams: Reservoir[Timeline] = Reservoir(lambda: Timeline(shared, shared.create_stream()), _idle)
        self.events: Reservoir[Any] = Reservoir(lambda: shared.create_event(), lambda event: shared.completed(event))
        super().__init__(shared, _end, guard, self.streams, self.events, kind="context", label=label or driver.name)

    @property
    def generation(self) -> int:
        """The context's own number."""
        return self.guard.generation

    @property
    def alive(self) -> bool:
        """False once the context was lost or closed."""
        return not self.guard.lost and not self.closed

    def lose(self, why: str = "destroyed by somebody else") -> None:
        """Say that the context has gone behind our back.

        From now on nothing reaches the driver: giving back does nothing, everything else raises `ClosedError`.  Resources
        can still be dropped and closed in any order.
        """
        self.guard.lose(why)

    def check(self) -> None:
        """Errors: `ClosedError` when the context was lost."""
        if self.guard.lost:
            raise ClosedError(f"the context closed: {self!r} is gone ({self.guard.lost})")


def _idle(timeline: Timeline) -> bool:
    if not timeline.done(timeline.issued):
        return False
    if timeline.failures:
        raise BackendError(f"{timeline!r} has failed work")
    return True


def _end(guard: GuardedDriver, streams: Reservoir[Timeline], events: Reservoir[Any]) -> None:
    """The context's finalizer.  All children have gone."""
    driver = cast("Driver", guard)
    try:
        for timeline in streams.empty():
            driver.synchronize(timeline.handle)
            timeline.close()
            driver.destroy_stream(timeline.handle)
        for event in events.empty():
            driver.destroy_event(event)
    finally:
        driver.close()
