"""The demo's progress bar: a bar a kind of pass, on stderr, and nothing at all where nobody watches."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sized
from types import TracebackType
from typing import Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from lifetimes.cli.demo_work import Watch

__all__ = ["ProgressBar"]

T = TypeVar("T")


class ProgressBar:
    """A `Watch` that shows what it sees while its ``with`` block runs; ``quiet`` shows nothing.

    >>> with ProgressBar(quiet=True) as bar:
    ...     list(bar.each([1, 2], "count"))
    [1, 2]
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._progress = Progress(
            TextColumn("{task.description:22}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[note]:22}"),
            TimeElapsedColumn(),
            console=Console(file=sys.stderr),
            transient=True,  # the summary says it all again
            disable=quiet or not sys.stderr.isatty(),
        )
        self._tasks: dict[str, TaskID] = {}
        self._passes: dict[str, int] = {}
        self._settling: set[str] = set()

    def each(self, items: Iterable[T], what: str) -> Iterator[T]:
        """The items; a bar follows them, unless what they are for is followed by `settling`."""
        self._passes[what] = self._passes.get(what, 0) + 1
        total = len(items) if isinstance(items, Sized) else None
        task = self._task(what)
        if what not in self._settling:
            self._progress.reset(task, total=total, note=self._note(what))
        for item in items:
            yield item
            if what not in self._settling:
                self._progress.advance(task)

    def settling(self, what: str, residual: float, goal: float) -> None:
        """The bar shows digits: how many of those between 1 and the goal are right."""
        self._settling.add(what)
        digits = 1.0 if residual <= goal else max(0.0, min(1.0, math.log(residual) / math.log(goal)))
        self._progress.update(
            self._task(what), total=1.0, completed=digits, note=f"{self._note(what)}, off by {residual:.0e}"
        )

    def _task(self, what: str) -> TaskID:
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=None, note="")
        return self._tasks[what]

    def _note(self, what: str) -> str:
        passes = self._passes.get(what, 0)
        return f"{passes} passes" if passes != 1 else ""

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()


_watch: type[Watch] = ProgressBar
