"""Pins: putting one on an entry, and taking it away with what a use leaves behind.

Note [Pins].  A pin is an item of the entry's dict, keyed by the token of the use.  Where pins and their counts change there
is no call in between, so an interrupt finds both or neither.  Putting a pin there and taking it out can be repeated; and
whatever an interrupt at the very door of ``__exit__`` left behind goes with the use itself, in its ``__del__``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lifetimes.timeline import MANY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lifetimes._typing import Mode
    from lifetimes.entry import Entry
    from lifetimes.manager.core import Manager
    from lifetimes.timeline import Ticket, Timeline

__all__ = ["leave", "pin", "unpin"]


def pin(manager: Manager, token: int, entry: Entry, thread: int) -> None:
    """Under the lock: one pin more."""
    pins = entry.pins
    if not pins:  # Note [Pins]
        manager.pinned[entry] = None
        counters = manager.counters
        counters.pinned_bytes = pinned = counters.pinned_bytes + entry.nbytes
        if pinned > counters.peak_pinned_bytes:
            counters.peak_pinned_bytes = pinned
    pins[token] = thread


def leave(
    manager: Manager, token: int, working_set: Sequence[tuple[Entry, Mode]], stream: Timeline, since: int
) -> None:
    """End one use, under the lock: leave its ticket behind and take its pins away.  Doing it twice does no harm.

    All of a working set gets one number: it is one piece of work.  ``since`` is how many marks ``stream`` had when the use
    began: see `Timeline.cover`.
    """
    stream.issued = sequence = stream.issued + 1
    if stream.recorded != since:
        stream.cover(sequence, since)
    for entry, mode in working_set:
        pins = entry.pins
        if token not in pins:
            continue
        if mode == "r":
            if stream.borrowed and stream not in entry.reads:
                forget_reads(entry)
            entry.reads[stream] = sequence
        else:
            write = entry.last_write
            if mode == "w":
                entry.earlier = None
            elif write is not None and (write[1] > write[0].reached or write[0].failures):
                remember_write(entry)
            entry.last_write = (stream, sequence)
            entry.reads = {}
        del pins[token]
        if not pins:  # Note [Pins]
            del manager.pinned[entry]
            manager.counters.pinned_bytes -= entry.nbytes
            if not entry.kept or entry.released or manager.waiting.attention:
                manager.moved(entry)


def unpin(manager: Manager, token: int, entry: Entry) -> None:
    """Take a pin away, under the lock, of a use that did not come about.  Doing it twice does no harm."""
    pins = entry.pins
    if token not in pins:
        return
    del pins[token]
    if not pins:  # Note [Pins]
        del manager.pinned[entry]
        manager.counters.pinned_bytes -= entry.nbytes
        manager.moved(entry)


def remember_write(entry: Entry) -> None:
    """Under the lock: the content will depend on ``last_write`` too, beside the write that follows it.

    Writes that are known to be fine are forgotten, so the list stays as short as the work in flight.
    """
    write = entry.last_write
    if write is None:
        return
    earlier = entry.earlier
    if earlier is None:
        entry.earlier = [write]
        return
    earlier.append(write)
    if not len(earlier) % MANY:
        entry.home.late.append(partial(_ask, earlier))  # and drops them without the lock
        entry.earlier = [
            ticket for ticket in earlier if ticket[1] > ticket[0].reached or ticket[0].error(ticket[1]) is not None
        ]


def forget_reads(entry: Entry) -> None:
    """Under the lock: borrowed streams come and go; who has read here is remembered as long as it may be in flight."""
    reads = entry.reads
    if len(reads) >= MANY and not len(reads) % MANY:
        entry.home.late.append(partial(_ask, list(reads.items())))  # and drops them without the lock
        entry.reads = {line: number for line, number in reads.items() if number > line.reached}


def _ask(tickets: Sequence[Ticket]) -> None:
    """Without the lock: learn which writes are done, so that they can be forgotten."""
    for timeline, sequence in tickets:
        timeline.done(sequence)
