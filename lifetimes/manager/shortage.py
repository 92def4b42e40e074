"""The out-of-memory error: who holds, pins and pends what.  Built from the tables alone, without device memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lifetimes.entry import STATE_NAMES
from lifetimes.errors import OutOfMemory
from lifetimes.locks import lock
from lifetimes.sizes import format_bytes

if TYPE_CHECKING:
    from lifetimes.manager.core import Manager

__all__ = ["out_of_memory"]

SHOWN = 5


def out_of_memory(manager: Manager, nbytes: int, capacity: int, tried: list[str]) -> OutOfMemory:
    """The error for a request that no rung could serve.  It holds text only, so it keeps no array alive."""
    with lock:
        entries = [entry for _, entry in manager.table.snapshot() if entry.block is not None]
        rows = [(entry.nbytes, entry.key, entry.label, STATE_NAMES[entry.state], list(entry.pins.values())) for entry in entries]
        memory = manager.memory
        reserved, limit, held = memory.reserved, memory.limit, memory.pool.held_bytes
        pending = manager.evictor.in_flight()
    pinned = [row for row in rows if row[4]]
    lines = [
        f"no {format_bytes(nbytes)} of device memory ({nbytes} bytes, a block of {capacity}): "
        f"{format_bytes(reserved)} of the limit of {format_bytes(limit)} are taken, "
        f"{format_bytes(sum(row[0] for row in pinned))} by {len(pinned)} pinned arrays (pinned={len(pinned)}), "
        f"{format_bytes(held)} held by the pool, {format_bytes(pending)} being copied back",
        f"tried: {', '.join(tried)}",
    ]
    rows.sort(reverse=True)
    for size, key, label, state, pins in rows[:SHOWN]:
        name = f" {label!r}" if label else ""
        used = f", in use by thread {', '.join(map(str, sorted(set(pins))))}" if pins else ""
        lines.append(f"  array #{key}{name}: {format_bytes(size)}, {state}{used}")
    if len(rows) > SHOWN:
        lines.append(f"  and {len(rows) - SHOWN} smaller ones")
    lines.append("leave `with` blocks that are done with their arrays, or raise the limit")
    return OutOfMemory("\n".join(lines))
