"""What has changed between two snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lifetimes.leaks.filters import key_for
from lifetimes.leaks.ledger import LiveThing
from lifetimes.leaks.snapshots import Snapshot

__all__ = ["Difference", "Growth", "diff"]


@dataclass(frozen=True, slots=True)
class Growth:
    """One group before and after."""

    key: str
    count_before: int
    count_after: int
    bytes_before: int
    bytes_after: int

    @property
    def count(self) -> int:
        """More, or with a minus fewer, of them."""
        return self.count_after - self.count_before

    @property
    def nbytes(self) -> int:
        """More, or with a minus fewer, bytes."""
        return self.bytes_after - self.bytes_before


@dataclass(frozen=True, slots=True)
class Difference:
    """From ``before`` to ``after``.

    ``same_process`` says whether the two can be compared thing by thing; then ``added`` and ``removed`` are rows.  Snapshots of
    two runs can only be compared by what rows have in common: see `by`.
    """

    before: Snapshot = field(repr=False)
    after: Snapshot = field(repr=False)
    same_process: bool
    added: tuple[LiveThing, ...]
    removed: tuple[LiveThing, ...]

    def by(self, by: str | Sequence[str] = ("kind", "line")) -> list[Growth]:
        """The groups (see `lifetimes.leaks.group`) that differ, those that grew most first."""
        key = key_for(by)
        counted: dict[str, list[int]] = {}
        for at, rows in enumerate((self.before, self.after)):
            for row in rows:
                entry = counted.setdefault(key(row), [0, 0, 0, 0])
                entry[at] += 1
                entry[2 + at] += row.nbytes
        found = [
            Growth(name, *entry) for name, entry in counted.items() if entry[0] != entry[1] or entry[2] != entry[3]
        ]
        return sorted(found, key=lambda each: (-each.nbytes, -each.count, each.key))

    @property
    def grown(self) -> bool:
        """Whether something is there that was not: a new thing, or of another run more things of one kind and line."""
        if self.same_process:
            return bool(self.added)
        return any(growth.count > 0 or growth.nbytes > 0 for growth in self.by())


def diff(before: Snapshot, after: Snapshot) -> Difference:
    """Compare two snapshots, of one process or of two.

    >>> from lifetimes import Lifetime, diff, snapshot
    >>> before = snapshot()
    >>> kept = [Lifetime(n, kind="buffer", nbytes=64) for n in range(3)]
    >>> found = diff(before, snapshot())
    >>> len(found.added), found.removed, [(growth.key, growth.count, growth.nbytes) for growth in found.by("kind")]
    (3, (), [('buffer', 3, 192)])
    """
    same = before.process == after.process
    added: tuple[LiveThing, ...] = ()
    removed: tuple[LiveThing, ...] = ()
    if same:
        there, here = frozenset(before.keys), frozenset(after.keys)
        added = tuple([after[index] for index, key in enumerate(after.keys) if key not in there])
        removed = tuple([before[index] for index, key in enumerate(before.keys) if key not in here])
    return Difference(before, after, same, added, removed)
