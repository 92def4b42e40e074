"""A planted leak, and how it is found: what lives afterwards that did not live before, and the line that made it.

`preview` looks innocent, and each of its arrays goes when it should but one: whoever wrote it kept a cache and forgot it.
Nothing here tells the search about the cache.  It compares two calls of `lifetimes.live`.
"""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import lifetimes
from lifetimes import Array, Device
from lifetimes.cli.demo_data import Matrix
from lifetimes.leaks import LiveThing

__all__ = ["Leak", "find_leaks", "forget", "preview"]

_previews: dict[str, Array] = {}


def preview(device: Device, rows: Matrix) -> Matrix:
    """The first rows of a matrix, scaled to 0..1: what a program might draw.  Leaks."""
    head = device.asarray(rows[:64], label="head")
    low = device.asarray(np.min(rows, axis=0), label="low")
    span = device.asarray(np.ptp(rows, axis=0), label="span")
    scaled = device.empty(head.shape, label="scaled preview")
    device.call(scale, head, low, span, scaled, modes="rrrw")
    _previews["latest"] = scaled  # for a redraw that never comes
    return scaled.numpy()


def scale(head: Matrix, low: Matrix, span: Matrix, scaled: Matrix) -> None:
    """To 0..1; a column that does not vary becomes 0."""
    np.divide(head - low, span, out=scaled, where=span != 0)
    scaled[:, span == 0] = 0.0


def forget() -> None:
    """Mend it: empty the cache."""
    _previews.clear()


@dataclass(frozen=True, slots=True)
class Leak:
    """Something that lives and should not: what it is, where it was made, and the source lines around that."""

    thing: LiveThing
    file: str
    line: int
    function: str
    source: tuple[tuple[int, str], ...]

    @property
    def made_by(self) -> str:
        """The source line that made it, without its indentation; empty where the source is not to be had."""
        return dict(self.source).get(self.line, "").strip()


def find_leaks(function: Callable[[], object]) -> list[Leak]:
    """What a call of ``function`` leaves alive, oldest first.  Needs ``lifetimes.open(..., stacks="line")`` to know where.

    >>> with lifetimes.open("host", stacks="line") as device:
    ...     kept = []
    ...     [leak.thing.nbytes for leak in find_leaks(lambda: kept.append(device.empty(3)))]
    [24]
    >>> lifetimes.set_stacks("off")
    """
    lifetimes.drain()  # what was dropped earlier and not released yet is no leak of this call
    before = {thing.key for thing in lifetimes.live()}
    function()
    lifetimes.drain()
    return [locate(thing) for thing in lifetimes.live() if thing.key not in before]


def locate(thing: LiveThing) -> Leak:
    """Read ``file:line in function`` and fetch the lines around."""
    match = re.fullmatch(r"(.*):(\d+) in (.*)", thing.origin or "")
    if match is None:
        return Leak(thing, "", 0, "", ())
    file, line, function = match[1], int(match[2]), match[3]
    shown = [(number, linecache.getline(file, number).rstrip()) for number in range(line - 2, line + 3) if number > 0]
    return Leak(thing, os.path.abspath(file), line, function, tuple(row for row in shown if row[1]))
