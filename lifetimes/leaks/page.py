"""The report as one HTML page that needs nothing else: no network, no library; open it, mail it, keep it."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import Final

from lifetimes.leaks.document import as_json
from lifetimes.leaks.reports import Report

__all__ = ["as_html", "save_html"]

SCRIPTS: Final = ("words", "things", "tiles", "chart", "table", "keys")
"""Parts of one script, in this order."""


def as_html(report: Report) -> str:
    """The page.  It holds the same JSON as `as_json`, and a script of a few hundred lines that shows it.

    >>> from lifetimes.leaks import collect
    >>> page = as_html(collect(explained=0))
    >>> page.startswith("<!doctype html>"), "http" in page.replace("http-equiv", "")
    (True, False)
    """
    folder = files(__package__) / "page_files"
    page, style = ((folder / f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css"))
    script = "\n".join((folder / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    # In a script element nothing is special but "<": "</script>" would end it.
    document = as_json(report).replace("<", "\\u003c")
    for place, content in (("/*STYLE*/", style), ("/*SCRIPT*/", script), ("/*DOCUMENT*/", document)):
        before, _, after = page.partition(place)
        page = before + content + after
    return page


def save_html(report: Report, path: str | os.PathLike[str]) -> None:
    """Write the page to a file."""
    Path(path).write_text(as_html(report), encoding="utf-8")
