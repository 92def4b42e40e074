"""What keeps a lifetime's value alive besides its handle: pins of a block of code, exports to foreign code."""

from __future__ import annotations

from _thread import get_ident
from typing import Generic, TypeVar

from lifetimes import closing
from lifetimes.cell import LIVE, Cell, describe, next_key
from lifetimes.errors import ClosedError
from lifetimes.reaper import queue, safepoint

__all__ = ["Export", "Pin"]

T = TypeVar("T")


class Pin(Generic[T]):
    """One use of a value, for one ``with`` block.  Made by `Lifetime.use`; enter it once."""

    __slots__ = ("_cell", "_token", "_value", "thread", "why")

    holds = "pin"

    def __init__(self, cell: Cell, value: T, why: str) -> None:
        self._cell = cell
        self._value = value
        self._token = 0
        self.why = why
        self.thread = 0

    def __enter__(self) -> T:
        if self._token:
            raise RuntimeError("a pin can be entered once; call use() again for another block")
        cell = self._cell
        self.thread = get_ident()
        token = next_key()
        try:
            cell.holders[token] = self
            if cell.state != LIVE and closing.settle_state(cell) != LIVE:
                raise ClosedError(f"{describe(cell)} was closed before its use began")
            self._token = token
            return self._value
        except BaseException:
            cell.holders.pop(token, None)
            _let_go(cell)
            raise

    def __exit__(self, *exc_info: object) -> None:
        cell = self._cell
        token = self._token
        try:
            cell.holders.pop(token, None)
        finally:  # an interrupt on the line above must not leave the pin behind
            cell.holders.pop(token, None)
            if cell.state != LIVE:
                _let_go(cell)

    def describe(self) -> str:
        """Who holds the pin, in words."""
        return f"in use by thread {self.thread}" + (f" ({self.why})" if self.why else "")


class Export(Generic[T]):
    """A value in the hands of foreign code, which says when it is done with it.  Made by `Lifetime.export`."""

    __slots__ = ("_cell", "_token", "value", "why")

    holds = "export"

    def __init__(self, cell: Cell, value: T, why: str) -> None:
        self._cell = cell
        self._token = token = next_key()
        self.value = value
        self.why = why
        cell.holders[token] = self
        if cell.state != LIVE and closing.settle_state(cell) != LIVE:
            cell.holders.pop(token, None)
            raise ClosedError(f"{describe(cell)} was closed before it could be exported")

    def release(self) -> None:
        """The consumer is done.  Any thread, any time; later calls do nothing.  Never blocks on the library."""
        cell = self._cell
        if cell.holders.pop(self._token, None) is not None:
            _let_go(cell)

    def describe(self) -> str:
        """Who has it, in words."""
        return f"exported ({self.why})"


def _let_go(cell: Cell) -> None:
    """A holder has gone: if the cell is on its way out it may be ready now."""
    if cell.state != LIVE and not cell.holders:
        queue.append(cell)
        safepoint()
