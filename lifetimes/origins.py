"""Where each live thing was made: the line, or the whole stack, remembered while it lives.

Off by default.  Recording listens to the event stream, so a program that does not want it pays nothing.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from lifetimes import instrument

if TYPE_CHECKING:
    from types import CodeType, FrameType

__all__ = ["get_stacks", "origin_of", "set_stacks", "stack_of"]

Level: TypeAlias = Literal["off", "line", "full"]
Site: TypeAlias = "tuple[CodeType, int]"

_INSIDE: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep
_level: Level = "off"
_sites: dict[int, tuple[Site, ...]] = {}  # key of the thing -> its line, or innermost line first


def set_stacks(level: Level) -> None:
    """What to record of everything made from now on: ``"off"``, ``"line"`` (the line outside this library), ``"full"``.

    >>> set_stacks("sideways")
    Traceback (most recent call last):
    ValueError: stacks is "off", "line" or "full", not 'sideways'
    """
    global _level
    if level not in ("off", "line", "full"):
        raise ValueError(f'stacks is "off", "line" or "full", not {level!r}')
    _level = level
    if level == "off":
        instrument.unsubscribe(_listen)
        _sites.clear()
    else:
        instrument.subscribe(_listen)


def get_stacks() -> Level:
    """The level that `set_stacks` set."""
    return _level


def origin_of(key: int) -> str | None:
    """``file:line in function`` of whoever made it, or None when that was not recorded."""
    sites = _sites.get(key)
    if not sites:
        return None
    code, line = sites[0]
    return f"{code.co_filename}:{line} in {code.co_qualname}"


def stack_of(key: int) -> str | None:
    """The recorded stack as text, outermost call first, or None."""
    sites = _sites.get(key)
    if not sites:
        return None
    summary = [traceback.FrameSummary(code.co_filename, line, code.co_name) for code, line in reversed(sites)]
    return "".join(traceback.StackSummary.from_list(summary).format())


def _listen(name: str, key: int, details: dict[str, Any]) -> None:
    if name == "create":
        _sites[key] = _capture(sys._getframe(2))
    elif name in ("release", "detach"):
        _sites.pop(key, None)


def _capture(frame: FrameType | None) -> tuple[Site, ...]:
    while frame is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame = frame.f_back
    sites: list[Site] = []
    while frame is not None:
        sites.append((frame.f_code, frame.f_lineno))
        if _level == "line":
            break
        frame = frame.f_back
    return tuple(sites)
