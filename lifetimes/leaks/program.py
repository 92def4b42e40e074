"""Running somebody's program in this process, and judging what it leaves.

Note [What is a leak].  A program has ended: its functions and threads have returned, its exit handlers have run.  What
is alive now and was not before is held by something that outlives calls.  Top-level variables of the program that name
an object (``queue = CommandQueue(context)``, ``model = Model()``) are how scripts keep what they need to the end, so what
goes when those go is listed, not counted.  The rest is counted: what is in lists and dicts, caches, closures,
generators, thread-locals, tracebacks, classes and other modules, whose growth is the usual leak; and work in flight,
pins and exports that nobody has ended.
"""

from __future__ import annotations

import builtins
import gc
import importlib.util
import os
import sys
import threading
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import BuiltinFunctionType, CodeType, FunctionType, GeneratorType, MethodType, ModuleType, TracebackType
from typing import Any, Final

from lifetimes.leaks.exit_handlers import exit_handlers
from lifetimes.leaks.history import History
from lifetimes.leaks.ledger import LiveThing, live
from lifetimes.leaks.paths import HIDDEN
from lifetimes.leaks.reasons import Reason, explain, stand_ins
from lifetimes.leaks.reports import EXPLAINED, Report, worth_explaining
from lifetimes.leaks.settling import finish_pending
from lifetimes.leaks.snapshots import of_rows
from lifetimes.leaks.tracking import Tracker
from lifetimes.lifetime import Lifetime
from lifetimes.origins import end_at
from lifetimes.reaper import drain

__all__ = ["Ended", "judge", "module_code", "run", "script_code"]

PATIENCE: Final = 2.0
"""Seconds that work in flight may still take when the program has ended."""
INTERRUPTED: Final = 130
"""The status of a program that Ctrl-C has ended, as shells have it."""
_KEEPERS: Final = (
    list, dict, set, frozenset, tuple, deque, FunctionType, BuiltinFunctionType, MethodType, GeneratorType, ModuleType, type,
    BaseException, TracebackType, threading.local,
)  # fmt: skip
"""What a top-level variable may name that is no object of the program's own: Note [What is a leak]."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended: its exit status, and its top-level variables."""

    status: int
    namespace: dict[str, Any]


def script_code(path: str) -> tuple[CodeType, dict[str, Any], str]:
    """The code of a script, what ``__main__`` has before it runs, and its folder.  Errors: `OSError`, `SyntaxError`."""
    with open(path, "rb") as file:
        code = compile(file.read(), os.path.abspath(path), "exec", dont_inherit=True)
    return code, {"__file__": path, "__package__": None, "__spec__": None}, os.path.dirname(os.path.abspath(path))


def module_code(name: str) -> tuple[CodeType, dict[str, Any], str]:
    """The same for ``-m name``.  Errors: `ImportError` for what is no module that can be run."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    get_code = getattr(None if spec is None else spec.loader, "get_code", None)
    code = None if spec is None or get_code is None else get_code(spec.name)
    if spec is None or code is None:
        raise ImportError(f"there is no module {name!r} that can be run")
    return code, {"__file__": spec.origin, "__package__": spec.parent, "__spec__": spec}, os.getcwd()


def run(code: CodeType, about: dict[str, Any], folder: str, argv: Sequence[str]) -> Ended:
    """Run a program as ``__main__``, up to the end of its threads and its exit handlers.

    What it raises is told as Python tells it, and makes the status 1, and 130 if it is `KeyboardInterrupt`.
    """
    module = ModuleType("__main__")
    module.__dict__.update(about, __builtins__=builtins)
    others = set(threading.enumerate())
    before = sys.argv, sys.path[:], sys.modules["__main__"]
    sys.argv, sys.modules["__main__"] = list(argv), module
    sys.path.insert(0, folder)
    status = 0
    with ExitStack() as end:
        end.callback(_put_back, *before)
        end.enter_context(exit_handlers())
        try:
            exec(code, module.__dict__)
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
            if isinstance(stop.code, str):
                print(stop.code, file=sys.stderr)
        except (Exception, KeyboardInterrupt) as error:
            status = INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
            _tell(error)
        for thread in threading.enumerate():
            if thread not in others and not thread.daemon:
                thread.join()
    return Ended(status, module.__dict__)


def _tell(error: BaseException) -> None:
    """As Python tells it.  A function of its own: kept in `run`, the traceback would be a cycle with what it holds."""
    raised = error.__traceback__
    own = None if raised is None else raised.tb_next  # from the program's first call on
    sys.excepthook(type(error), error.with_traceback(own), own)


def _put_back(argv: list[str], path: list[str], main: ModuleType) -> None:
    sys.argv, sys.path[:], sys.modules["__main__"] = argv, path, main


end_at(run.__code__)


def judge(
    ended: Ended,
    before: Collection[int],
    *,
    trackers: Sequence[Tracker] = (),
    keep: Collection[str] = (),
    strict: bool = False,
    history: History | None = None,
    explained: int = EXPLAINED,
) -> Report:
    """What a program has left.  Note [What is a leak].

    ``before`` has the keys of what was alive when it began.  ``keep`` names further top-level variables that may hold what
    they do; ``strict`` lets none pass.
    """
    recording = None if history is None else history.recording()
    for tracker in trackers:
        tracker.settle()
    drain()
    seen = _rows(before)
    # Cycles only show before they are collected.
    early = explain(worth_explaining(seen, explained))
    gc.collect()
    _settle(trackers)
    rows = _rows(before)
    there = {row.key for row in rows}
    collected = of_rows([row for row in seen if row.key not in there])
    reasons = {key: reason for key, reason in early.items() if reason.reason == "cycle"}
    reasons |= _in_program(explain(worth_explaining(rows, explained)))
    variables = [] if strict else _passing(ended.namespace, keep)
    named = _named_by(ended.namespace, variables)
    for name in variables:
        ended.namespace.pop(name, None)
    gc.collect()
    _settle(trackers, 0.0)
    left = _rows(before)
    late = _in_program(explain(worth_explaining(left, explained)))
    leaked = frozenset(row.key for row in left) - _consequences(left, late) - named
    return Report(
        snapshot=of_rows(rows),
        reasons=reasons | late,
        recording=recording,
        title="alive at the end, not counted as leaks" if leaked else "alive at the end, none of it leaked",
        leaked=leaked,
        collected=collected,
    )


def _rows(before: Collection[int]) -> list[LiveThing]:
    return [row for row in live() if row.key not in before]


def _settle(trackers: Sequence[Tracker], patience: float = PATIENCE) -> None:
    drain()
    for tracker in trackers:
        tracker.sweep()
    finish_pending(patience)


def _passing(namespace: dict[str, Any], keep: Collection[str]) -> list[str]:
    """The top-level variables that may hold what they do."""
    return [
        name
        for name, value in namespace.items()
        if name in keep or not (name.startswith("__") or issubclass(type(value), _KEEPERS))
    ]


def _named_by(namespace: dict[str, Any], variables: Sequence[str]) -> frozenset[int]:
    """The keys of the things that these variables name, whoever else refers to them."""
    objects = {id(get()): key for key, get in list(stand_ins.items())}
    found = set()
    for name in variables:
        value = namespace.get(name)
        handle = value if isinstance(value, Lifetime) else getattr(value, "__dict__", {}).get(HIDDEN)
        if isinstance(handle, Lifetime):
            found.add(handle.key)
        elif id(value) in objects:
            found.add(objects[id(value)])
    return frozenset(found)


def _in_program(reasons: dict[int, Reason]) -> dict[int, Reason]:
    """The program's variables by their names alone."""
    return {key: replace(reason, held_by=reason.held_by.replace("__main__.", "")) for key, reason in reasons.items()}


def _consequences(rows: Sequence[LiveThing], reasons: dict[int, Reason]) -> frozenset[int]:
    """What would go with something else that has leaked: parents of it, and what its handle refers to."""
    keys = {row.key for row in rows}
    return frozenset(key for key, reason in reasons.items() if reason.reason == "child" or (reason.via or 0) in keys)
