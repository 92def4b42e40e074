"""The files that `lifetimes leaks` writes."""

from __future__ import annotations

from pathlib import Path

from lifetimes.cli.failing import InputError
from lifetimes.leaks import Report
from lifetimes.leaks.chrome import save_chrome
from lifetimes.leaks.document import save as save_json
from lifetimes.leaks.page import save_html

__all__ = ["check_path", "save"]


def check_path(path: str) -> None:
    """Errors: `InputError` for a file that could not be written; better now than after an hour."""
    folder = Path(path).resolve().parent
    if not folder.is_dir():
        raise InputError(f"{path!r} cannot be written: there is no folder {str(folder)!r}")
    if Path(path).is_dir():
        raise InputError(f"{path!r} cannot be written: it is a folder")


def save(report: Report, *, html: str | None, json: str | None, trace: str | None) -> None:
    """Write those that are wanted."""
    if html is not None:
        save_html(report, html)
    if json is not None:
        save_json(report, json)
    if trace is not None and report.recording is not None:
        save_chrome(report.recording, trace)
