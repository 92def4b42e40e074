"""Host memory for copies of device arrays: pooled, so that a copy lands in a buffer that is warm."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lifetimes.locks import lock
from lifetimes.size_classes import round_up

if TYPE_CHECKING:
    from lifetimes._typing import ByteView

__all__ = ["HostStatistics", "HostStore"]

_HUGE = 1 << 62


@dataclass(frozen=True, slots=True)
class HostStatistics:
    """A snapshot, in bytes of capacity: ``used`` by entries, ``held`` for reuse, and the ``peak`` of their sum."""

    used_bytes: int
    held_bytes: int
    peak_bytes: int


class HostStore:
    """Hands out host buffers and takes them back; may be shared by managers.

    At most ``held_limit`` bytes are kept for reuse; what comes back beyond that is left to the allocator.
    Complexity: O(1).  Locks: the library's, for a few table operations; memory is allocated without it.

    >>> store = HostStore()
    >>> buffer = store.take(1000)
    >>> buffer.nbytes, store.statistics().used_bytes
    (1000, 1024)
    >>> store.give(buffer)
    >>> store.statistics().held_bytes
    1024
    """

    def __init__(self, held_limit: int | None = None) -> None:
        self.held_limit = held_limit
        # Invariant: no empty deques.
        self._classes: dict[int, deque[ByteView]] = {}
        self._used = 0
        self._held = 0
        self._peak = 0

    def take(self, nbytes: int) -> ByteView:
        """A writable buffer of exactly ``nbytes`` bytes; its content is whatever it was."""
        capacity = round_up(max(nbytes, 1), _HUGE)
        base: ByteView | None = None
        with lock:
            buffers = self._classes.get(capacity)
            if buffers:
                base = buffers.pop()  # the warmest
                self._held -= capacity
                if not buffers:
                    del self._classes[capacity]
            self._used += capacity
            self._peak = max(self._peak, self._used + self._held)
        if base is None:
            try:
                base = np.empty(capacity, np.uint8)
            except BaseException:
                with lock:
                    self._used -= capacity
                raise
        return base[:nbytes]

    def give(self, buffer: ByteView) -> None:
        """Take back a buffer of `take`.  Nobody else may still use it."""
        base = buffer.base
        assert isinstance(base, np.ndarray), "a buffer of this store is a view of its whole allocation"
        capacity = base.nbytes
        with lock:
            self._used -= capacity
            if self.held_limit is None or self._held + capacity <= self.held_limit:
                self._held += capacity
                self._classes.setdefault(capacity, deque()).append(base)
        # An array beyond the limit dies here, with the caller's reference and not under the lock.

    def abandon(self, buffer: ByteView) -> None:
        """Take a buffer back that something may still write to: it is counted out and never reused."""
        base = buffer.base
        assert isinstance(base, np.ndarray), "a buffer of this store is a view of its whole allocation"
        with lock:
            self._used -= base.nbytes

    def trim(self) -> int:
        """Leave every held buffer to the allocator; the number of bytes."""
        with lock:
            dropped, self._classes = self._classes, {}
            nbytes, self._held = self._held, 0
        del dropped
        return nbytes

    def statistics(self) -> HostStatistics:
        """A snapshot of the counts."""
        return HostStatistics(self._used, self._held, self._peak)

    def check_invariants(self) -> None:
        """Recount what is held."""
        with lock:
            held = sum(capacity * len(buffers) for capacity, buffers in self._classes.items())
            assert all(self._classes.values()), "no class is empty"
            assert held == self._held, f"held bytes: counted {held}, kept {self._held}"
            assert self._used >= 0, f"used bytes fell below zero: {self._used}"
