"""Raw handles that look like a runtime's: small integers, given out again as soon as they are free."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["HandleTable"]

T = TypeVar("T")


class HandleTable(Generic[T]):
    """Integer handle -> the object behind it.

    With ``reuse`` the handle that was given back last is given out next, so that whoever remembers a handle for longer
    than its object lives meets a stranger behind it.

    >>> table = HandleTable("stream", 0x1000)
    >>> first = table.add("a")
    >>> table.remove(first)
    'a'
    >>> table.add("b") == first, table.get(first)
    (True, 'b')
    """

    def __init__(self, what: str, base: int, *, reuse: bool = True) -> None:
        self.what = what
        self._next = base
        self._reuse = reuse
        self._live: dict[int, T] = {}
        self._free: list[int] = []  # Invariant: no handle in _free is in _live

    def add(self, value: T) -> int:
        """A handle for ``value``, never 0."""
        if self._reuse and self._free:
            handle = self._free.pop()
        else:
            handle = self._next
            self._next += 1
        self._live[handle] = value
        return handle

    def get(self, handle: object) -> T | None:
        """What the handle stands for, None if nothing."""
        return self._live.get(handle) if isinstance(handle, int) else None

    def remove(self, handle: int) -> T:
        """Give the handle back.  Errors: `KeyError` for one that stands for nothing."""
        value = self._live.pop(handle)
        self._free.append(handle)
        return value

    def live(self) -> dict[int, T]:
        """A copy of what there is."""
        return dict(self._live)

    def clear(self) -> None:
        """Give every handle back, youngest last, so that it is the next to be given out."""
        for handle in sorted(self._live):
            self.remove(handle)

    def check_invariants(self) -> None:
        """No handle is free and live."""
        both = set(self._free) & set(self._live)
        assert not both, f"{self.what} handles that are free and live: {both}"
        assert len(set(self._free)) == len(self._free), f"a {self.what} handle is free twice: {self._free}"
