"""`Context`: the root of a device's resources, and what recycles its streams and events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from lifetimes.errors import BackendError, ClosedError
from lifetimes.lifetime import Lifetime
from lifetimes.resources.guard import GuardedDriver
from lifetimes.resources.reservoir import Reservoir
from lifetimes.timeline import Timeline

if TYPE_CHECKING:
    from lifetimes.backend import Driver, EventHandle

__all__ = ["Context"]


class Context(Lifetime["Driver"]):
    """Owns a driver.  Everything of the device is a child of it, so the driver is closed last.

    ``driver`` is the guarded driver that all children share; ``generation`` is never reused, unlike raw handles.
    """

    __slots__ = ("driver", "events", "guard", "retired", "streams")

    def __init__(self, driver: Driver, *, label: str | None = None) -> None:
        self.guard = guard = GuardedDriver(driver)
        # The guard has the members that the driver has; only their names are made at run time.
        self.driver = shared = cast("Driver", guard)
        # By name each time: a lost context changes what the guard's members are.
        self.streams: Reservoir[Timeline] = Reservoir(lambda: Timeline(shared, shared.create_stream()), _idle)
        self.events: Reservoir[EventHandle] = Reservoir(
            lambda: shared.create_event(), lambda event: shared.completed(event)
        )
        # Note [Retired].  A borrowed stream may be destroyed by its owner as soon as we have let go of it, while tickets of
        # it still wait.  They need its events, never its handle, so the events stay until all of them have completed.
        self.retired: deque[Timeline] = deque()
        super().__init__(shared, _end, guard, self.streams, self.retired, kind="context", label=label or driver.name)

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

        From now on nothing reaches the driver: giving back does nothing, using raises `ClosedError`.  Resources can still
        be dropped and closed in any order.
        """
        self.guard.lose(why)

    def check(self) -> None:
        """Errors: `ClosedError` when the context was lost."""
        if self.guard.lost:
            raise ClosedError(f"the context closed: {self!r} is gone ({self.guard.lost})")

    def settle(self) -> None:
        """Destroy the events of borrowed streams that have been let go of, as far as they have completed."""
        for _ in range(len(self.retired)):
            try:
                timeline = self.retired.popleft()
            except IndexError:  # another thread took the last one
                return
            if timeline.done(timeline.issued):
                timeline.close()
            else:
                self.retired.append(timeline)


def _idle(timeline: Timeline) -> bool:
    if not timeline.done(timeline.issued):
        return False
    if timeline.failures:
        raise BackendError(f"{timeline!r} has failed work")
    return True


def _end(guard: GuardedDriver, streams: Reservoir[Timeline], retired: deque[Timeline]) -> None:
    """The context's finalizer.  All children have gone.  Every step is taken, whatever the others raise."""
    errors: list[BaseException] = []
    for step in _steps(guard, streams.made, retired):
        try:
            step()
        except BaseException as error:
            errors.append(error)
    guard.relief.clear()
    interrupts = [error for error in errors if isinstance(error, KeyboardInterrupt)]
    try:
        if interrupts or len(errors) == 1:
            raise (interrupts or errors)[0]
        if errors:
            raise BaseExceptionGroup("several steps of ending a context failed", errors)
    finally:
        del errors, interrupts  # their tracebacks hold this frame


def _steps(guard: GuardedDriver, timelines: list[Timeline], retired: deque[Timeline]) -> Iterator[Callable[[], object]]:
    driver = cast("Driver", guard)
    for timeline in retired:
        yield partial(timeline.wait, timeline.issued)
        yield timeline.close
    for timeline in timelines:
        yield partial(driver.synchronize, timeline.handle)
        yield timeline.close
    for stream in list(guard.streams):
        yield partial(driver.destroy_stream, stream)
    for event in list(guard.events):
        yield partial(driver.destroy_event, event)
    yield driver.close
