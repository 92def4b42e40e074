"""What replays came to, for people: a table to compare, and the progress on the way."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from lifetimes.cli.console import Output
from lifetimes.replay.play import Played
from lifetimes.replay.trace import Trace
from lifetimes.sizes import format_bytes

__all__ = ["ReplayProgress", "print_report"]

FOLDED: Final = 8
"""Columns that a name may be folded into."""


class ReplayProgress:
    """A bar on stderr for what is being done now, and nothing where nobody watches.

    >>> with ReplayProgress(quiet=True) as progress:
    ...     progress.of("read")(1, 2)
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=Console(file=sys.stderr),
            transient=True,
            disable=quiet or not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task("", total=None)

    def of(self, what: str) -> Callable[[int, int], None]:
        """Begin something; the result is told how much of how much is done."""
        self._progress.reset(self._task, description=what, total=1)

        def step(done: int, total: int) -> None:
            self._progress.update(self._task, completed=done, total=total)

        return step

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()


def print_report(trace: Trace, runs: list[Played], *, plot: str | None) -> None:
    """Print it to stdout."""
    console = Output()
    console.print(Text(describe(trace)))
    console.print()
    print_whole(console, comparison(trace, runs))
    for line in remarks(trace, runs, plot):
        console.print(line)


def print_whole(console: Console, table: Table) -> None:
    """Print a table with every figure whole: names fold, and if that is not enough the lines are longer than the terminal."""
    folding = [column for column in table.columns if not column.no_wrap]
    for column in folding:
        column.max_width = FOLDED
    least = Measurement.get(console, console.options.update(width=1000), table).maximum
    for column in folding:
        column.max_width = None
    width = console.width
    console.width = max(width, least)
    console.print(table)
    console.width = width


def describe(trace: Trace) -> str:
    """The trace in a line.

    >>> describe(Trace("t.csv", keys=[1, 2, 1], sizes=[64, 64, 32], changes=1))
    't.csv: 3 uses of 2 keys, 128 B if all were held at once, 1 with another size than the use before'
    """
    together = "at most allocated at once" if trace.allocations else "if all were held at once"
    events = f"{len(trace):,} allocations and frees" if trace.allocations else counted(len(trace), "use")
    things = counted(len(set(trace.keys)), "array" if trace.allocations else "key")
    line = f"{trace.name}: {events} of {things}, {format_bytes(trace.footprint())} {together}"
    if trace.changes:
        line += f", {trace.changes:,} with another size than the use before"
    return line


def counted(number: int, what: str) -> str:
    """A number of things in words.

    >>> counted(1, "use"), counted(2000, "use")
    ('1 use', '2,000 uses')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def comparison(trace: Trace, runs: list[Played]) -> Table:
    """A row for each replay."""
    table = Table(box=None, padding=(0, 1), collapse_padding=True, pad_edge=False, header_style="bold")
    table.add_column("\nlimit", no_wrap=True)
    for name in ("table", "policy"):  # of a name in the user's own package something may have to give
        table.add_column(f"\n{name}", overflow="fold", min_width=len(name))
    each_step = "step" if trace.allocations else "use"
    names = ["\nhits", "\nmisses", "miss\nratio"] if not trace.allocations else []
    names += ["evic-\ntions", "bytes\nup", "bytes\nback", f"time a\n{each_step}", "look-\nup"]
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    last = None
    best = {each.limit: min(other.misses for other in runs if other.limit == each.limit) for each in runs}
    for each in runs:
        if last not in (None, each.limit):
            table.add_row()
        last = each.limit
        cells: list[str | Text] = [format_bytes(each.limit), each.table, each.policy]
        if not trace.allocations:
            style = "bold" if each.misses == best[each.limit] and len(runs) > 1 else ""
            cells += [f"{each.hits:,}", Text(f"{each.misses:,}", style), Text(f"{each.miss_ratio:.3f}", style)]
        cells += [f"{each.evictions:,}", format_bytes(each.upload_bytes), format_bytes(each.copyback_bytes)]
        cells += [f"{each.seconds_per_use * 1e6:.2f} us", f"{each.lookup_share:.1%}"]
        table.add_row(*cells)
    return table


def remarks(trace: Trace, runs: list[Played], plot: str | None) -> list[Text]:
    """What else there is to know."""
    lines = []
    wrong, checked = sum(each.wrong for each in runs), sum(each.checked for each in runs)
    if wrong:
        lines.append(
            Text(f"{wrong:,} of {checked:,} arrays did NOT hold what they should; please report this", "bold red")
        )
    elif checked:
        compared = f"{counted(checked, 'array')} compared, each holds what it should"
        lines.append(Text(f"content: {compared}", "green"))
    if runs[0].replaced:
        lines.append(
            Text(
                f"keys found with another size than before: {runs[0].replaced:,}; a new array took the place of the old one"
            )
        )
    too_large = max(each.too_large for each in runs)
    if too_large:
        lines.append(Text(f"passed over: {counted(too_large, 'step')} of arrays larger than the smallest limit"))
    if trace.bad_lines:
        lines.append(Text(f"passed over: {counted(trace.bad_lines, 'malformed line')}"))
    if trace.failures:
        lines.append(
            Text(f"passed over: {counted(trace.failures, 'allocation')} that failed when the trace was recorded")
        )
    if plot is not None:
        lines.append(Text(f"miss-ratio curves: {plot}"))
    return lines
