"""Telling what is still alive below something that is about to be closed."""

from __future__ import annotations

import warnings
from typing import Any

from lifetimes import closing
from lifetimes.errors import LeakWarning
from lifetimes.leaks.ledger import LiveThing, rows_of
from lifetimes.leaks.text import report
from lifetimes.lifetime import Lifetime

__all__ = ["warn_below"]


def warn_below(lifetime: Lifetime[Any]) -> list[LiveThing]:
    """Warn, by one `LeakWarning`, of everything that is alive below ``lifetime``, with the lines that made it.

    For the moment before a device, a context or a pool is closed and made anew: ``close()`` releases its children, whoever
    still holds them.  Returns their rows; closes nothing.  A lifetime that is closed has nothing below it.

    >>> import warnings
    >>> from lifetimes import Lifetime
    >>> context = Lifetime("context", kind="context")
    >>> with warnings.catch_warnings(record=True) as told:
    ...     warnings.simplefilter("always")
    ...     child = Lifetime("stream", kind="stream", parents=[context])
    ...     [row.kind for row in warn_below(context)], len(told)
    (['stream'], 1)
    """
    cell = lifetime._cell
    if lifetime.closed:
        return []
    rows = sorted(rows_of([each for each in closing.subtree(cell) if each is not cell]), key=lambda row: row.key)
    if rows:
        warnings.warn(LeakWarning(f"{lifetime!r} still has below it\n{report(rows)}"), stacklevel=2)
    return rows
