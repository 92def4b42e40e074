"""What is alive right now, as rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from lifetimes import cell as cells
from lifetimes.leaks.filters import matching
from lifetimes.origins import origin_of, raw_of, sites

__all__ = ["LiveThing", "device_of", "holds", "idle", "live", "row_of", "rows_of"]


@dataclass(frozen=True, slots=True)
class LiveThing:
    """One lifetime that has not been released.

    ``nbytes`` is its size; ``age`` is in seconds.  What was not recorded when it was made (`lifetimes.set_stacks`) is None,
    and ``stack`` empty.
    """

    key: int
    kind: str
    nbytes: int
    label: str | None
    state: str
    children: int
    pins: int
    pending: int
    exports: int
    parents: tuple[int, ...]
    origin: str | None
    """``file:line in function`` that made it."""
    age: float | None
    thread: str | None
    scope: str | None
    device: str | None = None
    """The label of the device (or else the context) that it belongs to."""
    stack: tuple[str, ...] = field(default=(), repr=False)
    """The calls that made it, innermost first; one if only the line was recorded."""

    @property
    def name(self) -> str:
        """Kind, label and number, for messages."""
        label = f" {self.label!r}" if self.label else ""
        return f"{self.kind}{label} #{self.key}"


def live(
    *,
    kind: str | None = None,
    label: str | None = None,
    device: str | None = None,
    scope: str | None = None,
    thread: str | None = None,
    state: str | None = None,
    made_at: str | None = None,
    min_nbytes: int = 0,
    older_than: float = 0.0,
) -> list[LiveThing]:
    """Every lifetime that has not been released, oldest first; with arguments, those that fit all of them.

    ``kind``, ``label``, ``device``, ``thread`` and ``state`` may hold ``*`` and ``?``.  ``scope="epoch"`` takes in the scopes
    inside it; ``made_at`` is a part of ``file:line in function`` of any recorded call; ``older_than`` is in seconds.

    Complexity: O(live).  Locks: none; it may be called anywhere, a finalizer or signal handler included.

    >>> from lifetimes import Lifetime, live
    >>> x = Lifetime("handle", kind="buffer", nbytes=64, label="x")
    >>> [(thing.kind, thing.nbytes) for thing in live(label="x")]
    [('buffer', 64)]
    >>> live(label="x", min_nbytes=65)
    []
    """
    rows = rows_of(list(cells.live.values()))
    return matching(
        rows, kind=kind, label=label, device=device, scope=scope, thread=thread, state=state, made_at=made_at,
        min_nbytes=min_nbytes, older_than=older_than,
    )  # fmt: skip


def rows_of(alive: Iterable[cells.Cell]) -> list[LiveThing]:
    """A row for each cell."""
    threads = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks: dict[object, tuple[str, ...]] = {}
    devices: dict[int, str | None] = {}
    now = time.perf_counter()
    return [_row(cell, threads, stacks, devices, now) for cell in alive]


def row_of(cell: cells.Cell) -> LiveThing:
    """The row of one cell."""
    return rows_of([cell])[0]


def device_of(cell: cells.Cell, known: dict[int, str | None] | None = None) -> str | None:
    """The label of the nearest device among the cell and its ancestors, or else of the nearest context.

    ``known`` remembers answers by key, for many questions at once.
    """
    known = {} if known is None else known
    if cell.key not in known:
        if any(parent.key not in known for parent in cell.parents):
            for each in _ancestors(cell, known):
                known[each.key] = _device_of(each, known)
        known[cell.key] = _device_of(cell, known)
    return known[cell.key]


def _device_of(cell: cells.Cell, known: dict[int, str | None]) -> str | None:
    """The answer for a cell whose parents are known."""
    if cell.kind == "device":
        return cell.label
    for parent in cell.parents:
        if known[parent.key] is not None:
            return known[parent.key]
    return cell.label if cell.kind == "context" else None


def _ancestors(cell: cells.Cell, known: dict[int, str | None]) -> list[cells.Cell]:
    """Those that are not known, parents first, which are older.  A loop, so depth does not matter."""
    found: dict[int, cells.Cell] = {}
    waiting = list(cell.parents)
    while waiting:
        each = waiting.pop()
        if each.key not in known and each.key not in found:
            found[each.key] = each
            waiting += each.parents
    return [found[key] for key in sorted(found)]


def holds(cell: cells.Cell) -> list[str]:
    """What holds a cell, a word each: ``child``, ``pin``, ``pending``, ``export``."""
    return [holder.holds for holder in list(cell.holders.values()) if not idle(holder)]


def idle(holder: cells.Holder) -> bool:
    """Whether it only stands for work that may come: an idle device has nothing in flight."""
    return holder.__class__ is cells.Standing and bool(holder.task.idle())


def _inherited(cell: cells.Cell, known: dict[int, str | None]) -> str | None:
    for parent in cell.parents:
        found = device_of(parent, known)
        if found is not None:
            return found
    return cell.label if cell.kind == "context" else None


def _row(
    cell: cells.Cell,
    threads: dict[int | None, str],
    stacks: dict[object, tuple[str, ...]],
    devices: dict[int, str | None],
    now: float,
) -> LiveThing:
    held = holds(cell) if cell.holders else []
    raw = raw_of(cell)
    origin = None if raw is None else origin_of(cell)
    stack: tuple[str, ...] = ()
    if raw is not None and origin is not None:
        known = id(raw[3]) if len(raw) == 4 else (id(raw[3]), raw[4])
        stack = stacks.get(known, ())
        if not stack:
            stacks[known] = stack = sites(origin.stack)
    return LiveThing(
        key=cell.key,
        kind=cell.kind,
        nbytes=cell.nbytes,
        label=cell.label,
        state=cells.STATE_NAMES[cell.state],
        children=held.count("child"),
        pins=held.count("pin"),
        pending=held.count("pending"),
        exports=held.count("export"),
        parents=tuple([parent.key for parent in cell.parents]),
        origin=stack[0] if stack else None,
        age=None if origin is None else now - origin.made,
        thread=None if origin is None else threads.get(origin.thread, f"thread {origin.thread}"),
        scope=None if origin is None else origin.scope,
        device=device_of(cell, devices),
        stack=stack,
    )
