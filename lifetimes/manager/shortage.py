"""The out-of-memory error: who holds, pins and pends what.  Built from the tables alone, without device memory."""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING, Final

from lifetimes.cell import live
from lifetimes.entry import STATE_NAMES
from lifetimes.errors import OutOfMemory
from lifetimes.locks import lock
from lifetimes.origins import origin_of
from lifetimes.sizes import format_bytes

if TYPE_CHECKING:
    from lifetimes.entry import Entry
    from lifetimes.manager.core import Manager

__all__ = ["Shortage"]

SHOWN: Final = 5


class Shortage(Exception):  # noqa: N818 (a state of affairs; what the user sees is an OutOfMemory)
    """No rung of the ladder could serve a request.  Numbers only: the words are found when somebody wants them."""

    def __init__(self, nbytes: int, capacity: int, tried: list[str]) -> None:
        super().__init__(nbytes)
        self.nbytes = nbytes
        self.capacity = capacity
        self.tried = tried

    def explain(self, manager: Manager, note: str = "") -> OutOfMemory:
        """The error for the user.  It holds text only, so it keeps no array alive.  Complexity: O(arrays)."""
        with lock:
            entries = [
                *{entry: None for _, entry in manager.table.snapshot() if entry.block is not None} | manager.pinned
            ]
            largest = nlargest(SHOWN, entries, key=lambda entry: entry.nbytes)
            rows = [(entry.key, _describe(entry)) for entry in largest]
            memory, counters = manager.memory, manager.counters
            pinned = [entry.nbytes for entry in manager.pinned]
            held = [block.capacity for block in memory.pool.blocks()]
            lines = [
                f"no {format_bytes(self.nbytes)} of device memory ({self.nbytes} bytes, a block of {self.capacity}): "
                f"{format_bytes(memory.reserved)} of the limit of {format_bytes(memory.limit)} are taken, "
                f"{format_bytes(sum(pinned))} by {len(pinned)} pinned arrays (pinned={len(pinned)}), "
                f"{format_bytes(sum(held))} held by the pool in {len(held)} blocks (the largest has "
                f"{format_bytes(max(held, default=0))}), "
                f"{format_bytes(manager.evictor.in_flight())} being copied back",
                f"tried: {', '.join(self.tried)}",
            ]
            more = counters.resident - len(rows)
        for key, row in rows:
            origin = origin_of(live.get(key))  # arrays of a device have the keys of their cells
            lines.append(f"  {row}" + (f", made at {origin.line}" if origin is not None else ""))
        if more > 0:
            lines.append(f"  and {more} smaller ones")
        if manager.host_store.trouble:
            lines.append(manager.host_store.trouble)
        lines.append("leave `with` blocks that are done with their arrays, or raise the limit")
        error = OutOfMemory("\n".join(lines))
        if note:
            error.add_note(note)
        return error


def _describe(entry: Entry) -> str:
    label = f" {entry.label!r}" if entry.label else ""
    threads = sorted({thread if thread >= 0 else ~thread for thread in entry.pins.values()})
    used = f", in use by thread {', '.join(map(str, threads))}" if threads else ""
    pending = ", with work in flight" if any(number > line.reached for line, number in entry.tickets()) else ""
    return f"array #{entry.key}{label}: {format_bytes(entry.nbytes)}, {STATE_NAMES[entry.state]}{used}{pending}"
