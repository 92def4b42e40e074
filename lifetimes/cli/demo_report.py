"""What the demo did and found, for people."""

from __future__ import annotations

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from lifetimes.cli.console import Output
from lifetimes.cli.demo_leak import Leak
from lifetimes.cli.demo_outcome import Outcome
from lifetimes.cli.demo_work import MOST_PASSES, SETTLED
from lifetimes.sizes import format_bytes

__all__ = ["print_report"]


def print_report(outcome: Outcome) -> None:
    """Print it to stdout."""
    console = Output()
    options = outcome.options
    console.print(Text.assemble(("lifetimes demo", "bold"), f" on {options['backend']}, table {options['table']}, policy "
                                f"{options['policy']}, limit {format_bytes(outcome.plan.limit)}"))  # fmt: skip
    console.print()
    console.print(work_table(outcome))
    console.print()
    console.print(error_table(outcome))
    for line in remarks(outcome):
        console.print(Text(line, "dim"))
    console.print()
    for leak in outcome.leaks:
        console.print(leak_panel(leak))
    console.print(last_line(outcome))


def work_table(outcome: Outcome) -> Table:
    """The data, what was done to them, and what that meant for the memory."""
    cut, done = outcome.plan, outcome.statistics
    assert done is not None, "printed after the work"
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    row = table.add_row
    row("data", Text(f"{cut.rows:,} x {cut.columns:,} float64 ({outcome.source})"))
    row("", f"{format_bytes(cut.data_bytes)} in {count(len(cut.starts), 'chunk')} of {format_bytes(cut.chunk_bytes)}: "
        f"{cut.data_bytes / cut.limit:.3g} times the limit")  # fmt: skip
    kinds = ", ".join(f"{number} {kind}" for kind, number in outcome.passes.items())
    row("passes", f"{sum(outcome.passes.values())} over the data: {kinds}")
    row("functions", Text(f"not compiled: {outcome.why_not_compiled}" if outcome.why_not_compiled else
                          "compiled by lifetimes.jit"))  # fmt: skip
    row("evictions", f"{done.evictions:,} ({format_bytes(done.evicted_bytes)} made room)")
    row("copy-backs", f"{done.copybacks:,} ({format_bytes(done.copyback_bytes)}: what had been changed)")
    row("uploads", f"{done.uploads:,} ({format_bytes(done.upload_bytes)})")
    row("uses", f"{done.hits:,} found their array on the device, {done.misses:,} did not")
    row("look-ups", f"{done.lookup_ns:.0f} ns each, {outcome.lookup_share:.2%} of the time")
    peak = f"{format_bytes(done.peak_bytes)} of {format_bytes(cut.limit)}, "
    share = f"{done.peak_bytes / cut.limit:.1%}: "
    row("peak on device", Text.assemble(peak, share, ("never above the limit", "green") if outcome.within_limit
                                        else ("ABOVE THE LIMIT", "bold red")))  # fmt: skip
    moved, seconds = done.upload_bytes + done.copyback_bytes, outcome.seconds.get("work", 0.0)
    row("time", f"{seconds:.1f} s, with {format_bytes(moved)} moved ({format_bytes(moved / max(seconds, 1e-9))}/s); "
        f"{sum(outcome.seconds.values()):.1f} s with loading and checking")  # fmt: skip
    if outcome.results is not None:
        row("eigenvalues", ", ".join(f"{value:.6g}" for value in outcome.results.eigenvalues))
    return table


def error_table(outcome: Outcome) -> Table:
    """Each result against NumPy's."""
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("against NumPy", no_wrap=True, min_width=32)
    for heading in ("relative error", "may be"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for error in outcome.errors:
        if error.tolerance is None:
            verdict = Text("not judged", "yellow")
        else:
            verdict = Text("ok", "green") if error.good else Text("TOO LARGE", "bold red")
        allowed = "" if error.tolerance is None else "0" if not error.tolerance else f"{error.tolerance:.1e}"
        table.add_row(error.what, f"{error.error:.1e}" if error.error else "0", allowed, verdict)
    return table


def remarks(outcome: Outcome) -> list[str]:
    """What needs a word."""
    said = []
    if outcome.statistics is not None and not outcome.statistics.evictions:
        said.append("Nothing was evicted: all of it fits into the limit. A smaller --limit makes the arrays move.")
    residuals = [] if outcome.results is None else outcome.results.residuals
    stopped = [str(number) for number, residual in enumerate(residuals, 1) if not residual <= SETTLED]
    if stopped:
        said.append(
            f"Stopped after {MOST_PASSES} passes before it had settled: eigenvector {', '.join(stopped)}. Eigenvalues of these "
            "data lie too close together for power iteration; the middle column says how far off that may be."
        )
    return said


def leak_panel(leak: Leak) -> Panel:
    """The leaked thing and the line that made it."""
    thing = leak.thing
    called = f" {thing.label!r}" if thing.label else ""
    lines = [Text.assemble((f"{thing.kind} #{thing.key}{called}", "bold"), f", {format_bytes(thing.nbytes)}, still alive after "
                           "the call that made it")]  # fmt: skip
    if leak.file:
        lines.append(Text(f"made in {leak.function}, line {leak.line} of"))
        lines.append(Text(leak.file, overflow="fold"))
        for number, source in leak.source:
            here = number == leak.line
            lines.append(Text(f"{'>' if here else ' '} {number:4}  {source}", "bold red" if here else "dim", no_wrap=True,
                              overflow="ellipsis"))  # fmt: skip
    else:
        lines.append(Text("where it was made is not known"))
    return Panel(Group(*lines), title="a leak, found", title_align="left", border_style="red")


def last_line(outcome: Outcome) -> Text:
    """How it ended."""
    if outcome.left:
        kinds = ", ".join(f"{thing.kind} #{thing.key}" for thing in outcome.left[:5])
        return Text(f"The device is closed, but {len(outcome.left)} still live: {kinds}", "bold red")
    if len(outcome.leaks) != 1 or not outcome.mended:
        return Text(f"One leak was planted; {len(outcome.leaks)} were found, and mending it did not help.", "bold red")
    if not outcome.good:
        return Text("Something is not as it should be: see above.", "bold red")
    live = "is empty" if not outcome.alive else f"has the {outcome.alive} that it had before"
    return Text(f"The leak is mended, the device is closed, and lifetimes.live() {live}: nothing is left.", "green")


def count(number: int, what: str) -> str:
    """``1 chunk``, ``2 chunks``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
