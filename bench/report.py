"""What is shown and what is kept: the table, and the JSON file of a run."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.row import ERROR, MET, MISSED, REPORTED, SKIPPED, Row

__all__ = ["SCHEMA", "describe_machine", "document", "save", "show", "versions"]

SCHEMA: Final = 1
"""Raised when a reader of the files would have to change."""
WIDTH: Final = 120
"""Columns where the output is no terminal."""
COLOURS: Final = {MET: "green", MISSED: "bold red", ERROR: "bold red", SKIPPED: "yellow", REPORTED: "dim"}
DISTRIBUTIONS: Final = (
    "device-lifetimes", "numpy", "sortedcontainers", "judy", "BTrees",
    "pytest", "pytest-benchmark", "zict", "cachetools", "pyopencl", "pocl-binary-distribution",
)  # fmt: skip


def describe_machine() -> dict[str, Any]:
    """What a figure depends on.  No name of the machine: the files may be passed on."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def versions() -> dict[str, str]:
    """Of ours and the peers, as far as they are installed."""
    found = {}
    for name in DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return found


def document(rows: Sequence[Row], now: datetime) -> dict[str, Any]:
    """The JSON file of a run."""
    return {
        "schema": SCHEMA,
        "date": now.isoformat(timespec="seconds"),
        "machine": describe_machine(),
        "busy": any(row.busy for row in rows),
        "versions": versions(),
        "rows": [row.as_dict() for row in rows],
    }


def save(rows: Sequence[Row], folder: Path) -> Path:
    """Write the run to a file of its own, named by the time (UTC).  Returns its path."""
    now = datetime.now(UTC)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{now:%Y-%m-%dT%H-%M-%S.%f}.json"
    path.write_text(json.dumps(document(rows, now), indent=1) + "\n")
    return path


def show(rows: Sequence[Row], console: Console | None = None) -> None:
    """Print the table."""
    console = console or Console()
    if not console.is_terminal:
        console = Console(file=console.file, width=max(console.width, WIDTH))
    table = Table(title="ours against the peer, medians", title_justify="left", caption_justify="left", pad_edge=False)
    table.add_column("row", ratio=1)
    for name in ("ours", "peer", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("peer is", "bar", "verdict"):
        table.add_column(name)
    last = ""
    for row in rows:
        if last and row.file != last:
            table.add_section()
        last = row.file
        table.add_row(*_cells(row))
    busy = sum(row.busy for row in rows)
    if busy:
        table.caption = (
            f"the machine was busy during {busy} of {len(rows)} rows (marked *): trust the ratios, not the times"
        )
    console.print(table)


def _cells(row: Row) -> list[Text]:
    verdict = Text(row.verdict, style=COLOURS[row.verdict])
    if row.reason:
        verdict.append(f": {row.reason}", style="default")
    if row.busy:
        verdict.append(" *")
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
    label = "" if row.peer is None else row.peer.label
    figures = [Text(row.show(row.ours)), Text(row.show(row.peer)), Text(ratio)]
    return [Text(row.title), *figures, Text(label, style="dim"), Text(row.bars), verdict]


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name.strip() == "model name":
                    return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
