"""The simulated driver with contexts: each call demands the right one on its thread, and handles come back."""

from __future__ import annotations

import threading
from typing import Any

from lifetimes.backend import SupportsContext
from lifetimes.errors import BackendError, ClosedError
from lifetimes.testing.sim.driver import SimDriver
from lifetimes.testing.sim.handles import HandleTable

__all__ = ["ContextSimDriver", "current_context"]

_lock = threading.Lock()
_reused: HandleTable[object] = HandleTable("context", 0x1)
_fresh: HandleTable[object] = HandleTable("context", 0x1_0000, reuse=False)
_thread = threading.local()


def current_context() -> int:
    """The raw handle of the context that is current on this thread, 0 for none.

    >>> current_context()
    0
    """
    handle: int = getattr(_thread, "handle", 0)
    return handle


class ContextSimDriver(SimDriver, contexts=True):
    """What ``SimDriver(contexts=True)`` makes.

    Which context is current is a matter of the thread and shared by all simulated drivers, as in a real runtime.  A
    call under another context, or after `destroy_context`, is a violation.  `recreate_context` makes a new context that
    gets the raw handle of the old one: only a count of generations tells them apart, which is the caller's to keep.

    >>> driver = SimDriver(4096, contexts=True)
    >>> previous = driver.make_current()
    >>> driver.free(driver.allocate(16))
    >>> driver.restore(previous)
    >>> driver.allocate(16)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    lifetimes.errors.BackendError: allocate was called in the wrong context: 0x0 is current here and this device has ...
    >>> driver.close()
    """

    def __init__(self, *args: Any, contexts: bool = True, reuse_handles: bool = True, **options: Any) -> None:
        super().__init__(*args, reuse_handles=reuse_handles, **options)
        self._pool = _reused if reuse_handles else _fresh
        self.generation = 0
        """How many contexts this driver has had."""
        self.context = 0
        """The raw handle of the context, 0 while there is none."""
        self._create()

    def _create(self) -> None:
        with _lock:
            self.context = self._pool.add(self)
        self.generation += 1

    def make_current(self) -> int:
        """Make the context current on this thread; the handle of the one before, 0 for none."""
        if self._closed:
            raise ClosedError("make_current was called on a simulated driver that is closed")
        if not self.context:
            raise self._violation("make_current was called after the context was destroyed")
        with self._lock:
            self.counts["make_current"] += 1
        self.faults.call("make_current")
        previous = current_context()
        _thread.handle = self.context
        return previous

    def restore(self, previous: int) -> None:
        """Make the context of that handle current, dead or alive; 0 for none."""
        with self._lock:
            self.counts["restore"] += 1
        self.faults.call("restore")
        _thread.handle = previous

    def destroy_context(self) -> None:
        """End the context as a reset would: memory, streams, events and modules are gone, work in flight is dropped."""
        if not self.context:
            raise BackendError("the context is destroyed already")
        with self._lock:
            for stream in self._time.streams:
                stream.queue.clear()
            self._drop_all("the context was destroyed")
            self.log.append(("destroy_context", self.context))
        with _lock:
            self._pool.remove(self.context)
        self.context = 0

    def recreate_context(self) -> None:
        """A new context behind the same raw handle (unless handles are not reused)."""
        if self.context:
            raise BackendError("the context has not been destroyed")
        self._create()
        self.log.append(("recreate_context", self.context))

    def close(self) -> None:
        super().close()
        if self.context:
            with _lock:
                self._pool.remove(self.context)
            self.context = 0

    def _demand_context(self, kind: str) -> None:
        if not self.context:
            raise self._violation(f"{kind} was called after the context was destroyed")
        if current_context() != self.context:
            raise self._violation(
                f"{kind} was called in the wrong context: {current_context():#x} is current here and this device has "
                f"{self.context:#x}"
            )


_context: type[SupportsContext] = ContextSimDriver
