"""Reports that the environment asks for: at exit, or on a signal, of a program that is not changed.

========================  ========================================================================================
variable                  what it does
========================  ========================================================================================
LIFETIMES_STACKS          ``line`` or ``full`` (``full:16`` bounds the calls): what is recorded from the first moment on
LIFETIMES_REPORT          where a report at exit goes: ``stderr``, or a file whose ending says what it is
                          (``.txt``, ``.json``, ``.html``; ``.trace.json`` for Perfetto); ``{pid}`` in it is the process
LIFETIMES_REPORT_SIGNAL   a signal, ``USR1`` for instance, that makes a report at once; to LIFETIMES_REPORT, else stderr
LIFETIMES_HISTORY         ``1`` records bytes over time for these reports; a number above that bounds the events
========================  ========================================================================================

They are read once, when lifetimes is imported.  What cannot be obeyed is one line on stderr: asking for a report must not
end a program.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final, cast

from lifetimes.leaks.history import LIMIT, History
from lifetimes.origins import DEPTH, Level, record_at_least

__all__ = ["VARIABLES", "obey", "write_report"]

VARIABLES: Final = ("LIFETIMES_STACKS", "LIFETIMES_REPORT", "LIFETIMES_REPORT_SIGNAL", "LIFETIMES_HISTORY")


def obey(environment: Mapping[str, str] = os.environ) -> None:
    """Do what the variables say.  Costs four look-ups when they say nothing."""
    stacks, where, on_signal, history = [environment.get(name, "") for name in VARIABLES]
    if not (stacks or where or on_signal or history):
        return
    if where not in ("", "stderr"):
        where = os.path.abspath(where)  # the program may change the folder
    recorded: list[History] = []
    _attempt("LIFETIMES_STACKS", lambda: _record_stacks(stacks))
    _attempt("LIFETIMES_HISTORY", lambda: _record_history(history, recorded))
    if where:
        atexit.register(_report, where, "alive at exit", recorded)
    if on_signal:
        _attempt("LIFETIMES_REPORT_SIGNAL", lambda: _listen_to(on_signal, where or "stderr", recorded))


def write_report(where: str, title: str, history: History | None = None) -> None:
    """Write a report of what is alive to ``stderr`` or a file, in the format that its ending says.

    Errors: `ValueError` for an ending that is not known, `OSError`.
    """
    from lifetimes.leaks.reports import collect
    from lifetimes.leaks.text import as_text, renderable

    save = _format(where)
    report = collect(history=history, title=title)
    if save is None:
        text = as_text(renderable(report))
        if where == "stderr":
            sys.stderr.write(text)
            sys.stderr.flush()
        else:
            Path(_path(where)).write_text(text, encoding="utf-8")
    else:
        save(report, _path(where))


def _format(where: str) -> Callable[[Any, str], None] | None:
    """The function that writes such a file; None for text."""
    from lifetimes.leaks import chrome, document, page
    from lifetimes.leaks.recording import Recording

    if where == "stderr" or where.endswith(".txt"):
        return None
    if where.endswith(".trace.json"):
        return lambda report, path: chrome.save_chrome(report.recording or Recording(), path)
    if where.endswith(".json"):
        return document.save
    if where.endswith((".html", ".htm")):
        return page.save_html
    raise ValueError(
        f"a report goes to 'stderr' or to a file that ends in .txt, .json, .html or .trace.json, not to {where!r}"
    )


def _path(where: str) -> str:
    return where.replace("{pid}", str(os.getpid()))


def _record_stacks(stacks: str) -> None:
    if stacks:
        level, _, depth = stacks.partition(":")
        record_at_least(cast(Level, level), int(depth) if depth else DEPTH)


def _record_history(history: str, recorded: list[History]) -> None:
    if history and history != "0":
        if not history.isdecimal():
            raise ValueError(f"write 1, or a number of events, not {history!r}")
        limit = int(history)
        recorded.append(History(limit if limit > 1 else LIMIT).start())


def _listen_to(name: str, where: str, recorded: list[History]) -> None:
    _format(where)  # a bad name is told now, not when the signal comes
    number = int(name) if name.isdigit() else getattr(signal, f"SIG{name.upper().removeprefix('SIG')}", None)
    if number is None:
        raise ValueError(f"there is no signal {name!r}")
    before = signal.getsignal(number)

    def on_signal(received: int, frame: FrameType | None) -> None:
        _report(where, "alive at a signal", recorded)
        if callable(before):
            before(received, frame)

    try:
        signal.signal(number, on_signal)
    except OSError as error:
        raise ValueError(f"no program can answer the signal {name!r}") from error


def _report(where: str, title: str, recorded: list[History]) -> None:
    _attempt("LIFETIMES_REPORT", lambda: write_report(where, title, recorded[0] if recorded else None))


def _attempt(name: str, act: Callable[[], object]) -> None:
    try:
        act()
    except Exception as error:
        text = traceback.format_exception_only(error)[-1].strip()
        print(f"lifetimes: {name}: {text}", file=sys.stderr)
