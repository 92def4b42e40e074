"""The report as text."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from lifetimes.leaks.ledger import LiveThing, live
from lifetimes.origins import get_stacks
from lifetimes.sizes import format_bytes

__all__ = ["report", "report_table"]

SHOWN = 50


def report(things: Iterable[LiveThing] | None = None, *, width: int = 100) -> str:
    """What is alive, largest first, with the line that made it, as text of at most ``width`` columns.

    ``things`` are rows of `live` (all of them by default).  The lines are known if stacks were recorded when the things
    were made: ``lifetimes.open(..., stacks="line")``.

    >>> from lifetimes import Lifetime, report
    >>> x = Lifetime("handle", kind="buffer", nbytes=2048, label="x")
    >>> "buffer" in report() and "2 KiB" in report()
    True
    """
    rows = list(live() if things is None else things)
    if not rows:
        return "nothing is alive\n"
    console = Console(width=width, record=True, file=_Nowhere(), color_system=None, force_terminal=False)
    console.print(report_table(rows))
    return console.export_text()


def report_table(rows: list[LiveThing]) -> Table:
    """The same as a table for a rich console."""
    total = sum(row.nbytes for row in rows)
    table = Table(
        title=f"{len(rows)} alive, {format_bytes(total)}",
        caption=None if get_stacks() != "off" else 'where they were made is recorded with stacks="line"',
        title_justify="left",
        caption_justify="left",
        show_edge=False,
        pad_edge=False,
    )
    for heading in ("what", "label"):
        table.add_column(heading, no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("held by")
    table.add_column("made at", overflow="fold")
    rows = sorted(rows, key=lambda row: (-row.nbytes, row.key))
    for row in rows[:SHOWN]:
        table.add_row(
            f"{row.kind} #{row.key}",
            row.label or "",
            format_bytes(row.nbytes) if row.nbytes else "",
            _held_by(row),
            row.origin or "",
        )
    if len(rows) > SHOWN:
        table.add_row(f"and {len(rows) - SHOWN} more", "", "", "", "")
    return table


def _held_by(row: LiveThing) -> str:
    counts = {"child": row.children, "pin": row.pins, "pending": row.pending, "export": row.exports}
    plural = {"child": "children", "pin": "pins", "pending": "pending", "export": "exports"}
    held = [f"{count} {name if count == 1 else plural[name]}" for name, count in counts.items() if count]
    if row.state == "live":
        held.insert(0, "its handle")
    else:
        held.insert(0, row.state)
    return ", ".join(held)


class _Nowhere:
    """A text file that swallows what it is given; the console records it."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        return
