"""Several threads for one kernel: parts that whoever is free takes, the caller too.

The helpers sleep until there is something to do.  The caller does not wait for them to wake up: it takes part after
part itself, and waits in the end only for a part that a helper has begun.  So a helper that comes late, or not at all,
costs nothing.
"""

from __future__ import annotations

import _thread
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Final, TypeAlias

__all__ = ["PARTS", "run_together"]

Part: TypeAlias = tuple[Callable[..., None], tuple[Any, ...]]

PARTS: Final = 4
"""Parts for each thread: on a busy machine threads do not get on equally fast."""


class _Job:
    """Parts that wait, and how many have been done."""

    __slots__ = ("done", "finished", "parts", "total")

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = deque(parts)
        self.total = len(parts)
        self.finished: deque[None] = deque()
        self.done = _thread.allocate_lock()  # free once the last part has been done
        self.done.acquire()

    def help(self) -> None:
        """Take parts until none is left."""
        while True:
            try:
                function, args = self.parts.popleft()
            except IndexError:
                return
            try:
                function(*args)
            finally:
                self.finished.append(None)
                if len(self.finished) == self.total:
                    try:
                        self.done.release()
                    except RuntimeError:  # two parts ended at once, and the other one was first
                        pass


class _Team:
    """The helper threads of the process; started with the first job, and daemons."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """No helper is there yet; those of a process that forked are not ours."""
        self.jobs: SimpleQueue[_Job] = SimpleQueue()
        self.started: deque[threading.Thread] = deque()

    def call(self, count: int) -> None:
        """Make sure that so many helpers exist."""
        while len(self.started) < count:
            thread = threading.Thread(
                target=_help, args=(self.jobs,), name=f"lifetimes-jit-{len(self.started)}", daemon=True
            )
            self.started.append(thread)
            try:
                thread.start()
            except RuntimeError:  # no thread is to be had: the caller does all
                return


def _help(jobs: SimpleQueue[_Job]) -> None:
    while True:
        jobs.get().help()


_team: Final = _Team()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_team.reset)


def run_together(parts: Sequence[Part], threads: int) -> None:
    """Run all parts, on this thread and on helpers, ``threads`` in all; returns when all are done.

    An interrupt (Ctrl-C) is raised after the parts that had begun have ended: they write to memory that the caller frees.
    """
    job = _Job(parts)
    helpers = min(threads, len(parts)) - 1
    if helpers > 0:
        _team.call(helpers)
        for _ in range(helpers):
            _team.jobs.put(job)
    interrupt: BaseException | None = None
    while len(job.finished) < job.total:
        try:
            job.help()
            if len(job.finished) < job.total:
                job.done.acquire()
        except BaseException as error:
            interrupt = error
            while True:  # what has not begun is not begun any more
                try:
                    job.parts.pop()
                except IndexError:
                    break
                job.finished.append(None)
    if interrupt is not None:
        raise interrupt
