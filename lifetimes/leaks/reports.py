"""A report: what is alive, why, and how it came to that, for whichever way it is shown in."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from lifetimes.leaks.history import History
from lifetimes.leaks.ledger import LiveThing
from lifetimes.leaks.reasons import Reason, explain
from lifetimes.leaks.recording import Recording
from lifetimes.leaks.snapshots import Snapshot, of_rows, snapshot

__all__ = ["EXPLAINED", "Report", "collect", "worth_explaining"]

EXPLAINED: Final = 20
"""Things that a report explains: each takes a few passes over the program's containers."""


@dataclass(frozen=True, slots=True)
class Report:
    """``leaked`` has the keys of what should be gone; None if nobody has judged that.  ``collected`` are rows of things that
    only the garbage collector could free, and has freed."""

    snapshot: Snapshot
    reasons: dict[int, Reason] = field(default_factory=dict)
    recording: Recording | None = None
    title: str = "alive"
    leaked: frozenset[int] | None = None
    collected: Snapshot | None = None
    created: float = field(default_factory=time.time)

    @property
    def leaks(self) -> list[LiveThing]:
        """The rows that should be gone."""
        return [row for row in self.snapshot if self.leaked is not None and row.key in self.leaked]

    @property
    def others(self) -> list[LiveThing]:
        """The rows that may be there."""
        return [row for row in self.snapshot if self.leaked is None or row.key not in self.leaked]


def collect(
    rows: Iterable[LiveThing] | None = None,
    *,
    history: History | None = None,
    explained: int = EXPLAINED,
    title: str = "alive",
) -> Report:
    """A report on what is alive now, or on some rows of it.

    ``explained`` bounds how many things are asked `why` they are alive, the largest of each line first; 0 asks none.

    >>> from lifetimes import Lifetime
    >>> x = Lifetime("handle", kind="buffer", nbytes=64)
    >>> report = collect()
    >>> len(report.snapshot) > 0, report.leaked
    (True, None)
    """
    taken = snapshot() if rows is None else of_rows(list(rows))
    reasons = explain(worth_explaining(taken, explained)) if explained else {}
    recording = None if history is None else history.recording()
    return Report(taken, reasons, recording, title)


def worth_explaining(rows: Iterable[LiveThing], limit: int = EXPLAINED) -> list[int]:
    """The keys of the largest things, one of each line before a second of any."""
    turns: dict[tuple[str, str | None], int] = {}
    order: list[tuple[int, int, int]] = []
    for row in sorted(rows, key=lambda row: (-row.nbytes, row.key)):
        place = row.kind, row.origin
        turns[place] = turn = turns.get(place, 0) + 1
        order.append((turn, -row.nbytes, row.key))
    return [key for _, _, key in sorted(order)[:limit]]
