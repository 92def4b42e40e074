"""Single flight: what many ask for at once is made once.

The first who asks for a key makes its value, in his own thread; others wait for him.  No lock is held meanwhile.  A
failure goes to everybody who waits, and the next to ask tries again; an interrupt is nobody else's, so those who wait try
again themselves.  A thread that asks for what it is making itself (a finalizer or a signal handler may) makes it a second
time instead of waiting for itself.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["Flights"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Slot(Generic[V]):
    """A value that is there, or on its way."""

    __slots__ = ("done", "error", "owner", "value")

    def __init__(self) -> None:
        self.owner = threading.get_ident()
        self.done = threading.Event()
        self.value: list[V] = []  # empty, or the value
        self.error: BaseException | None = None


class Flights(Generic[K, V]):
    """Values by key, each made once.

    Complexity: one look-up.  Threading: any thread; every change is one call of a dict.

    >>> squares = Flights()
    >>> squares.get(3, lambda: 9), squares.get(3, lambda: 9), squares.peek(4)
    ((9, True), (9, False), None)
    """

    __slots__ = ("_slots", "look")

    def __init__(self) -> None:
        self._slots: OrderedDict[K, _Slot[V]] = OrderedDict()
        self.look = self._slots.get
        """The slot of a key, or None: `peek` without a call of ours.  Its ``value`` is a list of none or one."""

    def __len__(self) -> int:
        return len(self._slots)

    def peek(self, key: K) -> V | None:
        """The value, if it is there already."""
        slot = self._slots.get(key)
        return slot.value[0] if slot is not None and slot.value else None

    def get(self, key: K, make: Callable[[], V]) -> tuple[V, bool]:
        """The value, and whether ``make`` was called for it here.  Errors: whatever it raises, in each thread that waits."""
        while True:
            slot = self._slots.get(key)
            if slot is None:
                mine: _Slot[V] = _Slot()
                slot = self._slots.setdefault(key, mine)
                if slot is mine:
                    return self._made(key, mine, make), True
            if not slot.done.is_set():
                if slot.owner == threading.get_ident():
                    return make(), True
                slot.done.wait()
            if slot.value:
                try:
                    self._slots.move_to_end(key)
                except KeyError:  # dropped meanwhile; whoever asked has it all the same
                    pass
                return slot.value[0], False
            if isinstance(slot.error, Exception):
                raise slot.error

    def finished(self) -> list[tuple[K, V]]:
        """What is there, the one that was asked for longest ago first."""
        return [(key, slot.value[0]) for key, slot in list(self._slots.items()) if slot.value]

    def drop(self, key: K) -> bool:
        """Forget a value; whether it was there."""
        return self._slots.pop(key, None) is not None

    def shorten(self, most: int) -> None:
        """Forget values until only ``most`` are left, those asked for longest ago first."""
        for key, _ in self.finished()[: max(len(self._slots) - most, 0)]:
            self.drop(key)

    def clear(self) -> None:
        """Forget everything."""
        self._slots.clear()

    def _made(self, key: K, slot: _Slot[V], make: Callable[[], V]) -> V:
        try:
            value = make()
            slot.value.append(value)
            return value
        except BaseException as error:
            slot.error = error
            if self._slots.get(key) is slot:
                self._slots.pop(key, None)
            raise
        finally:
            slot.done.set()
