"""Which rows of the ledger are wanted, and rows taken together by what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lifetimes.leaks.ledger import LiveThing

__all__ = ["BY", "Group", "group", "key_for", "matching"]


def matching(
    rows: Iterable[LiveThing],
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
    """The rows that fit all of the arguments, which are those of `live`."""
    found = list(rows)
    for pattern, name in ((kind, "kind"), (label, "label"), (device, "device"), (thread, "thread"), (state, "state")):
        if pattern is not None:
            found = [row for row in found if fits(getattr(row, name), pattern)]
    if scope is not None:
        found = [row for row in found if row.scope == scope or (row.scope or "").startswith(f"{scope}/")]
    if made_at is not None:
        found = [row for row in found if any(made_at in site for site in row.stack)]
    if min_nbytes:
        found = [row for row in found if row.nbytes >= min_nbytes]
    if older_than:
        found = [row for row in found if row.age is not None and row.age >= older_than]
    return found


def fits(value: str | None, pattern: str) -> bool:
    """Whether a value is what is asked for; ``*`` and ``?`` stand for anything.

    >>> fits("chunk 7", "chunk*"), fits("[x]", "[x]"), fits(None, "*")
    (True, True, False)
    """
    if value is None:
        return False
    return value == pattern or fnmatchcase(value, pattern)


BY: Final[dict[str, Callable[[LiveThing], str]]] = {
    "stack": lambda row: "\n".join(row.stack),
    "line": lambda row: row.origin or "",
    "kind": lambda row: row.kind,
    "device": lambda row: row.device or "",
    "label": lambda row: row.label or "",
    "scope": lambda row: row.scope or "",
    "thread": lambda row: row.thread or "",
    "state": lambda row: row.state,
}
"""What rows can be grouped by."""


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that have something in common: ``key`` says what, empty for what is not known."""

    key: str
    count: int
    nbytes: int
    rows: tuple[LiveThing, ...] = field(repr=False)


def key_for(by: str | Sequence[str]) -> Callable[[LiveThing], str]:
    """The function from a row to what it is grouped by.  Errors: `ValueError` that lists what there is."""
    names = (by,) if isinstance(by, str) else tuple(by)
    for name in names:
        if name not in BY:
            raise ValueError(f"rows are grouped by {', '.join(map(repr, BY))}, not by {name!r}")
    if len(names) == 1:
        return BY[names[0]]
    return lambda row: ", ".join(BY[name](row) for name in names)


def group(rows: Iterable[LiveThing], by: str | Sequence[str] = "line") -> list[Group]:
    """Take rows together by what they have in common; largest first.

    ``by`` is stack, line, kind, device, label, scope, thread or state, or several of them.

    >>> from lifetimes import Lifetime, live
    >>> kept = [Lifetime(n, kind="buffer", nbytes=64, label="x") for n in range(3)]
    >>> [(found.key, found.count, found.nbytes) for found in group(live(label="x"), by="kind")]
    [('buffer', 3, 192)]
    """
    key = key_for(by)
    members: dict[str, list[LiveThing]] = {}
    for row in rows:
        members.setdefault(key(row), []).append(row)
    groups = [
        Group(name, len(found), sum(row.nbytes for row in found), tuple(found)) for name, found in members.items()
    ]
    return sorted(groups, key=lambda each: (-each.nbytes, -each.count, each.key))
