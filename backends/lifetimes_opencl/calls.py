"""Python functions in the order of a queue.

A function stands between two commands: a marker, which its thread waits for, and a barrier, which waits for a user event
that the thread sets when the function has returned.  The caller does not wait; other streams go on.  Each stream that has
ever called something has one daemon thread.

Note [Failing functions].  The user event is set to complete in any case.  An error code there would fail every command
behind it, and the library's rule is that a failure is told by the next event and stops nothing.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from itertools import count
from queue import SimpleQueue
from typing import Any

from lifetimes_opencl.failures import CallFailure
from lifetimes_opencl.runtime import COMPLETE, cl
from lifetimes_opencl.streams import Outcome

__all__ = ["Caller", "Job"]

_numbers = count(1)
_exiting: list[bool] = []  # not empty: the interpreter shuts down and no thread is started any more
atexit.register(_exiting.append, True)


class Job:
    """One function on its way."""

    __slots__ = ("_claimable", "_todo", "after", "barrier", "before", "outcome")

    def __init__(self, function: Callable[..., object], args: tuple[object, ...], after: Any) -> None:
        self._todo = [(function, args)]
        self._claimable = [True]
        self.before: Any = None  # the marker
        self.after = after  # the user event
        self.barrier: Any = None  # what waits for it; held until it is set, Note [Held] in streams.py
        self.outcome = Outcome()

    def run(self) -> None:
        """Wait for what stands before it, call it, let what stands behind it go on; nothing if it was taken back."""
        if not self._claim():
            return
        try:
            self.before.wait()
        except cl.Error:  # a command before it has failed, which the next event tells
            pass
        try:
            self._call()
        except BaseException as error:  # SystemExit too: the thread stays
            self.outcome.failures.append(CallFailure(error))
        self._let_through()

    def take_back(self) -> None:
        """Let what stands behind it go on without it, unless its thread has begun with it: then it is run."""
        if self._claim():
            self._let_through()

    def _claim(self) -> bool:
        try:
            return self._claimable.pop()
        except IndexError:
            return False

    def _call(self) -> None:
        # In a frame of its own, and out of the job: nothing may hold the arguments when the next command starts.
        function, args = self._todo.pop()
        function(*args)

    def _let_through(self) -> None:
        self.outcome.done = True
        self.after.set_status(COMPLETE)


class Caller:
    """The thread of one stream.  It knows its jobs and not the stream, which may be dropped while it sleeps."""

    __slots__ = ("jobs", "last", "thread")

    def __init__(self) -> None:
        self.last: Outcome | None = None
        self.jobs: SimpleQueue[Job | None] = SimpleQueue()
        self.thread: threading.Thread | None = None

    def submit(self, job: Job) -> bool:
        """Give the job to the thread.  False where no thread is to be had (at exit, for instance): then run it yourself."""
        if self.thread is None and not self._start():
            return False
        self.last = job.outcome
        self.jobs.put(job)
        return True

    @property
    def idle(self) -> bool:
        """Whether every function has run: they do so one after the other."""
        return self.last is None or self.last.done

    def _start(self) -> bool:
        if _exiting:
            return False
        thread = threading.Thread(
            target=_work, args=(self.jobs,), name=f"lifetimes-opencl-stream-{next(_numbers)}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the system has no more threads, or the interpreter shuts down
            return False
        self.thread = thread
        return True

    @property
    def here(self) -> bool:
        """Whether this is the thread."""
        return self.thread is threading.current_thread()

    def stop(self) -> None:
        """Let the thread end behind the last job.  Does not wait."""
        self.jobs.put(None)

    def join(self, timeout: float) -> bool:
        """Wait for the thread of a stopped caller; False if it still runs."""
        thread = self.thread
        if thread is None or self.here:
            return True
        thread.join(timeout)
        return not thread.is_alive()


def _work(jobs: SimpleQueue[Job | None]) -> None:
    while True:
        job = jobs.get()
        if job is None:
            return
        job.run()
        del job
