"""Bytes over time, and who held what at the peak: an opt-in recorder on the stream of events."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any, Final, Self

from lifetimes import cell as cells
from lifetimes import instrument
from lifetimes.leaks.ledger import device_of
from lifetimes.leaks.recording import Recording, Site
from lifetimes.origins import raw_of, sites

__all__ = ["LIMIT", "History"]

LIMIT: Final = 500_000
"""Events that are kept, 150 to 220 bytes each, unless the history is told otherwise."""


class History:
    """Records what is made and released while it runs; what was alive at its start counts from there.

    Beyond ``limit`` events it stops recording and says so.  Threading: events come from any thread, and may interrupt each
    other; each is one append.

    >>> from lifetimes import Lifetime
    >>> with History() as history:
    ...     x = Lifetime("handle", kind="buffer", nbytes=4096, label="x")
    ...     del x
    >>> recording = history.recording()
    >>> recording.peak.nbytes - recording.total_at(0.0) >= 4096
    True
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.lost = 0
        """Events that came when the limit was reached."""
        self.started = 0.0
        self._clock = 0.0
        self._running = False
        # Note [One append].  (seconds, key, what) with what None for a release, else what is known of the new thing.
        # A lock would have to be taken inside finalizers; an append to a list is atomic and needs none.
        self._events: list[tuple[float, int, tuple[Any, ...] | None]] = []

    def start(self) -> Self:
        """Begin, with everything that is alive now.  Beginning twice is once."""
        if not self._running:
            self._running = True
            self.started = time.time()
            self._clock = time.perf_counter()
            instrument.subscribe(self._listen)
            for cell in list(cells.live.values()):
                self._events.append((0.0, cell.key, _known(cell)))
        return self

    def stop(self) -> None:
        """End.  What was recorded stays."""
        if self._running:
            self._running = False
            instrument.unsubscribe(self._listen)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _listen(self, name: str, key: int, details: dict[str, Any]) -> None:
        event: tuple[float, int, tuple[Any, ...] | None]
        if name == "create":
            event = time.perf_counter() - self._clock, key, _known(details["cell"])
        elif name in ("release", "detach"):
            event = time.perf_counter() - self._clock, key, None
        else:
            return
        if len(self._events) < self.limit:
            self._events.append(event)
        else:
            self.lost += 1

    def recording(self) -> Recording:
        """What was recorded so far, in columns.  Complexity: O(events)."""
        threads = {thread.ident: thread.name for thread in threading.enumerate()}
        recording = Recording(started=self.started, lost=self.lost)
        numbers: dict[int, int] = {}  # key of what is alive -> its number in the recording
        texts: dict[object, tuple[str, ...]] = {}
        for seconds, key, known in list(self._events):
            if known is None:
                number = numbers.pop(key, None)
                if number is not None:  # it was made before the start or beyond the limit otherwise
                    recording.release(seconds, number)
            elif key not in numbers:
                numbers[key] = recording.make(seconds, key, _site(known, threads, texts))
        return recording


def _known(cell: cells.Cell) -> tuple[Any, ...]:
    return cell.kind, cell.label, device_of(cell), cell.nbytes, raw_of(cell)


def _site(known: tuple[Any, ...], threads: dict[int | None, str], texts: dict[object, tuple[str, ...]]) -> Site:
    kind, label, device, nbytes, raw = known
    if raw is None:
        return Site(kind, label, device, nbytes, None, None, ())
    stack = raw[3] if len(raw) == 4 else raw[3:]
    number = id(stack) if len(raw) == 4 else (id(raw[3]), raw[4])
    if number not in texts:
        texts[number] = sites(stack)
    return Site(kind, label, device, nbytes, raw[2], threads.get(raw[1], f"thread {raw[1]}"), texts[number])
