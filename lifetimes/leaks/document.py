"""The report as JSON, and back: ``{"schema": "lifetimes.leaks", "version": 1, ...}``.

A reader that meets a higher version refuses it.  Within a version fields are only added.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from lifetimes.leaks.reasons import Reason
from lifetimes.leaks.recording import Recording
from lifetimes.leaks.reports import Report
from lifetimes.leaks.snapshots import Snapshot

__all__ = ["SCHEMA", "VERSION", "as_document", "as_json", "from_document", "load", "save"]

SCHEMA: Final = "lifetimes.leaks"
VERSION: Final = 1


def as_document(report: Report) -> dict[str, Any]:
    """What the JSON holds."""
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "created": report.created,
        "title": report.title,
        "leaked": None if report.leaked is None else sorted(report.leaked),
        "reasons": [asdict(reason) for reason in report.reasons.values()],
        "snapshot": report.snapshot.as_dict(),
        "collected": None if report.collected is None else report.collected.as_dict(),
        "recording": None if report.recording is None else report.recording.as_dict(),
    }


def from_document(content: Any) -> Report:
    """The report again.  Errors: `ValueError` for what is no such document, with what is wrong."""
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise ValueError(f"this is no report: its schema is not {SCHEMA!r}")
    if content.get("version") != VERSION:
        raise ValueError(f"the report has version {content.get('version')!r}; this lifetimes reads version {VERSION}")
    try:
        collected, recording, leaked = content["collected"], content["recording"], content["leaked"]
        return Report(
            snapshot=Snapshot.from_dict(content["snapshot"]),
            reasons={each["key"]: Reason(**each) for each in content["reasons"]},
            recording=None if recording is None else Recording.from_dict(recording),
            title=content["title"],
            leaked=None if leaked is None else frozenset(leaked),
            collected=None if collected is None else Snapshot.from_dict(collected),
            created=content["created"],
        )
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise ValueError(f"the report is damaged: {type(error).__name__}: {error}") from error


def as_json(report: Report) -> str:
    """The document as text.

    >>> from lifetimes.leaks import collect
    >>> again = from_document(json.loads(as_json(collect(explained=0))))
    >>> again.title
    'alive'
    """
    return json.dumps(as_document(report), separators=(",", ":"), allow_nan=False)


def save(report: Report, path: str | os.PathLike[str]) -> None:
    """Write the JSON to a file."""
    Path(path).write_text(as_json(report) + "\n", encoding="utf-8")


def load(path: str | os.PathLike[str]) -> Report:
    """Read it back.  Errors: `OSError`; `ValueError` for a file that is no report, naming it."""
    try:
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"this is no report: it is no JSON ({error})") from error
        return from_document(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
