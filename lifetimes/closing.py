"""Closing a lifetime with everything below it, at once or not at all.

The subtree is marked and its pins are looked at under the library's lock; finalizers run after it.  Whatever still has
pending work or a live export stays "closing", with its ancestors, and is released at a safe point or by the consumer.
"""

from __future__ import annotations

from operator import attrgetter

from lifetimes import pending, reaper
from lifetimes.cell import CLOSING, DETACHED, DROPPED, LIVE, RELEASED, STATE_NAMES, Cell, describe
from lifetimes.errors import BusyError
from lifetimes.failures import Failure
from lifetimes.locks import held_here, lock

__all__ = ["close", "held_by", "settle_state", "state_in_words", "subtree"]


def close(cell: Cell, wait: bool) -> list[Failure] | None:
    """Close ``cell`` and its subtree, youngest first.  Returns what the finalizers raised, None for nothing.

    Errors: `BusyError` if anything in the subtree is pinned; nothing has changed then.
    Complexity: linear in the subtree.  Threading: any thread, several at once; each finalizer runs once.
    """
    if cell.state >= RELEASED:
        return None
    if held_here():  # this thread was interrupted inside the library: queue it, the next safe point closes it
        cell.state = CLOSING
        reaper.queue.append(cell)
        return None
    failures: list[Failure] | None = None
    try:
        cells = _mark(cell)
        # A child's key is greater than its parents', so youngest first is children first.
        cells.sort(key=attrgetter("key"), reverse=True)
        if wait:
            for each in cells:
                pending.wait_all(each)
        for each in cells:
            failures = reaper.release(each, failures)
    except BaseException:
        reaper.repairs.append(None)
        raise
    return failures


def subtree(cell: Cell) -> list[Cell]:
    """The cell and all its live descendants, each once.  A loop, so depth does not matter."""
    found = {cell.key: cell}
    stack = [cell]
    while stack:
        for holder in list(stack.pop().holders.values()):
            if holder.__class__ is Cell and holder.key not in found:
                found[holder.key] = holder
                stack.append(holder)
    return list(found.values())


def held_by(cells: list[Cell], holds: str) -> list[str]:
    """In words: what holds of the given sort stand on these cells."""
    found = []
    for cell in cells:
        for holder in list(cell.holders.values()):
            if holder.holds == holds:
                found.append(f"{describe(cell)}: {holder.describe()}")
    return found


def _mark(cell: Cell) -> list[Cell]:
    """Mark the subtree as closing; or, if anything in it is pinned, leave it as it was and raise."""
    before: list[tuple[Cell, int]] = []
    pins: list[str] = []
    done = False
    try:
        try:
            lock.acquire()
            cells = subtree(cell)
            for each in cells:
                state = each.state
                if state in (LIVE, DROPPED):
                    before.append((each, state))
                    each.state = CLOSING
            # Only now: a pin taken before the mark is seen here, one taken after it sees the mark and waits for us.
            pins = held_by(cells, "pin")
            done = not pins
        finally:
            _unlock(before, done)
    finally:  # once more, should an interrupt have struck on the way out
        _unlock(before, done)
    if pins:
        shown = "; ".join(pins[:5]) + (f"; and {len(pins) - 5} more" if len(pins) > 5 else "")
        raise BusyError(f"{describe(cell)} cannot be closed while it is in use: {shown}. Leave the `with` block first")
    return cells


def _unlock(before: list[tuple[Cell, int]], done: bool) -> None:
    if held_here():
        if not done:
            for cell, state in before:
                if cell.state == CLOSING:  # else its handle was dropped meanwhile, which stands
                    cell.state = state
        lock.release()


def settle_state(cell: Cell) -> int:
    """The cell's state once no `close` is in the middle of deciding about it."""
    if held_here():
        return cell.state
    with lock:
        return cell.state


def state_in_words(cell: Cell) -> str:
    """For messages: ``closed``, ``closing``, ``detached`` and so on."""
    if cell.state == DETACHED:
        return "detached: its value was given up"
    return STATE_NAMES[cell.state] if cell.state > RELEASED else "closed"
