"""Closing a lifetime with everything below it, at once or not at all.

The subtree is marked and its pins are looked at under the library's lock; finalizers run after it.  Whatever still has
pending work or a live export stays "closing", with its ancestors, and is released at a safe point or by the consumer.

Note [Marks].  A cell is MARKED while its close is undecided: uses that begin then wait for the decision, and nothing
releases it, so that a refused close really leaves everything as it was.
"""

from __future__ import annotations

from operator import attrgetter

from lifetimes import instrument, pending, reaper
from lifetimes.cell import (
    CLOSING,
    DETACHED,
    DROPPED,
    LIVE,
    MARKED,
    RELEASED,
    RELEASING,
    STATE_NAMES,
    Cell,
    Holder,
    Pending,
    describe,
    enqueue,
    live,
    queue,
)
from lifetimes.errors import BusyError
from lifetimes.failures import Failure, take
from lifetimes.locks import busily, held_here, locked

__all__ = ["close", "detach", "held_by", "settle_state", "state_in_words", "subtree"]

SHOWN = 5


def close(cell: Cell, wait: bool) -> list[Failure]:
    """Close ``cell`` and its subtree, youngest first.  Returns what the finalizers raised.

    Errors: `BusyError` if anything in the subtree is pinned; nothing has changed then.
    Complexity: linear in the subtree.  Threading: any thread, several at once; each finalizer runs once, and the calls
    that find another one at work return without waiting for it.
    """
    failures: list[Failure] = []
    if cell.state >= RELEASING:
        return failures
    if held_here():
        # This thread was interrupted inside the library, with the lock held.  Decide now, release at a safe point.
        queue.extend(_decide(cell))
        return failures
    # What the finalizers drop waits until their turn is over.
    busily(_close, cell, wait, failures)
    return failures


def _close(cell: Cell, wait: bool, failures: list[Failure]) -> None:
    cells = locked(_decide, cell)
    try:
        if wait:
            for each in cells:
                pending.wait_all(each)
        for each in cells:
            reaper.release(each, failures)
    except BaseException:
        reaper.repairs.append(None)
        reaper.untold.extend(take(failures))
        raise


def detach(cell: Cell) -> bool:
    """Take a cell out of the registry; no finalizer will run.  False if it was closed before.

    Errors: `BusyError` while something holds it.
    """
    holding = _detach(cell) if held_here() else locked(_detach, cell)
    if holding:
        sorts = ", ".join(sorted(holding))
        raise BusyError(f"{describe(cell)} cannot be detached while something holds it ({sorts})")
    if cell.state != DETACHED:
        return False
    cell.finalizer = cell.added = None
    cell.args = ()
    reaper.let_go_of_parents(cell)
    if instrument.listeners:
        instrument.emit("detach", cell.key)
    return True


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


def held_by(cells: list[Cell], holds: str) -> list[tuple[Cell, Holder]]:
    """What holders of the given sort stand on these cells."""
    return [(cell, holder) for cell in cells for holder in list(cell.holders.values()) if holder.holds == holds]


def _decide(cell: Cell) -> list[Cell]:
    """Under the lock: the subtree, closing from now on, youngest first; or `BusyError`, and it is as it was."""
    before: list[tuple[Cell, int]] = []
    decided = False
    try:
        try:
            cells = subtree(cell)
            for each in cells:
                state = each.state
                if state in (LIVE, DROPPED):
                    before.append((each, state))
                    each.state = MARKED
            # Only now: a pin taken before the mark is seen here, one taken after it sees the mark and waits for us.
            pins = held_by(cells, "pin")
            decided = not pins
        finally:
            _settle(before, decided)
    finally:  # once more, should an interrupt have struck the line above
        _settle(before, decided)
    if pins:
        shown = "; ".join(f"{describe(each)}: {pin.describe()}" for each, pin in pins[:SHOWN])
        more = f"; and {len(pins) - SHOWN} more" if len(pins) > SHOWN else ""
        what = f"{describe(cell)} cannot be closed while it is in use"
        raise BusyError(f"{what}: {shown}{more}. Leave the `with` block first")
    # A child's key is greater than its parents', so youngest first is children first.
    cells.sort(key=attrgetter("key"), reverse=True)
    return cells


def _settle(before: list[tuple[Cell, int]], decided: bool) -> None:
    for cell, state in before:
        if cell.state == MARKED:
            if decided:
                cell.state = CLOSING
            else:
                cell.state = state
                if state == DROPPED or cell() is None:
                    enqueue(cell)  # it may have become ready meanwhile


def _detach(cell: Cell) -> set[str]:
    """Under the lock.  What holds the cell; if nothing does, it is detached, unless it was closed before."""
    holding: set[str] = set()
    if cell.state != LIVE:
        return holding
    try:
        try:
            cell.state = MARKED
            holding = {holder.holds for holder in list(cell.holders.values()) if not isinstance(holder, Pending)}
            if not holding:
                del live[cell.key]
                cell.state = DETACHED
        finally:
            _unmark_one(cell)
    finally:  # once more, should an interrupt have struck the line above
        _unmark_one(cell)
    return holding


def _unmark_one(cell: Cell) -> None:
    if cell.state == MARKED:
        live[cell.key] = cell
        cell.state = LIVE


def settle_state(cell: Cell) -> int:
    """The cell's state once no `close` is in the middle of deciding about it."""
    if cell.state != MARKED or held_here():
        return cell.state
    return locked(_state, cell)


def _state(cell: Cell) -> int:
    return cell.state


def state_in_words(cell: Cell) -> str:
    """For messages: ``closed``, ``closing``, ``detached`` and so on."""
    if cell.state == DETACHED:
        return "detached: its value was given up"
    return "closed" if cell.state in (DROPPED, RELEASING, RELEASED) else STATE_NAMES[cell.state]
