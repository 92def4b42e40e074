"""Where each live thing was made: when, by which thread, in which scope, at which line or by which stack of calls.

Off by default.  Recording writes one tuple on the new cell, and it goes with the cell; a program that does not want it
pays nothing.

Note [Recording].  The recorders run once for each new lifetime, so every look-up counts: no helper calls, no line
numbers (code and offset are kept, lines are looked up when somebody reads them), and equal stacks are kept once.  They
are found by their offsets alone, which are plain integers, and then compared: hashing a code object walks through its
constants, comparing one with itself is a look at the pointer.
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
from itertools import repeat
from time import perf_counter
from types import CodeType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from lifetimes import instrument

if TYPE_CHECKING:
    from types import FrameType

__all__ = [
    "DEPTH",
    "Origin",
    "end_at",
    "get_stacks",
    "hide",
    "origin_of",
    "raw_of",
    "record_at_least",
    "recorded",
    "scope",
    "set_stacks",
    "site",
    "sites",
    "unhide",
]

Level: TypeAlias = Literal["off", "line", "full"]
Stack: TypeAlias = "tuple[CodeType | int, ...]"
"""Code and offset of the last instruction in it, in turn, innermost first.  Lines are looked up when they are read."""

LEVELS: Final[tuple[Level, ...]] = ("off", "line", "full")
DEPTH: Final = 64
"""The most calls that are remembered of a stack, unless `set_stacks` is told otherwise."""

_INSIDE: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep
_USERS: Final = _INSIDE + "cli" + os.sep
"""Commands are written the way a user writes, so what they make was made there."""
_scope: ContextVar[str] = ContextVar("lifetimes.scope", default="")
_level: Level = "off"
_depth: int = DEPTH
_least: tuple[Level, int] = ("off", DEPTH)
_limit: int = DEPTH  # the one of the two that counts
_shared: dict[object, tuple[list[CodeType], Stack]] = {}
_hidden: list[str] = []
_ends: list[CodeType] = []
_lines: dict[tuple[int, int], tuple[CodeType, str]] = {}  # holds the codes, so that their ids stay their own


class _Inside(dict[str, bool]):
    """By file name: whether a call from there is passed over.  Filled as files are met."""

    def __missing__(self, name: str) -> bool:
        inside = name.startswith((_INSIDE, *_hidden)) and not name.startswith(_USERS)
        self[name] = inside
        return inside


_inside: Final = _Inside()


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
        found = sites(self.stack[:2])
        return found[0] if found else "unknown"

    @property
    def sites(self) -> tuple[str, ...]:
        """Every recorded call as ``file:line in function``, innermost first."""
        return sites(self.stack)

    def frames(self) -> list[traceback.FrameSummary]:
        """The recorded calls, outermost first, as `traceback` prints them."""
        return [
            traceback.FrameSummary(code.co_filename, _line(code, offset), code.co_qualname)
            for code, offset in _calls(self.stack)
        ][::-1]


def set_stacks(level: Level, depth: int = DEPTH) -> None:
    """What to record of everything made from now on: ``"off"``, ``"line"`` (the line outside this library), ``"full"``.

    ``depth`` bounds the calls that ``"full"`` remembers, innermost first.
    Errors: `ValueError` for another level, or a depth below 1.

    >>> set_stacks("sideways")
    Traceback (most recent call last):
    ValueError: stacks is "off", "line" or "full", not 'sideways'
    """
    global _level, _depth
    _check(level, depth)
    _level, _depth = level, depth
    _choose()


def record_at_least(level: Level, depth: int = DEPTH) -> tuple[Level, int]:
    """Record so much even where `set_stacks` says less: for tools that watch a program which may call it itself.

    Returns what was asked for before, to be given back in the end.  Errors: those of `set_stacks`.

    >>> before = record_at_least("line")
    >>> set_stacks("off")
    >>> get_stacks(), recorded()
    ('off', 'line')
    >>> _ = record_at_least(*before)
    """
    global _least
    _check(level, depth)
    before, _least = _least, (level, depth)
    _choose()
    return before


def recorded() -> Level:
    """The level at which things are recorded: the higher one of `set_stacks` and `record_at_least`."""
    return max(_level, _least[0], key=LEVELS.index)


def _check(level: str, depth: int) -> None:
    if level not in LEVELS:
        raise ValueError(f'stacks is "off", "line" or "full", not {level!r}')
    if depth < 1:
        raise ValueError(f"depth is a number of calls from 1 on, not {depth!r}")


def _choose() -> None:
    global _limit
    recorders = {"line": _record_line, "full": _record_stack}
    for recorder in recorders.values():
        instrument.stop_recording(recorder)
    level = recorded()
    _limit = _depth if _level == "full" else _least[1]
    if level == "off":
        _shared.clear()
        _lines.clear()
    else:
        instrument.record(recorders[level], safe=True)


def get_stacks() -> Level:
    """The level that `set_stacks` set."""
    return _level


def hide(folder: str) -> None:
    """Pass over calls from files below ``folder``, as over those from this library: for libraries that are only on the way.

    The files of generated code have no folder: ``"<generated"`` passes over those whose name begins like that.
    """
    prefix = _prefix(folder)
    if prefix not in _hidden:
        _hidden.append(prefix)
        _inside.clear()


def unhide(folder: str) -> None:
    """The end of `hide`.  Unknown folders are ignored."""
    prefix = _prefix(folder)
    if prefix in _hidden:
        _hidden.remove(prefix)
        _inside.clear()


def end_at(code: CodeType) -> None:
    """Stacks end before a call of this function: for tools that run a program, whose own calls are further out."""
    _ends.append(code)


def _prefix(folder: str) -> str:
    return folder if folder.startswith("<") else os.path.join(os.path.abspath(folder), "")


def raw_of(cell: Any) -> tuple[Any, ...] | None:
    """What was written on the cell: (made, thread, scope, stack) or (made, thread, scope, code, offset); None for nothing."""
    return getattr(cell, "origin", None)


def origin_of(cell: Any) -> Origin | None:
    """Where a cell was made, or None if that was not recorded."""
    recorded = raw_of(cell)
    if recorded is None:
        return None
    made, thread, where, *stack = recorded
    return Origin(made, thread, where, tuple(stack) if len(stack) == 2 else stack[0])


@contextmanager
def scope(name: str) -> Iterator[None]:
    """``with scope("epoch"):`` names the stretch of the program in which things are made; scopes nest.

    Seen by reports when stacks are recorded.  Each thread and task has its own.

    >>> from lifetimes import Lifetime, live
    >>> set_stacks("line")
    >>> with scope("epoch"), scope("step"):
    ...     x = Lifetime("handle", kind="buffer")
    >>> [thing.scope for thing in live(scope="epoch")]
    ['epoch/step']
    >>> set_stacks("off")
    """
    outer = _scope.get()
    token = _scope.set(f"{outer}/{name}" if outer else name)
    try:
        yield
    finally:
        _scope.reset(token)


def sites(stack: Stack) -> tuple[str, ...]:
    """The calls of a stack as ``file:line in function``, innermost first."""
    return tuple([site(code, offset) for code, offset in _calls(stack)])


def _calls(stack: Stack) -> Iterator[tuple[CodeType, int]]:
    for code, offset in zip(stack[::2], stack[1::2], strict=True):
        if any(code is end for end in _ends):
            return
        yield code, offset  # type: ignore[misc]  # in turn


def site(code: CodeType, offset: int) -> str:
    """``file:line in function``."""
    key = id(code), offset
    known = _lines.get(key)
    if known is None:
        _lines[key] = known = code, f"{code.co_filename}:{_line(code, offset)} in {code.co_qualname}"
    return known[1]


def _record_line(cell: Any) -> None:  # Note [Recording]
    try:
        frame = sys._getframe(2)  # the caller of a constructor, or the constructor if others watch too
    except ValueError:  # nobody called it: a thread begins with it
        frame = sys._getframe(1)
    code = frame.f_code
    while _inside[code.co_filename]:
        back = frame.f_back
        if back is None:
            break
        frame = back
        code = frame.f_code
    cell.origin = perf_counter(), get_ident(), _scope.get(), code, frame.f_lasti


def _record_stack(cell: Any) -> None:  # Note [Recording]
    frame: FrameType | None
    try:
        frame = sys._getframe(2)
    except ValueError:
        frame = sys._getframe(1)
    while _inside[frame.f_code.co_filename]:
        if frame.f_back is None:
            break
        frame = frame.f_back
    codes: list[CodeType] = []
    offsets: list[int] = []
    for _ in repeat(None, _limit):
        codes.append(frame.f_code)
        offsets.append(frame.f_lasti)
        frame = frame.f_back
        if frame is None:
            break
    found = _shared.get(tuple(offsets))
    if found is None or found[0][0] is not codes[0] or found[0] != codes:
        found = _share(codes, offsets)
    cell.origin = perf_counter(), get_ident(), _scope.get(), found[1]


def _share(codes: list[CodeType], offsets: list[int]) -> tuple[list[CodeType], Stack]:
    """A stack that is met for the first time, or one whose offsets are those of another."""
    key: object = tuple(offsets)
    if key in _shared:
        key = (key, tuple(map(id, codes)))  # theirs for as long as the value holds them
    stack: Stack = tuple([each for pair in zip(codes, offsets, strict=True) for each in pair])
    return _shared.setdefault(key, (codes, stack))


def _line(code: CodeType, offset: int) -> int:
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= offset < end and number is not None:
            line = number
    return line
