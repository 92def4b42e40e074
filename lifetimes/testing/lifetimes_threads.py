"""The random program of `lifetimes.testing.lifetimes_machine` on several threads.

class MyMachine(ThreadedLifetimesMachine):
    def make(self, *args, **options):
        return my_package.Handle(*args, **options)

TestMyMachine = MyMachine.TestCase
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from hypothesis.stateful import invariant

from lifetimes import Lifetime, drain
from lifetimes.testing.lifetimes_machine import LifetimesMachine

__all__ = ["ThreadedLifetimesMachine"]


class _Job:
    """A call that a worker makes."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = threading.Event()

    def make(self) -> None:
        try:
            self.result = self.call()
        except BaseException as error:
            self.error = error


class ThreadedLifetimesMachine(LifetimesMachine):
    """The same with each call on one of several threads, while others make, drop and drain things of their own.

    So what one thread drops may be released by any other, at any moment.
    """

    workers = 3

    def __init__(self) -> None:
        super().__init__()
        self.calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.ended = threading.Event()
        self.gate = threading.Lock()  # closed while the invariants are looked at
        self.threads = [threading.Thread(target=self.serve, daemon=True) for _ in range(self.workers)]
        self.threads += [threading.Thread(target=self.churn, daemon=True) for _ in range(2)]
        for thread in self.threads:
            thread.start()

    def serve(self) -> None:
        """One worker: makes calls until there are no more."""
        while (job := self.calls.get()) is not None:
            job.make()
            done = job.done
            del job  # first: with what it holds, a handle perhaps
            done.set()

    def churn(self) -> None:
        """Another program that uses the same registry."""
        while not self.ended.is_set():
            with self.gate:
                child = Lifetime(None, int, parents=[Lifetime(None, int, deferred=True)])
                child.add_finalizer(int)
                del child
                drain(3)

    def run(self, call: Callable[[], Any]) -> Any:
        """Make the call on whichever worker comes first, and wait for what it gives or raises."""
        job = _Job(call)
        self.calls.put(job)
        assert job.done.wait(60), "a call does not return"
        error, job.error = job.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # or its traceback, which holds the worker's frames, is held by this one
        return job.result

    def alone(self) -> bool:
        """Never."""
        return False

    @invariant()
    def the_log_agrees(self) -> None:
        """As above, while the others pause."""
        if not hasattr(self, "gate"):
            return
        with self.gate:
            super().the_log_agrees()

    def teardown(self) -> None:
        """End the threads first."""
        self.ended.set()
        for _ in range(self.workers):
            self.calls.put(None)
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive(), "a thread hangs"
        super().teardown()
