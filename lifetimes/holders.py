"""What keeps a lifetime's value alive besides its handle: pins of a block of code, exports to foreign code."""

from __future__ import annotations

from _thread import get_ident
from typing import TYPE_CHECKING, Generic, TypeVar

from lifetimes import closing
from lifetimes.cell import LIVE, Cell, describe, enqueue, next_key
from lifetimes.errors import ClosedError
from lifetimes.reaper import safepoint

if TYPE_CHECKING:
    from lifetimes.lifetime import Lifetime

__all__ = ["Export", "Exported", "Pin", "Pinned"]

T = TypeVar("T")


class Pinned:
    """What a cell knows of a pin.  It does not hold the pin, so one that is lost takes itself out as it dies."""

    __slots__ = ("thread", "why")

    holds = "pin"

    def __init__(self, why: str) -> None:
        self.thread = 0
        self.why = why

    def describe(self) -> str:
        """Who holds the pin, in words."""
        return f"in use by thread {self.thread}" + (f" ({self.why})" if self.why else "")


class Exported:
    """What a cell knows of an export."""

    __slots__ = ("why",)

    holds = "export"

    def __init__(self, why: str) -> None:
        self.why = why

    def describe(self) -> str:
        """Who has it, in words."""
        return f"exported ({self.why})"


class Pin(Generic[T]):
    """One use of a value, for one ``with`` block.  Made by `Lifetime.use`; enter it once.  Holds the handle meanwhile."""

    __slots__ = ("_cell", "_handle", "_record", "_token")

    def __init__(self, handle: Lifetime[T], why: str) -> None:
        self._cell = handle._cell
        self._handle: Lifetime[T] | None = handle
        self._record = Pinned(why)
        self._token = 0  # last: whoever has a token is whole

    def __enter__(self) -> T:
        handle = self._handle
        if self._token or handle is None:
            raise RuntimeError("a pin can be entered once; call use() again for another block")
        self._token = token = next_key()
        try:
            self._record.thread = get_ident()
            _hold(self._cell, token, self._record, "it was to be used")
            return handle._value
        except BaseException:
            self._unpin()
            raise

    def __exit__(self, *exc_info: object) -> None:
        try:
            self._unpin()
        finally:  # once more, should an interrupt have struck the line above
            self._unpin()
            self._handle = None

    def _unpin(self) -> None:
        if getattr(self, "_token", 0):
            _let_go(self._cell, self._token)

    __del__ = _unpin  # an interrupt between __enter__ and the block lets it die without __exit__


class Export(Generic[T]):
    """A value in the hands of foreign code, which says when it is done with it.  Made by `Lifetime.export`.

    It is released when it dies, too: whoever has the value keeps it.
    """

    __slots__ = ("_cell", "_record", "_token", "value")

    def __init__(self, cell: Cell, value: T, why: str) -> None:
        self._cell = cell
        self.value = value
        self._record = Exported(why)
        self._token = token = next_key()  # last: whoever has a token is whole
        _hold(cell, token, self._record, "it was to be exported")

    def release(self) -> None:
        """The consumer is done.  Any thread, any time; later calls do nothing.  Never blocks on the library."""
        if getattr(self, "_token", 0):
            _let_go(self._cell, self._token)

    __del__ = release


def _hold(cell: Cell, token: int, holder: Pinned | Exported, what: str) -> None:
    cell.holders[token] = holder
    if cell.state and closing.settle_state(cell) != LIVE:
        _let_go(cell, token)
        raise ClosedError(f"{describe(cell)} was closed just when {what}")


def _let_go(cell: Cell, token: int) -> None:
    """A holder goes.  If the cell is on its way out it may be ready now."""
    if token in cell.holders:
        cell.holders.pop(token, None)
        if cell.state and not cell.holders:
            enqueue(cell)
            safepoint()
