"""A recording as a trace for Perfetto and chrome://tracing: a bar for each life, and counters of the bytes alive.

The format is the Trace Event Format's JSON object form: ``b`` and ``e`` begin and end an asynchronous bar, ``C`` is a counter,
``M`` names a process or thread; times are in microseconds.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from lifetimes.leaks.recording import Recording

__all__ = ["as_chrome", "save_chrome"]


def as_chrome(recording: Recording, *, process: int | None = None, by: str = "kind") -> dict[str, Any]:
    """The trace, ready for `json.dumps`.  ``by`` names what the counters are split by.

    What is still alive at the end has a bar that does not end.  Complexity: O(events x groups).

    >>> from lifetimes import Lifetime
    >>> from lifetimes.leaks import History
    >>> with History() as history:
    ...     x = Lifetime("handle", kind="buffer", nbytes=64)
    ...     del x
    >>> [event["ph"] for event in as_chrome(history.recording())["traceEvents"]][-4:]
    ['b', 'C', 'e', 'C']
    """
    pid = os.getpid() if process is None else process
    names = dict.fromkeys(site.thread or "unknown" for site in recording.sites)
    threads = {name: number for number, name in enumerate(names, 1)}
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": pid, "args": {"name": "lifetimes"}}]
    for name, number in threads.items():
        events.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": number, "args": {"name": name}})
    series = recording.series(by)
    for at, (seconds, event) in enumerate(zip(recording.times, recording.events, strict=True)):
        thing = event if event >= 0 else ~event
        site = recording.sites[recording.site_of[thing]]
        key = recording.keys[thing]
        bar: dict[str, Any] = {
            "ph": "b" if event >= 0 else "e",
            "cat": site.kind,
            "name": site.label or site.kind,
            "id": key,
            "ts": round(seconds * 1e6, 3),
            "pid": pid,
            "tid": threads[site.thread or "unknown"],
        }
        if event >= 0:
            bar["args"] = {
                "key": key,
                "nbytes": site.nbytes,
                "device": site.device,
                "scope": site.scope,
                "stack": list(site.stack),
            }
        events.append(bar)
        values = {name or "none": column[at] for name, column in series.items()}
        events.append({"ph": "C", "name": "bytes", "pid": pid, "ts": bar["ts"], "args": values})
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def save_chrome(recording: Recording, path: str | os.PathLike[str]) -> None:
    """Write the trace to a file, for ``ui.perfetto.dev`` or ``chrome://tracing``."""
    Path(path).write_text(json.dumps(as_chrome(recording), separators=(",", ":")) + "\n", encoding="utf-8")
