"""Threads that wait: for any change in a manager, and in line for memory.

Note [Changes].  Who waits compares a count, so a change between the look and the wait is not missed.

Note [The line].  Threads that found no memory wait in line, first come first served, so that they do not take it from
each other half by half.  Who holds pins does not wait for his turn: the others may be waiting for just these pins.
"""

from __future__ import annotations

import threading
import time
from _thread import get_ident

from lifetimes.locks import lock

__all__ = ["Waiting"]


class Waiting:
    """What the threads of one manager wait with."""

    __slots__ = ("_changed", "_last", "_turns", "attention", "changes", "line")

    def __init__(self) -> None:
        self._changed = threading.Condition(lock)
        self.changes = 0
        self._last = 0  # the thread that made the last change
        self._turns = 0  # how often that was another one than before
        # How many reasons there are for an unpin to take the long way: waiting threads, and limits that apply as pins drop.
        self.attention = 0
        self.line: dict[int, int] = {}  # token of a use -> its thread; in the order of coming

    def note(self) -> None:
        """Under the lock: something happened that somebody may wait for."""
        self.changes += 1
        thread = get_ident()
        if thread != self._last:
            self._last = thread
            self._turns += 1
        if self.attention:
            self._changed.notify_all()

    def begin(self) -> int:
        """Note the moment, for `others_changed` on this thread."""
        with lock:
            self._last = get_ident()
            turns = self._turns
        return turns

    def others_changed(self, since: int) -> bool:
        """Under the lock: whether another thread has changed anything since `begin`."""
        return self._turns != since or self._last != get_ident()

    def wait(self, seen: int, deadline: float | None = None) -> None:
        """Under the lock, which is given up meanwhile: block until something has changed since ``seen``."""
        self.attention += 1
        try:
            while self.changes == seen:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return
                self._changed.wait(left)
        finally:
            self.attention -= 1

    def stand_in_line(self, token: int) -> None:
        """Be the last."""
        with lock:
            self.line[token] = get_ident()

    def first_in_line(self, token: int) -> bool:
        """Whether it is this one's turn."""
        with lock:
            first = next(iter(self.line), token)
        return first == token

    def leave_line(self, token: int) -> None:
        """Done, one way or the other."""
        with lock:
            if self.line.pop(token, None) is not None:
                self.note()
