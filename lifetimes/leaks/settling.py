"""Letting things come to rest before they are judged: work in flight is no leak while it may still end."""

from __future__ import annotations

import time
from collections.abc import Collection

from lifetimes import cell as cells
from lifetimes import pending
from lifetimes.reaper import drain

__all__ = ["finish_pending"]


def finish_pending(seconds: float, but: Collection[int] = ()) -> None:
    """Release what is ready, and what only waits for work that ends within ``seconds``; not the keys in ``but``.

    What lives is not waited for, but asked whether it is idle by now, so that the ledger knows.

    >>> finish_pending(0.0)
    """
    drain()
    for cell in list(cells.live.values()):
        for holder in list(cell.holders.values()):
            if holder.__class__ is cells.Standing:
                holder.task.completed()
    deadline = time.monotonic() + seconds
    for cell in list(cells.live.values()):
        gone = cell.state in (cells.DROPPED, cells.CLOSING)
        if gone and cell.key not in but and all(holder.holds == "pending" for holder in list(cell.holders.values())):
            pending.wait_all(cell, deadline)
    drain()
