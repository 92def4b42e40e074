"""The report as text, made for 80 columns: one block a line of the program, largest first."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lifetimes.leaks import filters
from lifetimes.leaks.comparison import Difference
from lifetimes.leaks.ledger import LiveThing, live
from lifetimes.leaks.reasons import Reason
from lifetimes.leaks.reports import Report, collect
from lifetimes.origins import get_stacks
from lifetimes.sizes import format_bytes

__all__ = ["WIDTH", "as_text", "difference_renderable", "renderable", "report", "short"]

WIDTH: Final = 80
SHOWN: Final = 30
"""Blocks of a report."""
FRAMES: Final = 6
"""Calls of a stack."""
HOLDERS: Final = 4
"""Holders of what one line has made, where they differ in more than `NUMBERS`."""
NUMBERS: Final = re.compile(r"\[[^\]]*\]|#\d+")
"""Where in a container something is, and which lifetime it is."""


def report(things: Iterable[LiveThing] | None = None, *, width: int = WIDTH, why: bool = False) -> str:
    """What is alive, largest first, with the line that made it, as text of at most ``width`` columns.

    ``things`` are rows of `live` (all of them by default).  The lines are known if stacks were recorded when the things
    were made: ``lifetimes.open(..., stacks="line")``.  ``why`` adds who refers to them, which takes a moment.

    >>> from lifetimes import Lifetime, report
    >>> x = Lifetime("handle", kind="buffer", nbytes=2048, label="x")
    >>> "buffer" in report() and "2 KiB" in report()
    True
    """
    rows = list(live() if things is None else things)
    if not rows:
        return "nothing is alive\n"
    found = collect(rows) if why else collect(rows, explained=0)
    return as_text(renderable(found), width)


def as_text(content: RenderableType, width: int = WIDTH) -> str:
    """What a console of that width would show, without colours."""
    written = StringIO()
    Console(width=width, file=written, color_system=None, force_terminal=False, highlight=False).print(content)
    lines = [line.rstrip() for line in written.getvalue().rstrip().splitlines()]
    return "".join(f"{line}\n" for line in lines)


def renderable(report: Report) -> Group:
    """The whole report for a rich console."""
    parts: list[RenderableType] = []
    if report.leaked is None:
        parts += section(report.title, "bold", list(report.snapshot), report.reasons)
    else:
        if report.leaks:
            parts += section("leaked", "bold red", report.leaks, report.reasons)
        if report.collected is not None and len(report.collected):
            what = "freed only by the garbage collector: reference cycles"
            parts += section(what, "bold yellow", list(report.collected), report.reasons)
        if report.others:
            parts += section(report.title, "bold", report.others, report.reasons)
    if report.recording is not None and len(report.recording.events):
        parts += peak(report)
    if get_stacks() == "off" and len(report.snapshot) and not report.snapshot.stacks:
        parts.append(Text('where things were made is recorded with stacks="line"', "dim"))
    return Group(*parts)


def section(title: str, style: str, rows: Sequence[LiveThing], reasons: dict[int, Reason]) -> list[RenderableType]:
    """A heading, and a block for each kind and line."""
    total = sum(row.nbytes for row in rows)
    parts: list[RenderableType] = [Text(f"{len(rows):,} {title}, {format_bytes(total)}", style)]
    groups = filters.group(rows, ("kind", "stack"))
    for number, group in enumerate(groups[:SHOWN]):
        parts += block(number + 1, group.rows, reasons)
    if len(groups) > SHOWN:
        left = groups[SHOWN:]
        size = format_bytes(sum(group.nbytes for group in left))
        parts.append(Text(f"and {sum(group.count for group in left):,} more of {len(left):,} kinds and lines, {size}"))
    parts.append(Text(""))
    return parts


def block(number: int, rows: Sequence[LiveThing], reasons: dict[int, Reason]) -> list[RenderableType]:
    """What one line has made."""
    first = rows[0]
    nbytes = sum(row.nbytes for row in rows)
    heading = Text(f"{number:3} ")
    heading.append(f"{len(rows):,} x {first.kind}" if len(rows) > 1 else first.name, "bold")
    heading.append(f"  {format_bytes(nbytes)}" if nbytes else "")
    parts: list[RenderableType] = [heading]
    if first.origin:
        parts.append(line("made at", Tail(short(first.origin), "cyan")))
        parts += [line("", Tail(short(site), "dim")) for site in first.stack[1:FRAMES]]
        further = len(first.stack) - FRAMES
        if further > 0:
            parts.append(line("", f"and {further} call{'' if further == 1 else 's'} further out", "dim"))
    parts += [line("" if at else "held by", *each) for at, each in enumerate(holders(rows, reasons))]
    about = details(rows)
    if about:
        parts.append(line("about", about, "dim"))
    return parts


def holders(rows: Sequence[LiveThing], reasons: dict[int, Reason]) -> list[tuple[str, str]]:
    """What holds them, as far as somebody has looked, each with a style."""
    known = [reasons[row.key] for row in rows if row.key in reasons]
    if not known:
        ways = Counter(map(held_by, rows))
        told = [way if len(ways) == 1 else f"{count:,} by {way}" for way, count in ways.most_common(HOLDERS)]
        return [("; ".join(told) + ("; ..." if len(ways) > HOLDERS else ""), "")]
    alike: dict[str, list[str]] = {}
    for each in known:
        words = f"{each.held_by or each.reason} ({each.reason})"
        alike.setdefault(NUMBERS.sub("*", words), []).append(words)
    found: list[tuple[str, str]] = []
    for texts in list(alike.values())[:HOLDERS]:
        found.append((short(texts[0]), "" if found else "magenta"))
        if len(texts) > 1:
            found.append((f"and {len(texts) - 1:,} like this one", "dim"))
    left = sum(len(texts) for texts in list(alike.values())[HOLDERS:])
    if left:
        found.append((f"and {left:,} more", "dim"))
    if len(rows) > len(known):
        found.append((f"{len(rows) - len(known):,} more were not looked at", "dim"))
    return found


def details(rows: Sequence[LiveThing]) -> str:
    """What else is known of them, as far as they agree or are few."""
    found = []
    labels = list(dict.fromkeys(row.label for row in rows if row.label))
    if labels and len(rows) > 1:
        found.append(f"labels {', '.join(map(repr, labels[:3]))}{', ...' if len(labels) > 3 else ''}")
    for name, values in (("device", {row.device for row in rows}), ("scope", {row.scope for row in rows}),
                         ("thread", {row.thread for row in rows})):  # fmt: skip
        told = sorted(value for value in values if value)
        if told and told != ["MainThread"]:
            found.append(f"{name} {', '.join(told[:3])}{', ...' if len(told) > 3 else ''}")
    ages = [row.age for row in rows if row.age is not None]
    if ages:
        oldest, youngest = duration(max(ages)), duration(min(ages))
        found.append(f"{oldest} old" if oldest == youngest else f"{youngest} to {oldest} old")
    return "; ".join(found)


def held_by(row: LiveThing) -> str:
    """What is known without looking further."""
    counts = {"child": row.children, "pin": row.pins, "pending": row.pending, "export": row.exports}
    plural = {"child": "children", "pin": "pins", "pending": "pending", "export": "exports"}
    held = [f"{count} {name if count == 1 else plural[name]}" for name, count in counts.items() if count]
    return ", ".join(["its handle" if row.state == "live" else row.state, *held])


def peak(report: Report) -> list[RenderableType]:
    """Who held what when most was held."""
    recording = report.recording
    assert recording is not None, "asked only of a report that has one"
    top = recording.peak
    things = recording.alive_after(top.event)
    parts: list[RenderableType] = [
        Text(f"most at one time: {format_bytes(top.nbytes)}, {duration(top.seconds)} after the start", "bold")
    ]
    for held in recording.held(things)[:5]:
        where = f"made at {short(held.key)}" if held.key else "made where nothing was recorded"
        parts.append(line(format_bytes(held.nbytes), Tail(f"{held.count:,} {where}"), width=10))
    if recording.lost:
        parts.append(Text(f"{recording.lost:,} later events were not recorded: the history was full", "yellow"))
    parts.append(Text(""))
    return parts


def difference_renderable(difference: Difference, by: str | Sequence[str] = ("kind", "line")) -> Group:
    """What has changed, for a rich console."""
    parts: list[RenderableType] = []
    if difference.same_process:
        added, removed = len(difference.added), len(difference.removed)
        parts.append(Text(f"{added:,} new, {removed:,} gone", "bold"))
    else:
        parts.append(Text("two runs, compared by what things have in common", "bold"))
    grown = difference.by(by)
    for growth in grown[:SHOWN]:
        style = "red" if growth.nbytes > 0 or growth.count > 0 else "green"
        size = f"{'-' if growth.nbytes < 0 else '+'}{format_bytes(abs(growth.nbytes))}" if growth.nbytes else ""
        heading = Text(f"{growth.count:+7,} {size:>11}  ", style)
        heading.append(short(growth.key) or "not recorded")
        parts.append(heading)
    if len(grown) > SHOWN:
        parts.append(Text(f"and {len(grown) - SHOWN} more"))
    if not grown:
        parts.append(Text("no difference"))
    return Group(*parts)


def line(name: str, content: str | Tail, style: str = "", width: int = 7) -> RenderableType:
    """One indented line; what does not fit continues below its beginning."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=width, style="dim", justify="left" if width == 7 else "right")
    grid.add_column(overflow="fold")
    grid.add_row(name, Text(content, style, overflow="fold") if isinstance(content, str) else content)
    return Padding(grid, (0, 0, 0, 4))


class Tail:
    """``file:line in function``, on two lines if it is too long for one.  A path is cut at its beginning: its end matters."""

    def __init__(self, text: str, style: str = "") -> None:
        self.text = text
        self.style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width
        path, within, function = self.text.rpartition(" in ")
        lines = [self.text] if len(self.text) <= room or not within else [path, f"in {function}"]
        if len(lines[0]) > room:
            lines[0] = f"...{lines[0][3 - room :]}"
        for each in lines:
            yield Text(each, self.style, no_wrap=True, overflow="ellipsis")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(len(self.text), 12), len(self.text))


def duration(seconds: float) -> str:
    """A time as a person says it.

    >>> duration(0.0004), duration(3.2), duration(90), duration(7300)
    ('0.4 ms', '3.2 s', '90 s', '2 h')
    """
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.2g} h"


def short(text: str) -> str:
    """Paths below the current folder without it."""
    return text.replace(os.path.join(os.getcwd(), ""), "")
