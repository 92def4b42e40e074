"""The calls of a simulated driver about streams, events and virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from lifetimes.testing.faults import FaultPlan
from lifetimes.testing.sim.accounts import Accounts
from lifetimes.testing.sim.handles import HandleTable
from lifetimes.testing.sim.timeline import Command, Mark, SimEvent, SimStream, Timeline, WouldBlock

__all__ = ["Latency", "OrderCalls"]

Latency: TypeAlias = float | Callable[[str, int], float]
"""Virtual time that one command takes, or a function of its kind and bytes that tells it."""


class OrderCalls(Accounts):
    """Streams and events by raw handle; time passes when somebody waits or steps."""

    def __init__(
        self,
        total: int,
        faults: FaultPlan | None,
        *,
        latency: Latency,
        manual: bool,
        reuse_addresses: bool,
        reuse_handles: bool,
    ) -> None:
        super().__init__(total, faults, reuse_addresses=reuse_addresses)
        self.latency = latency
        self.manual = manual
        self._time = Timeline(self._lock)
        self._time.completed = lambda command: self.log.append((f"{command.kind} done", command.detail))
        self._streams: HandleTable[SimStream] = HandleTable("stream", 0x1000, reuse=reuse_handles)
        self._events: HandleTable[SimEvent] = HandleTable("event", 0x2000, reuse=reuse_handles)

    def create_stream(self) -> int:
        """A raw handle, perhaps one that another stream had before."""
        self._enter("create_stream")
        with self._lock:
            stream = SimStream()
            self._time.streams.append(stream)
            handle = self._streams.add(stream)
            self.log.append(("create_stream", handle))
            return handle

    def destroy_stream(self, stream: int) -> None:
        """Give a stream back.  A violation: it has commands in flight."""
        self._enter("destroy_stream")
        with self._lock:
            lane = self._find(self._streams, stream)
            if lane.queue:
                raise self._violation(f"the stream {stream:#x} was destroyed with {len(lane.queue)} commands in flight")
            self._time.streams.remove(lane)
            self._streams.remove(stream)
            self.log.append(("destroy_stream", stream))

    def create_event(self) -> int:
        """A raw handle, perhaps one that another event had before."""
        self._enter("create_event")
        with self._lock:
            handle = self._events.add(SimEvent())
            self.log.append(("create_event", handle))
            return handle

    def destroy_event(self, event: int) -> None:
        """Give an event back, at any time."""
        self._enter("destroy_event")
        with self._lock:
            self._find(self._events, event).mark.abandon()
            self._events.remove(event)
            self.log.append(("destroy_event", event))

    def record(self, event: int, stream: int) -> None:
        """The event completes with what is on the stream so far."""
        self._enter("record")
        with self._lock:
            lane = self._find(self._streams, stream)
            name = self._find(self._events, event)
            name.mark.abandon()
            mark = name.mark = Mark(lane)
            self.log.append(("record", (event, stream)))
            self._time.enqueue(lane, Command("record", event, mark=mark))

    def completed(self, event: int) -> bool:
        """Whether it has; no time passes.  Errors: `BackendError` for what failed before it."""
        self._enter("completed")
        mark = self._mark(event)
        mark.tell()
        return mark.done

    def wait(self, event: int) -> None:
        """Let time pass until the event completes.  Errors: as `completed`; `WouldBlock` in manual mode."""
        self._enter("wait")
        mark = self._mark(event)
        self._advance(mark, f"the event {event:#x}")
        mark.tell()

    def stream_wait(self, stream: int, event: int) -> None:
        """Later commands of the stream start after the event, as it is recorded now."""
        self._enter("stream_wait")
        with self._lock:
            lane = self._find(self._streams, stream)
            self.log.append(("stream_wait", (stream, event)))
            self._time.enqueue(lane, Command("stream_wait", event, mark=self._mark(event)))

    def synchronize(self, stream: int) -> None:
        """Let time pass until the stream is done.  Errors: `WouldBlock` in manual mode."""
        self._enter("synchronize")
        with self._lock:
            lane = self._find(self._streams, stream)
            mark = Mark(lane)
            self.log.append(("synchronize", stream))
            self._time.enqueue(lane, Command("marker", stream, mark=mark))
        self._advance(mark, f"the stream {stream:#x}")

    def _mark(self, event: int) -> Mark:
        with self._lock:
            return self._find(self._events, event).mark

    def _advance(self, mark: Mark, what: str) -> None:
        if self.manual and not mark.done:
            raise WouldBlock(f"{what} is not done at time {self.now:g}; step() or run_until_idle() completes work")
        self._time.advance(mark)

    @property
    def now(self) -> float:
        """The virtual time."""
        return self._time.now

    @property
    def pending(self) -> int:
        """Commands in flight."""
        with self._lock:
            return len(self._time.pending())

    def step(self, n: int = 1) -> int:
        """Complete up to ``n`` commands, the one that ends first always next; tells how many.

        Events recorded right behind a command complete with it.
        """
        return sum(self._time.step() for _ in range(n))

    def run_until_idle(self) -> int:
        """Complete everything in flight; tells how many commands that were."""
        done = 0
        while self._time.step():
            done += 1
        return done

    def _duration(self, kind: str, nbytes: int) -> float:
        latency = self.latency
        return latency(kind, nbytes) if callable(latency) else latency

    @property
    def live_streams(self) -> list[int]:
        """Handles of the streams there are."""
        return list(self._streams.live())

    @property
    def live_events(self) -> list[int]:
        """Handles of the events there are."""
        return list(self._events.live())
