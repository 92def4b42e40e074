"""The registered half of a lifetime, and the registry of all of them.

A `Cell` holds everything about a lifetime except its value: the value hangs on the handle (and on its pins), so that a
value which refers to its own handle stays collectable.  Cells are keyed by a counter that is never reused.

A cell's life::

                          handle gone
      LIVE -----------------------------------------> DROPPED
      |  ^                                               |
      |  | something is pinned: BusyError                | nothing holds it
      v  |                                               v
      MARKED ------> CLOSING -----------------------> RELEASING ---> RELEASED
      |                          nothing holds it
      +--> DETACHED (the value is given up)           any -> INHERITED (in a forked child)

What keeps a cell from being released stands in one dict, `Cell.holders`: live children, pins, work in flight, exports.
"Ready" is therefore one question: is the dict empty?

Note [The cell is a weak reference].  To its handle, with the queue's own ``append`` as its callback.  Ctrl-C or the
recursion limit may stop ``__del__``, as any Python function, at its first instruction, before it has done anything; a
callback in C they do not stop.  So the cell of every handle that dies is queued, whatever happens to ``__del__``, which
only adds that most cells need not wait in the queue.
"""

from __future__ import annotations

import weakref
from collections import deque
from itertools import count, starmap
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lifetimes._typing import Finalizer, StandingTask, Task
    from lifetimes.lifetime import Lifetime

    Handle: TypeAlias = weakref.ReferenceType[Lifetime[Any]]
else:
    Handle = weakref.ref

__all__ = [
    "Cell",
    "Holder",
    "Pending",
    "Standing",
    "arm",
    "broken_rules",
    "describe",
    "live",
    "next_key",
    "queue",
    "recipes",
]

# Invariant: a state above LIVE refuses to be used (MARKED: waits for the decision first); a cell at RELEASING or above
# is not in `live`.
LIVE: Final = 0
MARKED: Final = 1  # a close is looking for pins at this moment
DROPPED: Final = 2
CLOSING: Final = 3
RELEASING: Final = 4
RELEASED: Final = 5
DETACHED: Final = 6
INHERITED: Final = 7

STATE_NAMES: Final = (
    "live",
    "about to be closed",
    "dropped",
    "closing",
    "releasing",
    "released",
    "detached",
    "inherited by a forked process",
)

Recipe: TypeAlias = "tuple[Finalizer, Sequence[Any]]"
"""A finalizer and its arguments."""
Armed: TypeAlias = "starmap[Any]"
"""A recipe as an iterator that makes the call when it is advanced (see the reaper's Note [Once])."""

next_key: Callable[[], int] = count(1).__next__
"""Keys of cells and tokens of holders.  One C call, so two threads never get the same."""


class Cell(Handle):
    """What the registry holds of one lifetime; called, it gives the handle, or None once that is gone.

    Fields are plain slots, assigned inline by `Lifetime.__init__`: that path is measured in nanoseconds.  ``state`` is
    assigned last, so a cell that has one is whole.
    """

    __slots__ = (
        "added", "args", "armed", "deferred", "finalizer", "holders", "key", "kind", "label", "nbytes", "origin", "parents",
        "state",
    )  # fmt: skip

    holds = "child"  # what a cell is in its parents' ``holders``

    key: int
    kind: str
    nbytes: int
    label: str | None
    state: int
    deferred: bool
    # The finalizer attached first, with its arguments.  Invariant: None only if there is no finalizer at all.
    finalizer: Finalizer | None
    args: Sequence[Any]
    # Those attached later, in that order; None if there is nothing but the first.  Changed under the library's lock.
    added: list[Recipe] | None
    # Only after an interrupt tore a release: all of them in the order they run, each as far as it got.
    armed: list[Armed]
    # Invariant: every parent holds this cell under ``key`` until this cell is released.
    parents: tuple[Cell, ...]
    # Invariant: empty when released.  A DROPPED or CLOSING cell with no holders is in the queue.
    holders: dict[int, Holder]
    origin: Any  # set only while origins are recorded, by lifetimes.origins

    # A weak reference is equal to, and hashes as, what it refers to.  A cell is itself, whatever its handle thinks.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<cell of {describe(self)}, {STATE_NAMES[self.state]}>"


class Pending:
    """Work in flight that a cell waits for."""

    __slots__ = ("task", "watched")

    holds = "pending"

    def __init__(self, task: Task) -> None:
        self.task = task
        self.watched = False  # True once the reaper polls for it


class Standing(Pending):
    """Whatever is enqueued on something, now or later: as work that a cell waits for it never ends while the handle lives.

    Its task has an ``idle()`` as well: whether nothing is in flight, as far as that is known without asking the driver.
    """

    __slots__ = ()

    task: StandingTask


Holder: TypeAlias = Any
"""A `Cell` (child), a `Pinned`, a `Pending` or an `Exported`; each says which in its ``holds``."""

live: dict[int, Cell] = {}
"""Every cell that has not been released.  ``del live[key]`` is atomic: who succeeds releases the cell."""

queue: deque[Cell] = deque()
"""Cells that may be ready: their handle died, or their last holder went.  An entry too many does no harm."""
enqueue: Callable[[Cell], None] = queue.append
parked: deque[Cell] = deque()
"""Cells out of the queue that only a safe point may release."""


def arm(cell: Cell) -> list[Armed]:
    """The finalizers in the order they run, ready to run; those of a release that was torn as far as they got."""
    armed: list[Armed] | None = getattr(cell, "armed", None)
    if armed is None:
        # Arguments in a list, which `Lifetime.acquire` fills, make no call while it is empty.
        armed = [starmap(function, (args,) if args or args == () else ()) for function, args in recipes(cell)]
    return armed


def recipes(cell: Cell) -> list[Recipe]:
    """The finalizers with their arguments, last attached first."""
    return [] if cell.finalizer is None else [*reversed(cell.added or ()), (cell.finalizer, cell.args)]


def describe(cell: Cell) -> str:
    """The cell in words, for messages: kind, label, key and size."""
    label = f" {cell.label!r}" if cell.label else ""
    size = f" ({cell.nbytes} bytes)" if cell.nbytes else ""
    return f"{cell.kind}{label} #{cell.key}{size}"


def _gone() -> Cell:
    cell = Cell(Cell)  # type: ignore[arg-type]  # something that never dies
    cell.key, cell.kind, cell.nbytes, cell.label = 0, "lifetime", 0, None
    cell.finalizer, cell.args, cell.added = None, (), None
    cell.parents, cell.holders, cell.deferred = (), {}, False
    cell.state = RELEASED
    return cell


GONE: Final = _gone()
"""The cell of a handle that was released by its own death.  Only a resurrected handle ever shows it."""


def broken_rules() -> list[str]:
    """Which invariants of the registry do not hold, a sentence each; with no other thread inside the library.

    Complexity: O(live).
    """
    wrong = []
    waiting = {id(cell) for cell in (*queue, *parked)}
    for key, cell in list(live.items()):
        if cell.key != key:
            wrong.append(f"{cell!r} is registered under {key}")
        if cell.state >= RELEASING:
            wrong.append(f"{cell!r} is still registered")
        if cell.state == MARKED:
            wrong.append(f"{cell!r} was left undecided by a close")
        if cell.finalizer is None and cell.added:
            wrong.append(f"{cell!r} has later finalizers but no first")
        for parent in cell.parents:
            if parent.key >= key:
                wrong.append(f"{cell!r} is older than its parent {parent!r}")
            if live.get(parent.key) is not parent or parent.holders.get(key) is not cell:
                wrong.append(f"{cell!r} is not held by its parent {parent!r}")
        for token, holder in list(cell.holders.items()):
            if holder.__class__ is Cell and (live.get(token) is not holder or cell not in holder.parents):
                wrong.append(f"{cell!r} waits for {holder!r}, which is not its child")
        if (cell.state != LIVE or cell() is None) and not cell.holders and id(cell) not in waiting:
            wrong.append(f"{cell!r} is ready and in no queue")
    return wrong
