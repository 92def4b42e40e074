"""Streams and events between two owners: only finished ones are handed out again, failed ones never."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from lifetimes.errors import BackendError

__all__ = ["Reservoir"]

H = TypeVar("H")


class Reservoir(Generic[H]):
    """Recycles handles of one kind.

    Giving one back is one append (``give`` is the deque's own method), so a finalizer makes no driver call.  Taking one
    asks each waiting handle at most once, oldest first: busy ones are put back, and those whose work failed go into
    quarantine until the context ends.

    Complexity: O(busy handles) at worst.  Threading: any thread.

    >>> made = iter(range(10))
    >>> busy = {0}
    >>> reservoir = Reservoir(lambda: next(made), lambda handle: handle not in busy)
    >>> a, b = reservoir.take(), reservoir.take()
    >>> reservoir.give(a), reservoir.give(b)
    (None, None)
    >>> reservoir.take()          # 0 is busy, so 1 goes first
    1
    """

    def __init__(self, create: Callable[[], H], finished: Callable[[H], bool]) -> None:
        self._create = create
        self._finished = finished
        self._waiting: deque[H] = deque()
        self.quarantine: list[H] = []
        self.give = self._waiting.append
        self.created = 0

    def take(self) -> H:
        """A finished handle, or a new one.  Errors: whatever creating one raises."""
        for _ in range(len(self._waiting)):
            try:
                handle = self._waiting.popleft()
            except IndexError:  # another thread took the last one
                break
            try:
                finished = self._finished(handle)
            except BackendError:
                self.quarantine.append(handle)
                continue
            except BaseException:
                self._waiting.append(handle)
                raise
            if finished:
                return handle
            self._waiting.append(handle)
        handle = self._create()
        self.created += 1
        return handle

    def empty(self) -> list[H]:
        """Take out everything, quarantined handles too, for destruction at the end of the context."""
        handles = [*self._waiting, *self.quarantine]
        self._waiting.clear()
        self.quarantine.clear()
        return handles
