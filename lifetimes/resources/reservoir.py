"""Streams and events between two owners: only finished ones are handed out again, failed ones never."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from lifetimes.errors import BackendError

__all__ = ["Reservoir"]

H = TypeVar("H")


class Reservoir(Generic[H]):
    """Recycles things of one kind.

    Giving one back is one append (``give`` is the deque's own method), so a finalizer makes no driver call.  Taking one
    asks each waiting thing at most once, oldest first: busy ones are put back, and those whose work failed (``finished``
    raises `BackendError`) are in quarantine from then on: nobody gets them before they go with the context.

    Complexity: O(busy things) at worst.  Threading: any thread.

    >>> made = iter(range(10))
    >>> busy = {0}
    >>> reservoir = Reservoir(lambda: next(made), lambda thing: thing not in busy)
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
        self.give = self._waiting.append
        self.made: list[H] = []
        """Everything that was ever made here, whoever has it."""

    def take(self) -> H:
        """A finished thing, or a new one.  Errors: whatever creating one raises."""
        for _ in range(len(self._waiting)):
            try:
                thing = self._waiting.popleft()
            except IndexError:  # another thread took the last one
                break
            try:
                finished = self._finished(thing)
            except BackendError:
                continue
            except BaseException:
                self.give(thing)
                raise
            if finished:
                return thing
            self.give(thing)
        thing = self._create()
        self.made.append(thing)
        return thing
