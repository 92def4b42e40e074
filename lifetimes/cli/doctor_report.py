"""What `lifetimes doctor` found, for people."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from lifetimes.cli.console import Output
from lifetimes.cli.doctor_diagnosis import Diagnosis, PartReport
from lifetimes.cli.doctor_examine import BackendReport
from lifetimes.sizes import format_bytes

__all__ = ["print_report"]

STYLES = {"works": "green", "unusable": "yellow", "fails": "red"}


def print_report(diagnosis: Diagnosis) -> None:
    """Print it to stdout."""
    console = Output()
    versions = diagnosis.versions
    console.print(Text(f"lifetimes {versions['lifetimes']}, {versions['python']}, NumPy {versions['numpy']}", "bold"))
    console.print(Text(versions["platform"], "dim"))
    console.print()
    console.print(backend_table(diagnosis.backends))
    for title, parts in (("table", diagnosis.tables), ("policy", diagnosis.policies)):
        console.print()
        console.print(part_table(title, parts))
    for name, extra in diagnosis.extras.items():
        console.print(Text(f"{name} comes with the extra: pip install 'device-lifetimes[{extra}]'", "dim"))
    works = [report.name for report in diagnosis.backends if report.verdict == "works"]
    console.print()
    console.print(
        Text(f"{len(works)} of {len(diagnosis.backends)} back ends work: {', '.join(works) or 'none'}", "bold")
    )


def backend_table(reports: tuple[BackendReport, ...]) -> Table:
    """A row a back end."""
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("back end", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("devices", ratio=1)
    table.add_column("why, and what would help", ratio=1)
    for report in reports:
        devices = []
        for device in report.devices:
            size = "" if device.memory_bytes is None else f", {format_bytes(device.memory_bytes)}"
            version = f", {device.version}" if device.version else ""
            devices.append(f"{device.index}: {device.name}{size}{version}{' (fails)' if device.problem else ''}")
        why = [text for text in (report.reason, report.remedy and f"-> {report.remedy}") if text]
        table.add_row(
            Text(report.name),
            Text(report.verdict, STYLES[report.verdict]),
            Text("\n".join(devices)),
            Text("\n".join(why)),
        )
    return table


def part_table(title: str, parts: tuple[PartReport, ...]) -> Table:
    """A row a table or policy."""
    table = Table(show_edge=False, pad_edge=False)
    table.add_column(title, no_wrap=True, min_width=8)
    table.add_column("verdict", no_wrap=True)
    table.add_column("")
    for part in parts:
        verdict = "works" if part.usable else "unusable"
        table.add_row(Text(part.name), Text(verdict, STYLES[verdict]), Text(part.note or part.reason))
    return table
