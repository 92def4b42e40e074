"""Where each live thing was made: when, by which thread, in which scope, at which line or by which stack of calls.

Off by default.  Recording writes one tuple on the new cell, and it goes with the cell; a program that does not want it
pays nothing.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from _thread import get_ident
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from lifetimes import instrument

if TYPE_CHECKING:
    from types import CodeType, FrameType

__all__ = ["Origin", "get_stacks", "origin_of", "scope", "set_stacks"]

Level: TypeAlias = Literal["off", "line", "full"]
Stack: TypeAlias = "tuple[CodeType | int, ...]"
"""Code and offset of the last instruction in it, in turn, innermost first.  Lines are looked up when they are read."""

DEPTH: Final = 64
"""The most calls that are remembered of a stack."""

_INSIDE: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep
_USERS: Final = _INSIDE + "cli" + os.sep
"""Commands are written the way a user writes, so what they make was made there."""
_scope: ContextVar[str] = ContextVar("lifetimes.scope", default="")
_level: Level = "off"
# Stacks are shared: most things are made at few places.  The key has the codes' ids, which are their own while the
# value holds the codes.
_shared: dict[tuple[int, ...], Stack] = {}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a thing was made.  ``made`` is a `time.perf_counter` reading; ``scope`` the names of open scopes, joined by /."""

    made: float
    thread: int
    scope: str
    stack: Stack

    @property
    def age(self) -> float:
        """Seconds since it was made."""
        return time.perf_counter() - self.made

    @property
    def thread_name(self) -> str:
        """The name of the thread, or its number if it has ended."""
        for thread in threading.enumerate():
            if thread.ident == self.thread:
                return thread.name
        return f"thread {self.thread}"

    @property
    def line(self) -> str:
        """``file:line in function`` of the innermost call outside of this library."""
        frames = self.frames()
        return f"{frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else "unknown"

    def frames(self) -> list[traceback.FrameSummary]:
        """The recorded calls, outermost first, as `traceback` prints them."""
        pairs = zip(self.stack[::2], self.stack[1::2], strict=True)
        return [_summary(code, offset) for code, offset in pairs][::-1]  # type: ignore[arg-type]  # in turn


def set_stacks(level: Level) -> None:
    """What to record of everything made from now on: ``"off"``, ``"line"`` (the line outside this library), ``"full"``.

    >>> set_stacks("sideways")
    Traceback (most recent call last):
    ValueError: stacks is "off", "line" or "full", not 'sideways'
    """
    global _level
    recorders = {"line": _record_line, "full": _record_stack}
    if level != "off" and level not in recorders:
        raise ValueError(f'stacks is "off", "line" or "full", not {level!r}')
    for recorder in recorders.values():
        instrument.stop_recording(recorder)
    if level == "off":
        _shared.clear()
    else:
        instrument.record(recorders[level])
    _level = level


def get_stacks() -> Level:
    """The level that `set_stacks` set."""
    return _level


def origin_of(cell: Any) -> Origin | None:
    """Where a cell was made, or None if that was not recorded."""
    recorded = getattr(cell, "origin", None)
    return None if recorded is None else Origin(*recorded)


@contextmanager
def scope(name: str) -> Iterator[None]:
    """``with scope("epoch"):`` names the stretch of the program in which things are made; scopes nest.

    Seen by reports when stacks are recorded.  Each thread and task has its own.
    """
    outer = _scope.get()
    token = _scope.set(f"{outer}/{name}" if outer else name)
    try:
        yield
    finally:
        _scope.reset(token)


def _record_line(cell: Any) -> None:
    frame = _caller()
    cell.origin = (time.perf_counter(), get_ident(), _scope.get(), (frame.f_code, frame.f_lasti))


def _record_stack(cell: Any) -> None:
    frame: FrameType | None = _caller()
    stack: list[Any] = []
    key: list[int] = []
    while frame is not None and len(key) < 2 * DEPTH:
        code, offset = frame.f_code, frame.f_lasti
        stack += (code, offset)
        key += (id(code), offset)
        frame = frame.f_back
    shared = _shared.setdefault(tuple(key), tuple(stack))
    cell.origin = (time.perf_counter(), get_ident(), _scope.get(), shared)


def _caller() -> FrameType:
    """The innermost frame outside of this library, of those that called a constructor."""
    frame = sys._getframe(4)  # beyond this, the recorder, instrument.created and __init__
    while frame.f_back is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_INSIDE) or name.startswith(_USERS):
            break
        frame = frame.f_back
    return frame


def _summary(code: CodeType, offset: int) -> traceback.FrameSummary:
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= offset < end and number is not None:
            line = number
    return traceback.FrameSummary(code.co_filename, line, code.co_qualname)
