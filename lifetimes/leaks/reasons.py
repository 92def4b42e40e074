"""Why something is alive: who refers to its handle; or, when that is gone, what keeps it all the same."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any, Final

from lifetimes import cell as cells
from lifetimes.leaks.ledger import LiveThing, idle, row_of
from lifetimes.leaks.roots import OURS, Roots, place_of
from lifetimes.leaks.search import Found, path_to
from lifetimes.lifetime import Lifetime

__all__ = ["Reason", "explain", "stand_ins", "why"]

SHOWN: Final = 3
"""Holders of one thing that are told."""

stand_ins: dict[int, Callable[[], object]] = {}
"""For lifetimes that only stand for a foreign object: the key, and how to get at that object."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one thing is alive.

    ``reason`` says it in a word: ``global``, ``local variable``, ``context variable``, ``closure``, ``cache``,
    ``thread-local``, ``generator``, ``traceback`` or ``cycle`` for a handle that is referred to; ``pin``, ``export``,
    ``pending`` or ``child`` for one that is gone or closed; ``waiting`` when the next safe point releases it;
    ``released``; or ``unknown``.  ``held_by`` says it all.

    ``root`` is the module whose variable the path begins with; ``via`` the key of another lifetime that the path goes
    through; ``avoided`` says that all paths lead through what `explain` was told to avoid.
    """

    key: int
    name: str
    reason: str
    held_by: str
    root: str = ""
    via: int | None = None
    avoided: bool = False

    def __str__(self) -> str:
        return f"{self.name} is held by {self.held_by}" if self.held_by else f"{self.name} is {self.reason}"


def why(thing: int | LiveThing | Lifetime[Any]) -> Reason:
    """Why a lifetime (or the one with this key, or of this row) is alive.

    Reading runs nobody's code and keeps nothing alive.  What only native code refers to is ``unknown``.
    Complexity: a few passes over all containers of the program, tens of milliseconds each.

    >>> from lifetimes import Lifetime
    >>> kept = {"x": Lifetime("handle", kind="buffer")}
    >>> reason = why(kept["x"])
    >>> reason.reason, reason.held_by.endswith("['x']")
    ('global', True)
    """
    key = thing if isinstance(thing, int) else thing.key
    del thing  # or this very call would hold it
    return explain([key])[key]


def explain(keys: Iterable[int | LiveThing], *, avoid: Container[int] = ()) -> dict[int, Reason]:
    """`why` for several at once, by key.  ``avoid`` has the ids of objects that should rather not be told as holders."""
    wanted = [key if isinstance(key, int) else key.key for key in keys]
    if not wanted:
        return {}
    collecting = gc.isenabled()
    gc.disable()  # a collection in the middle would take apart the cycles that are looked at
    try:
        search = _Search(avoid)
        return {key: search.why(key, ()) for key in wanted}
    finally:
        if collecting:
            gc.enable()


class _Search:
    """One look at the program's roots."""

    def __init__(self, avoid: Container[int]) -> None:
        self.avoid = avoid
        self.roots = Roots()

    def path(self, target: object) -> Found:
        return path_to(target, self.roots, avoid=self.avoid, ours=[stand_ins])

    def why(self, key: int, above: tuple[int, ...]) -> Reason:
        cell = cells.live.get(key)
        if cell is None:
            return Reason(key, f"#{key}", "released", "")
        name = row_of(cell).name
        stands_for = stand_ins.get(key)
        target: object = cell() if stands_for is None else stands_for()
        if target is not None and cell.state in (cells.LIVE, cells.MARKED):
            found = self.path(target)
            pin = next((holder for holder in list(cell.holders.values()) if holder.holds == "pin"), None)
            if pin is not None and found.reason == "unknown":
                return Reason(key, name, "pin", self._block(pin))
            if pin is not None and found.reason == "pin":
                return Reason(key, name, "pin", f"a pin{_purpose(pin)}, not given back: {found.path}", found.root)
            return Reason(key, name, found.reason, found.path, found.root, found.via, found.avoided)
        held = self._holders(cell, (*above, key))
        if not held:
            return Reason(key, name, "waiting", "nothing: the next safe point releases it (lifetimes.drain() is one)")
        words = "; ".join(text for _, text in held[:SHOWN])
        if len(held) > SHOWN:
            words += f"; and {len(held) - SHOWN} more"
        return Reason(key, name, held[0][0], words)

    def _holders(self, cell: cells.Cell, above: tuple[int, ...]) -> list[tuple[str, str]]:
        found = []
        for holder in list(cell.holders.values()):
            if holder.holds == "export":
                found.append((0, "export", f"an export, {holder.describe()}{self._keeper(holder)}"))
            elif holder.holds == "pending" and not idle(holder):
                found.append((1, "pending", f"work in flight: {_task(holder.task)}"))
            elif holder.holds == "child":
                found.append((2, "child", self._child(holder, above)))
        found.sort(key=lambda each: each[0])
        return [(sort, words) for _, sort, words in found]

    def _block(self, pin: Any) -> str:
        """The block of a call that is still inside, of which only its thread is known."""
        frame = sys._current_frames().get(pin.thread)
        while frame is not None and frame.f_code.co_filename.startswith(OURS):
            frame = frame.f_back
        thread = self.roots.threads.get(pin.thread, pin.thread)
        now = f", now at {place_of(frame)}" if frame is not None else ""
        return f"a pin{_purpose(pin)}, in a `with` block of thread {thread!r}{now}"

    def _keeper(self, record: object) -> str:
        """Who has the export that this record belongs to."""
        found = self.path(record)
        return "" if found.reason == "unknown" else f", which {found.path.removesuffix('._record')} has not released"

    def _child(self, child: cells.Cell, above: tuple[int, ...]) -> str:
        row = row_of(child)
        made = f", made at {row.origin}" if row.origin else ""
        if child.key in above or len(above) > 8:
            return f"its child {row.name}{made}"
        return f"its child {row.name}{made}, held by {self.why(child.key, above).held_by}"


def _purpose(pin: Any) -> str:
    return f" ({pin.why})" if pin.why else ""


def _task(task: object) -> str:
    if type(task).__module__.startswith("lifetimes.") and type(task).__repr__ is not object.__repr__:
        return repr(task).strip("<>")
    return f"{type(task).__qualname__}, which has not completed"
