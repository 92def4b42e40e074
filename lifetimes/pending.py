"""Work in flight that cells wait for, polled at safe points; nobody blocks on it.

Only cells whose handle has gone (or that are closing) wait here.  Tasks that name their stream (``stream_key`` and
``sequence``, as the tickets of the pool do) complete in order, so a safe point asks only for the oldest of each
stream; others are asked in turn, at most `LOOSE_LIMIT` a safe point, and all of them by ``lifetimes.drain()``.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from itertools import islice
from typing import Final

from lifetimes.cell import Cell, Pending, describe
from lifetimes.failures import error_in_words, warn

__all__ = ["forget", "poll", "prune", "settle", "wait_all", "waiting"]

LOOSE_LIMIT: Final = 64

_incoming: deque[tuple[int, Cell, Pending]] = deque()  # where any thread puts; only the poller takes
_streams: dict[int, list[tuple[int, int, Cell, Pending]]] = {}  # stream key -> heap by (sequence, token)
_loose: deque[tuple[int, Cell, Pending]] = deque()
# Whoever polls owns the two structures above; a second thread skips its turn.  An RLock, because it can be asked
# whether it is ours: an interrupt between taking it and noting so cannot leave it taken.
_poller = threading.RLock()


def waiting() -> bool:
    """Whether any cell waits for work."""
    return bool(_incoming or _streams or _loose)


def settle(cell: Cell) -> bool:
    """Forget the cell's finished work.  True when nothing holds it any more; else its oldest work is watched.

    Work that failed counts as finished; its error is told as a `CleanupWarning` of the cell.
    """
    for token, holder in _pending_of(cell):
        if holder.watched:  # `poll` asks, for all of its stream at once
            return False
        if not _finished(cell, token, holder):
            _incoming.append((token, cell, holder))  # first: twice does no harm
            holder.watched = True
            return False
    return not cell.holders


def poll(loose: int = LOOSE_LIMIT) -> list[Cell]:
    """The cells whose watched work has finished.  Complexity: one query a stream, and at most ``loose`` others."""
    ready: list[Cell] = []
    try:
        try:
            _poller.acquire(blocking=False)
            if _poller._is_owned():  # type: ignore[attr-defined]
                _sort_incoming()
                for stream in list(_streams):
                    _poll_stream(stream, ready)
                for _ in range(min(len(_loose), loose)):
                    _poll_one(ready)
        finally:
            while _poller._is_owned():  # type: ignore[attr-defined]
                _poller.release()
    finally:  # once more, should an interrupt have struck the line above
        while _poller._is_owned():  # type: ignore[attr-defined]
            _poller.release()
    return ready


def prune(cell: Cell) -> None:
    """Keep a cell that lives long from gathering finished work without end: forget what has finished of a few."""
    try:
        oldest = list(islice(cell.holders, 8))
    except RuntimeError:  # another thread came in between: next time
        return
    for token in oldest:
        holder = cell.holders.get(token)
        if holder.__class__ is Pending:
            try:
                finished = holder.task.completed()
            except Exception:  # it failed, and stays here so that the release can tell
                continue
            if finished:
                cell.holders.pop(token, None)


def _pending_of(cell: Cell) -> list[tuple[int, Pending]]:
    # By way of the keys: making a list of them makes no other object, so nothing can change the dict meanwhile.
    found = [(token, cell.holders.get(token)) for token in list(cell.holders)]
    return [(token, holder) for token, holder in found if isinstance(holder, Pending)]


def _sort_incoming() -> None:
    while _incoming:
        token, cell, holder = _incoming[0]
        try:
            stream, sequence = holder.task.stream_key, holder.task.sequence  # type: ignore[attr-defined]
        except Exception:  # it names no stream
            _loose.append((token, cell, holder))
        else:
            heapq.heappush(_streams.setdefault(stream, []), (sequence, token, cell, holder))
        _incoming.popleft()


def _poll_stream(stream: int, ready: list[Cell]) -> None:
    heap = _streams[stream]
    while heap:
        _, token, cell, holder = heap[0]
        if token in cell.holders and not _finished(cell, token, holder):
            return
        ready.append(cell)
        heapq.heappop(heap)
    del _streams[stream]


def _poll_one(ready: list[Cell]) -> None:
    token, cell, holder = _loose[0]
    if token in cell.holders and not _finished(cell, token, holder):
        _loose.rotate(-1)
        return
    ready.append(cell)
    _loose.popleft()


def wait_all(cell: Cell, deadline: float | None = None) -> bool:
    """Block until the cell's work has finished; False when ``deadline`` (of `time.monotonic`) came first.

    A task with a ``wait()`` of its own is waited for with that (not under a deadline, which it does not know); others
    are asked at growing intervals of 0.1 to 20 ms.
    """
    for token, holder in _pending_of(cell):
        wait = getattr(holder.task, "wait", None) if deadline is None else None
        if wait is not None:
            try:
                wait()
            except Exception as error:
                _forget(cell, token, error)
            else:
                _forget(cell, token, None)
        else:
            pause = 0.0001
            while not _finished(cell, token, holder):
                if deadline is not None and time.monotonic() > deadline:
                    return False
                time.sleep(pause)
                pause = min(pause * 2, 0.02)
    return True


def forget() -> None:
    """In a forked child: the work belongs to the parent."""
    _incoming.clear()
    _streams.clear()
    _loose.clear()
    _poller._at_fork_reinit()  # type: ignore[attr-defined]


def _finished(cell: Cell, token: int, holder: Pending) -> bool:
    try:
        if not holder.task.completed():
            return False
    except Exception as error:
        _forget(cell, token, error)
    else:
        _forget(cell, token, None)
    return True


def _forget(cell: Cell, token: int, error: Exception | None) -> None:
    # Two threads may have seen the work end; one tells.
    if cell.holders.pop(token, None) is not None and error is not None:
        what = f"work that {describe(cell)} was waiting for failed"
        warn(f"{what}: {error_in_words(error)}; it is released all the same", error)
