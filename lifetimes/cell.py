"""The registered half of a lifetime, and the registry of all of them.

A `Cell` holds everything about a lifetime except its value: the value hangs on the handle (and on its pins), so that a
value which refers to its own handle stays collectable.  Cells are keyed by a counter that is never reused.

A cell's life::

               drop                    holders gone
      LIVE ----------> DROPPED ---------------------+
       |  ^                                         v
       |  | pinned: BusyError                   RELEASING ---> RELEASED
       |  |                                         ^
       +--+-> CLOSING ------------------------------+
       |               holders gone
       +-> DETACHED (the value is given up)        any -> INHERITED (in a forked child)

What keeps a cell from being released stands in one dict, `Cell.holders`: live children, pins, work in flight, exports.
"Ready" is therefore one question: is the dict empty?
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable
    from itertools import starmap

    from lifetimes._typing import Task

__all__ = ["Cell", "Holder", "Pending", "Recipe", "describe", "live", "next_key"]

LIVE: Final = 0
DROPPED: Final = 1
CLOSING: Final = 2
RELEASING: Final = 3
RELEASED: Final = 4
DETACHED: Final = 5
INHERITED: Final = 6

STATE_NAMES: Final = ("live", "dropped", "closing", "releasing", "released", "detached", "inherited by a forked process")

Recipe: TypeAlias = "starmap[Any]"
"""A finalizer and its arguments, as an iterator that makes the call when advanced (see the reaper's Note [Once])."""

next_key: Callable[[], int] = count(1).__next__
"""Keys of cells and tokens of holders.  One C call, so two threads never get the same."""


class Cell:
    """What the registry holds of one lifetime.

    Fields are plain slots, assigned inline by `Lifetime.__init__`: that path is measured in nanoseconds.
    """

    __slots__ = ("deferred", "finalizers", "holders", "key", "kind", "label", "nbytes", "origin", "parents", "state")

    holds = "child"  # what a cell is in its parents' ``holders``

    key: int
    kind: str
    nbytes: int
    label: str | None
    state: int
    deferred: bool
    # Invariant: attached first comes first; each makes its call at most once, however often it is advanced.
    finalizers: list[Recipe]
    # Invariant: every parent holds this cell under ``key`` until this cell is released.
    parents: tuple[Cell, ...]
    # Invariant: empty when released.  A DROPPED or CLOSING cell with no holders is in the reaper's queue.
    holders: dict[int, Holder]
    origin: Any  # set only while origins are recorded, by lifetimes.origins

    def __repr__(self) -> str:
        return f"<cell of {describe(self)}, {STATE_NAMES[self.state]}>"


class Pending:
    """Work in flight that a cell waits for."""

    __slots__ = ("task", "watched")

    holds = "pending"

    def __init__(self, task: Task) -> None:
        self.task = task
        self.watched = False  # True once the reaper polls for it


Holder: TypeAlias = Any
"""A `Cell` (child), a `Pin`, a `Pending` or an export; each says which in its ``holds``."""

live: dict[int, Cell] = {}
"""Every cell that has not been released.  ``live.pop(key, None)`` is atomic: who gets the cell releases it."""


def describe(cell: Cell) -> str:
    """The cell in words, for messages: kind, label, key and size."""
    label = f" {cell.label!r}" if cell.label else ""
    size = f" ({cell.nbytes} bytes)" if cell.nbytes else ""
    return f"{cell.kind}{label} #{cell.key}{size}"
