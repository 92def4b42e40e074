"""Lanes: FIFO queues of commands, each with a worker thread of its own from the first command that needs one.

A queue round trip through a thread costs 10 to 55 us, so a short command on an idle lane runs inline, on the caller's
thread, in the same order and with the same events.

Note [The claim].  Whoever runs commands of a lane, its worker or a caller inline, first claims the lane with one atomic
``dict.setdefault`` and gives it back with one ``del``.  Nobody ever waits for a claim: who does not get it leaves the
command in the queue, and who gives it back wakes the worker when something was left there.  So a user's function runs
under no lock, re-entry by a finalizer or a signal handler cannot wait for itself, and because the claim itself says
whose it is, an interrupt between claiming and giving back loses nothing.

Note [Idle].  A lane is idle when its queue is empty and, looked at afterwards, nobody holds the claim: a command leaves
the queue only under the claim, so what was enqueued before has then been run.
"""

from __future__ import annotations

import _thread
import atexit
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from threading import get_ident
from time import monotonic
from typing import Any, TypeAlias

from lifetimes.errors import BusyError
from lifetimes_host.failure import Failure

__all__ = ["Lane"]

Command: TypeAlias = tuple[Callable[..., object], tuple[Any, ...]]

_numbers = count(1)
_exiting: list[bool] = []  # not empty: the interpreter shuts down and no thread is started any more
atexit.register(_exiting.append, True)


class Lane:
    """The part of a stream that its worker knows: a queue, the claim, and what has failed since the last event.

    The worker refers to this and not to the stream, so that a stream can be dropped while its worker sleeps.

    Complexity: `submit`, `run_now` O(1); about 0.5 us inline beside the command, 10 to 55 us until the worker has run it.
    Locks: none that anybody could wait for (Note [The claim]).
    """

    __slots__ = ("failures", "queue", "running", "sleep", "starting", "stopped", "workers")

    def __init__(self) -> None:
        self.queue: deque[Command] = deque()
        self.running: dict[int, tuple[int]] = {}  # Invariant: empty, or {0: (thread that runs commands,)}
        self.failures: list[Failure] = []
        self.sleep = _thread.allocate_lock()  # unlocked: the worker has been woken
        self.sleep.acquire()
        self.starting: dict[int, threading.Thread] = {}  # {0: the worker} from its start on
        self.workers: list[threading.Thread] = []  # who entered _work: one, or two after an interrupt in the start
        self.stopped = False

    def submit(self, function: Callable[..., object], args: tuple[Any, ...], short: bool) -> None:
        """Run ``function(*args)`` after everything submitted before: inline if it is short and the lane idle."""
        queue = self.queue
        if short and not queue:
            running = self.running
            claim = (get_ident(),)
            try:
                if running.setdefault(0, claim) is claim and not queue:
                    try:
                        function(*args)
                    except Exception as error:
                        self.failures.append(Failure(error))
                    return
            finally:  # no call before the claim is given back: an interrupt could only arrive after one
                try:
                    mine = running[0] is claim
                except KeyError:
                    mine = False
                if mine:
                    del running[0]
                    if queue:
                        self.wake()
        queue.append((function, args))
        self.wake()

    def run_now(self, function: Callable[..., object], args: Sequence[Any]) -> bool:
        """Run ``function(*args)`` here if the lane is idle and no failure is untold; False if not, and nothing was done.

        It waits for nothing and starts no thread.  What the function raises is the caller's.
        """
        queue, running = self.queue, self.running
        if queue or self.failures or self.stopped:
            return False
        claim = (get_ident(),)
        try:
            if running.setdefault(0, claim) is not claim or queue or self.failures:
                return False
            function(*args)
            return True
        finally:  # as in `submit`
            try:
                mine = running[0] is claim
            except KeyError:
                mine = False
            if mine:
                del running[0]
                if queue:  # who put something there has started the worker, or is about to
                    self._rouse()

    def run_queued(self) -> None:
        """Run what is in the queue, unless somebody is at it already."""
        queue, running = self.queue, self.running
        while queue:
            claim = (get_ident(),)
            try:
                if running.setdefault(0, claim) is not claim:
                    return  # whoever has the claim looks at the queue again after giving it back
                while queue:
                    self._run(*queue.popleft())  # in a frame of its own, which lets go of the arguments at once
            finally:
                try:
                    mine = running[0] is claim
                except KeyError:
                    mine = False
                if mine:
                    del running[0]

    def _run(self, function: Callable[..., object], args: tuple[Any, ...]) -> None:
        try:
            function(*args)
        except BaseException as error:  # SystemExit too: the worker stays
            self.failures.append(Failure(error))

    def idle(self) -> bool:
        """Whether everything submitted has been run (Note [Idle])."""
        return not self.queue and not self.running

    def wake(self) -> None:
        """Let the worker look at the queue; start it if this is the first time."""
        if not self.starting:
            self._start()
        self._rouse()

    def _rouse(self) -> None:
        sleep = self.sleep
        if sleep.locked():
            try:
                sleep.release()
            except RuntimeError:  # somebody else did in between
                pass

    def nudge(self) -> None:
        """Wake the worker if something waits and nobody is at it, as after an interrupt between queue and wake."""
        if self.queue and not self.running:
            self.wake()

    def _start(self) -> None:
        thread = threading.Thread(
            target=_work, args=(self,), name=f"lifetimes-host-stream-{next(_numbers)}", daemon=True
        )
        try:
            if self.starting.setdefault(0, thread) is not thread:
                return  # another caller starts one
            if _exiting:
                raise RuntimeError("the interpreter shuts down")
            thread.start()
        except BaseException as error:
            # After an interrupt nobody can say whether the thread has started.  The next command starts another: two
            # workers are no worse than one (Note [The claim]), none would be a lane that stands still for ever.
            if self.starting.get(0) is thread:
                del self.starting[0]
            if not isinstance(error, RuntimeError):
                raise
            self.run_queued()  # no thread is to be had: the caller is the worker

    def stop(self) -> None:
        """Let the worker end once the queue is empty.  Does not wait; safe in ``__del__``."""
        self.stopped = True
        self._rouse()

    def join(self, timeout: float) -> bool:
        """Wait for a stopped lane to run what it has, ``timeout`` seconds at most; False if its worker still runs."""
        deadline = monotonic() + timeout
        for thread in {*self.workers, *self.starting.values()}:
            if thread is threading.current_thread() or thread.ident is None:
                continue  # it ends when the function that closes the driver has returned; or another caller starts it
            thread.join(max(deadline - monotonic(), 0.0))
            if thread.is_alive():
                return False
        self.run_queued()  # nothing is left, unless there never was a worker
        return True

    def refuse_to_wait_for_itself(self) -> None:
        """Raise `BusyError` when this thread is the one that runs the lane's commands."""
        try:
            mine = self.running[0][0] == get_ident()
        except KeyError:
            return
        if mine:
            raise BusyError(
                "this would wait for a stream from inside a command of that same stream, for ever; "
                "wait on another stream's event, or after the command has returned"
            )


def _work(lane: Lane) -> None:
    lane.workers.append(threading.current_thread())
    while True:
        lane.run_queued()
        if lane.stopped and not lane.queue:
            lane._rouse()  # an interrupt in the start may have left a second worker asleep
            return
        lane.sleep.acquire()
