"""The ledger at one moment, in columns: a million live things in about a second."""

from __future__ import annotations

import math
import os
import threading
import time
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

from lifetimes import cell as cells
from lifetimes.leaks.filters import matching
from lifetimes.leaks.ledger import LiveThing, device_of, holds
from lifetimes.origins import sites

__all__ = ["PROCESS", "Snapshot", "snapshot"]

PROCESS: Final = f"{os.getpid()}-{time.time_ns()}"
"""Names this process: keys of two snapshots are comparable only if they come from the same one."""

_STATES: Final = {name: number for number, name in enumerate(cells.STATE_NAMES)}


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """What was alive at one moment; ``snapshot[i]`` and iteration give rows, oldest first.

    Everything in it is a plain value: it keeps nothing alive.  ``stacks`` are texts, innermost call first; a row's is
    ``stacks[stack[i]]``, none for -1.  Ages are in seconds, NaN where nothing was recorded.
    """

    taken: float
    """`time.time` when it was taken."""
    process: str
    keys: array[int]
    kinds: list[str]
    nbytes: list[int]
    labels: list[str | None]
    states: bytes
    children: list[int]
    pins: list[int]
    pending: list[int]
    exports: list[int]
    parents: list[tuple[int, ...]]
    ages: array[float]
    threads: list[str | None]
    scopes: list[str | None]
    devices: list[str | None]
    stack: array[int]
    stacks: list[tuple[str, ...]]

    @property
    def total_bytes(self) -> int:
        """The bytes of everything in it."""
        return sum(self.nbytes)

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> LiveThing:
        at = self.stack[index]
        stack = self.stacks[at] if at >= 0 else ()
        age = self.ages[index]
        return LiveThing(
            key=self.keys[index],
            kind=self.kinds[index],
            nbytes=self.nbytes[index],
            label=self.labels[index],
            state=cells.STATE_NAMES[self.states[index]],
            children=self.children[index],
            pins=self.pins[index],
            pending=self.pending[index],
            exports=self.exports[index],
            parents=self.parents[index],
            origin=stack[0] if stack else None,
            age=None if math.isnan(age) else age,
            thread=self.threads[index],
            scope=self.scopes[index],
            device=self.devices[index],
            stack=stack,
        )

    def __iter__(self) -> Iterator[LiveThing]:
        return map(self.__getitem__, range(len(self)))

    def where(self, **wanted: Any) -> list[LiveThing]:
        """The rows that fit, by the arguments of `live`."""
        return matching(self, **wanted)

    def without(self, keys: Iterable[int]) -> Snapshot:
        """The same but for the rows with these keys."""
        out = frozenset(keys)
        return of_rows([row for row in self if row.key not in out], taken=self.taken, process=self.process)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        found["states"] = list(self.states)
        found["keys"], found["stack"] = list(self.keys), list(self.stack)
        found["ages"] = [None if math.isnan(age) else round(age, 6) for age in self.ages]
        return found

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Snapshot:
        """What `as_dict` gave, after JSON has turned its tuples into lists.  Errors: `KeyError`, `TypeError`, `ValueError`."""
        columns = {each.name: content[each.name] for each in fields(cls)}
        columns["keys"] = array("Q", columns["keys"])
        columns["stack"] = array("q", columns["stack"])
        columns["states"] = bytes(columns["states"])
        columns["ages"] = array("d", [math.nan if age is None else age for age in columns["ages"]])
        columns["parents"] = [tuple(each) for each in columns["parents"]]
        columns["stacks"] = [tuple(each) for each in columns["stacks"]]
        found = cls(**columns)
        lengths = {name: len(column) for name, column in columns.items() if name not in ("taken", "process", "stacks")}
        if set(lengths.values()) - {len(found.keys)} or max(found.stack, default=-1) >= len(found.stacks):
            raise ValueError(f"the columns do not fit together: {lengths}")
        return found


def snapshot() -> Snapshot:
    """Everything that is alive, in columns.

    Complexity: O(live), about a microsecond each.  Locks: none; it may be called anywhere.

    >>> from lifetimes import Lifetime
    >>> before = snapshot()
    >>> x = Lifetime("handle", kind="buffer", nbytes=64)
    >>> after = snapshot()
    >>> len(after) - len(before), after.total_bytes - before.total_bytes
    (1, 64)
    """
    alive = list(cells.live.values())
    now = time.perf_counter()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    count = len(alive)
    held = [0] * count, [0] * count, [0] * count, [0] * count
    for index, cell in [(index, cell) for index, cell in enumerate(alive) if cell.holders]:
        sorts = holds(cell)
        for column, sort in zip(held, ("child", "pin", "pending", "export"), strict=True):
            column[index] = sorts.count(sort)
    nothing: tuple[float, int, None, None] = math.nan, 0, None, None
    raw: list[Any] = [getattr(cell, "origin", nothing) for cell in alive]
    numbers: dict[object, int] = {None: -1}
    # A line is (code, offset) at the end of what was recorded, a stack is one object that many share.
    at = [numbers.setdefault(id(each[3]) if len(each) == 4 else (id(each[3]), each[4]), len(numbers) - 1)
          if each is not nothing else -1 for each in raw]  # fmt: skip
    stacks: list[tuple[str, ...]] = [()] * (len(numbers) - 1)
    for each, number in zip(raw, at, strict=True):
        if number >= 0 and not stacks[number]:
            stacks[number] = sites(each[3]) if len(each) == 4 else sites(each[3:])
    devices: dict[int, str | None] = {}
    return Snapshot(
        taken=time.time(),
        process=PROCESS,
        keys=array("Q", [cell.key for cell in alive]),
        kinds=[cell.kind for cell in alive],
        nbytes=[cell.nbytes for cell in alive],
        labels=[cell.label for cell in alive],
        states=bytes([cell.state for cell in alive]),
        children=held[0],
        pins=held[1],
        pending=held[2],
        exports=held[3],
        parents=[tuple([parent.key for parent in cell.parents]) if cell.parents else () for cell in alive],
        ages=array("d", [now - each[0] for each in raw]),
        threads=[None if each is nothing else names.get(each[1], f"thread {each[1]}") for each in raw],
        scopes=[each[2] for each in raw],
        devices=[device_of(cell, devices) if cell.parents or cell.kind in _ROOTS else None for cell in alive],
        stack=array("q", at),
        stacks=stacks,
    )


_ROOTS: Final = frozenset({"device", "context"})


def of_rows(rows: list[LiveThing], *, taken: float | None = None, process: str = PROCESS) -> Snapshot:
    """Rows as a snapshot."""
    numbers: dict[tuple[str, ...], int] = {}
    return Snapshot(
        taken=time.time() if taken is None else taken,
        process=process,
        keys=array("Q", [row.key for row in rows]),
        kinds=[row.kind for row in rows],
        nbytes=[row.nbytes for row in rows],
        labels=[row.label for row in rows],
        states=bytes([_STATES[row.state] for row in rows]),
        children=[row.children for row in rows],
        pins=[row.pins for row in rows],
        pending=[row.pending for row in rows],
        exports=[row.exports for row in rows],
        parents=[row.parents for row in rows],
        ages=array("d", [math.nan if row.age is None else row.age for row in rows]),
        threads=[row.thread for row in rows],
        scopes=[row.scope for row in rows],
        devices=[row.device for row in rows],
        stack=array("q", [numbers.setdefault(row.stack, len(numbers)) if row.stack else -1 for row in rows]),
        stacks=list(numbers),
    )
