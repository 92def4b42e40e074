"""What is alive right now, as rows."""

from __future__ import annotations

from dataclasses import dataclass

from lifetimes import cell as cells
from lifetimes.origins import origin_of

__all__ = ["LiveThing", "live"]


@dataclass(frozen=True, slots=True)
class LiveThing:
    """One lifetime that has not been released.

    ``nbytes`` is its size; ``age`` is in seconds.  What was not recorded when it was made (`lifetimes.set_stacks`) is None.
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
    age: float | None
    thread: str | None
    scope: str | None


def live() -> list[LiveThing]:
    """Every lifetime that has not been released, oldest first.

    Complexity: O(live).  Locks: none; it may be called anywhere, a finalizer or signal handler included.

    >>> from lifetimes import Lifetime, live
    >>> x = Lifetime("handle", kind="buffer", nbytes=64, label="x")
    >>> [(thing.kind, thing.nbytes) for thing in live() if thing.label == "x"]
    [('buffer', 64)]
    """
    return [_row(cell) for cell in list(cells.live.values())]


def _row(cell: cells.Cell) -> LiveThing:
    origin = origin_of(cell)
    held = [holder.holds for holder in list(cell.holders.values())]
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
        parents=tuple(parent.key for parent in cell.parents),
        origin=None if origin is None else origin.line,
        age=None if origin is None else origin.age,
        thread=None if origin is None else origin.thread_name,
        scope=None if origin is None else origin.scope,
    )
