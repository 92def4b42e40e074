"""Virtual time: streams whose commands complete when somebody waits or steps, in the order of their end."""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any

import numpy as np

from lifetimes._typing import ByteView
from lifetimes.errors import BackendError
from lifetimes.testing.sim.memory import IN_FLIGHT, Block, poison

__all__ = ["Command", "Mark", "SimEvent", "SimStream", "Timeline", "WouldBlock"]


class WouldBlock(RuntimeError):  # noqa: N818 (says what would have happened)
    """A wait in manual mode for something that no step has completed yet."""


class Mark:
    """The completion of everything enqueued on a stream before it.

    What an event has not told when it is recorded again or destroyed is told by the stream's next event.
    """

    __slots__ = ("abandoned", "done", "failures", "stream", "time", "told")

    def __init__(self, stream: SimStream | None = None) -> None:
        self.stream = stream
        self.done = stream is None
        self.time = 0.0
        self.told = False
        self.abandoned = False
        self.failures: tuple[BaseException, ...] = ()

    def tell(self) -> None:
        """Raise what failed before this mark.  Errors: `BackendError` from the first failure."""
        if self.failures:
            self.told = True
            error = BackendError(f"a command on a simulated stream failed: {self.failures[0]!r}")
            for later in self.failures[1:]:
                error.add_note(f"a later command before the same event failed too: {later!r}")
            raise error from self.failures[0]

    def abandon(self) -> None:
        """The event forgets this mark; with the lock held."""
        self.abandoned = True
        if self.stream is not None and not self.told:
            self.stream.failures[:0] = self.failures
            self.failures = ()


class Command:
    """Work on a stream: what it does at its end, how long it takes, and everything it needs until then.

    ``mark`` makes it a control command, which takes no time: ``kind`` is "record", "marker" or "stream_wait".
    """

    __slots__ = ("arrays", "blocks", "detail", "duration", "effect", "enqueued", "error", "kind", "mark", "owner",
                 "poisoned", "targets")  # fmt: skip

    def __init__(
        self,
        kind: str,
        detail: object,
        effect: Callable[[], object] | None = None,
        *,
        duration: float = 0.0,
        mark: Mark | None = None,
        blocks: Iterable[Block] = (),
        reads: Iterable[ByteView] = (),
        targets: Iterable[ByteView] = (),
        error: BaseException | None = None,
        owner: Any = None,
    ) -> None:
        self.kind = kind
        self.detail = detail
        self.effect = effect
        self.duration = duration
        self.enqueued = 0.0
        self.mark = mark
        self.blocks = tuple(blocks)
        self.targets = tuple(targets)
        self.arrays = (*reads, *self.targets)
        self.poisoned = not self.targets
        self.error = error
        self.owner = owner  # has a count ``pending``: the module of a kernel

    def collides(self, others: Iterable[Command]) -> bool:
        """Whether another command still needs what this one will overwrite."""
        return any(
            np.may_share_memory(target, array) for other in others for array in other.arrays for target in self.targets
        )


class SimStream:
    """A queue in order.  ``running`` is the thread that completes its head right now."""

    __slots__ = ("failures", "queue", "ready", "running")

    def __init__(self) -> None:
        self.queue: deque[Command] = deque()
        self.ready = 0.0  # when the last completed command ended
        self.failures: list[BaseException] = []
        self.running: int | None = None


class SimEvent:
    """A name for the mark of its last recording."""

    __slots__ = ("mark",)

    def __init__(self) -> None:
        self.mark = Mark()


class Timeline:
    """All streams of a driver and the virtual time.

    A command starts when everything before it on its stream has completed, and ends ``duration`` later; `step`
    completes the one that ends first.  Control commands complete as soon as they are reached.

    Locks: the driver's, never held while a command's effect runs, which may be a user's function.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self.now = 0.0
        self.streams: list[SimStream] = []
        self.completed: Callable[[Command], object] = lambda command: None
        """Called with the lock held for each completed command: the driver's log."""
        self._changed = threading.Condition(lock)

    def enqueue(self, stream: SimStream, command: Command) -> None:
        """Add a command; with the lock held.  Its targets show `IN_FLIGHT` at once, unless an earlier command in flight
        still needs them: then from its start on."""
        command.enqueued = self.now
        if not command.poisoned and not command.collides(self.pending()):
            self._poison(command)
        for block in command.blocks:
            block.pending += 1
        if command.owner is not None:
            command.owner.pending += 1
        stream.queue.append(command)
        self._settle()

    def pending(self) -> list[Command]:
        """The commands in flight, control commands left out."""
        return [command for stream in self.streams for command in stream.queue if command.mark is None]

    def step(self) -> bool:
        """Complete the command that ends first.  False when no command can."""
        with self._changed:
            stream = min(filter(self._can_end, self.streams), key=self._end, default=None)
            if stream is None:
                return False
            self._begin(stream)
        self._complete(stream)
        return True

    def run_instant(self, stream: SimStream) -> None:
        """Complete the heads of one stream that take no time."""
        while True:
            with self._changed:
                if not self._can_end(stream) or self._end(stream) > self.now:
                    return
                self._begin(stream)
            self._complete(stream)

    def advance(self, mark: Mark) -> None:
        """Let time pass until ``mark`` is done.  Errors: `BackendError` when nothing in flight can complete it."""
        while not mark.done:
            if not self.step():
                self._wait_for_other_threads(mark)

    def _wait_for_other_threads(self, mark: Mark) -> None:
        """Block until another thread has completed the command that it is at."""
        with self._changed:
            if mark.done or any(map(self._can_end, self.streams)):
                return
            if not {stream.running for stream in self.streams} - {None, get_ident()}:
                raise BackendError("nothing in flight can end this wait: it waits for itself, or for dropped work")
            self._changed.wait()

    def clear(self) -> None:
        """Drop every stream and what is on it."""
        with self._changed:
            self.streams.clear()
            self._changed.notify_all()  # who waits for one of them learns that it will never end

    def _can_end(self, stream: SimStream) -> bool:
        # A head that is a control command is blocked: otherwise _settle would have completed it.
        return bool(stream.queue) and stream.running is None and stream.queue[0].mark is None

    def _end(self, stream: SimStream) -> float:
        head = stream.queue[0]
        return max(stream.ready, head.enqueued) + head.duration

    def _begin(self, stream: SimStream) -> None:
        self.now = max(self.now, self._end(stream))
        stream.running = get_ident()

    def _complete(self, stream: SimStream) -> None:
        end = self._end(stream)
        command = stream.queue[0]
        error = command.error
        try:
            if error is None and command.effect is not None:
                command.effect()
        except BaseException as raised:
            error = raised
        finally:
            with self._changed:
                if stream.queue:  # else the command has reset its own device
                    stream.queue.popleft()
                stream.running = None
                stream.ready = end
                for block in command.blocks:
                    block.pending -= 1
                if command.owner is not None:
                    command.owner.pending -= 1
                if error is not None:
                    stream.failures.append(_without_frames(error))
                self.completed(command)
                self._settle()
                self._changed.notify_all()
        if error is not None and not isinstance(error, Exception):
            raise error  # Ctrl-C is the caller's

    def _settle(self) -> None:
        """Complete what takes no time, start what has become the head, until nothing changes."""
        moved = True
        while moved:
            moved = False
            for stream in self.streams:
                while stream.queue and self._reach(stream):
                    moved = True

    def _reach(self, stream: SimStream) -> bool:
        head = stream.queue[0]
        mark = head.mark
        if mark is None:
            if not head.poisoned:
                self._poison(head)
            return False
        if head.kind == "stream_wait":
            if not mark.done:
                return False
            stream.ready = max(stream.ready, mark.time)
        else:
            if head.kind == "record" and not mark.abandoned:
                mark.failures = tuple(stream.failures)
                stream.failures.clear()
            mark.time = max(stream.ready, head.enqueued)
            mark.done = True
        stream.queue.popleft()
        return True

    def _poison(self, command: Command) -> None:
        command.poisoned = True
        poison(command.targets, IN_FLIGHT)

    def check_invariants(self) -> None:
        """Recount what is in flight."""
        counts: dict[int, int] = {}
        blocks = {id(block): block for command in self.pending() for block in command.blocks}
        for command in self.pending():
            for block in command.blocks:
                counts[id(block)] = counts.get(id(block), 0) + 1
        for key, block in blocks.items():
            assert block.pending == counts[key], f"{block.address:#x}: {block.pending} in flight, not {counts[key]}"
        for stream in self.streams:
            assert stream.ready <= self.now, f"a stream is ahead of time: {stream.ready} > {self.now}"


def _without_frames(error: BaseException) -> BaseException:
    # The frames would keep the command's arrays alive until somebody asks the event.
    if error.__traceback__ is not None:
        error.add_note("where it failed:\n" + "".join(traceback.format_exception(error)))
        error.__traceback__ = None
    return error
