"""Following the handles of other libraries in programs that are not changed: each tracked object gets a lifetime of its own.

From then on it is in `lifetimes.live()` and every report, with the line that made it.  A tracker is a module and a row in
`TRACKERS`; the module has a class ``LibraryTracker``, which is a `Tracker`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Final, Protocol, cast

__all__ = ["TRACKERS", "Tracker", "make", "tracking"]

TRACKERS: Final = {
    "pyopencl": "lifetimes.leaks.tracking.opencl",
    "cupy": "lifetimes.leaks.tracking.cuda",
}
"""What can be tracked, and the module that does it."""


class Tracker(Protocol):
    """Follows one library, from ``start`` to ``stop``."""

    name: str
    """must: the library, as in `TRACKERS`."""

    def start(self) -> None:
        """must: from now on.  Errors: `ImportError` when the library is not there."""

    def stop(self) -> None:
        """must: new objects are not tracked any more; those that are stay so."""

    def sweep(self) -> None:
        """must: let go of what nobody else holds any more."""

    def settle(self) -> None:
        """must: the program is over; empty the library's own caches, and sweep."""


def make(name: str) -> Tracker:
    """The tracker of that name.  Errors: `ValueError` that lists what there is.

    >>> make("numpy")
    Traceback (most recent call last):
    ValueError: there is no tracker 'numpy'; there are 'pyopencl', 'cupy'
    """
    module = TRACKERS.get(name)
    if module is None:
        raise ValueError(f"there is no tracker {name!r}; there are {', '.join(map(repr, TRACKERS))}")
    return cast(Tracker, import_module(module).LibraryTracker())


@contextmanager
def tracking(*names: str) -> Iterator[Sequence[Tracker]]:
    """``with tracking("pyopencl") as trackers:`` for the length of a block.  Errors: those of `make` and ``start``."""
    trackers = [make(name) for name in names]
    started: list[Tracker] = []
    try:
        for tracker in trackers:
            tracker.start()
            started.append(tracker)
        yield trackers
    finally:
        for tracker in reversed(started):
            tracker.stop()
