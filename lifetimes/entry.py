"""One managed array: where its content is, who uses it, and how it may move.

The states and the moves between them::

    UNINIT ---write---> DIRTY <------------- EVICTING (a writer cancels, or the copy-back failed)
    HOST ----upload---> UPLOADING -> CLEAN <- EVICTING (a reader cancels)
    HOST ----write-only use-> DIRTY          EVICTING -> HOST (the copy-back has completed)
    CLEAN <-> DIRTY, CLEAN -> HOST (no copy), CLEAN -> EVICTING (a copy-back that a reader took over is still on its way)
    HOST -> SPILLING -> DISK -> LOADING -> HOST, CLEAN -> DISK (its copy is in a file), DISK ----write-only use-> DIRTY
    any -> BROKEN (a write failed, or the file is gone), any -> RELEASED, UNMANAGED -> RELEASED

CLEAN means that the upload has been enqueued and is ordered by its ticket, not that it has completed; and that there is a
second copy off the device, in host memory or in a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lifetimes.errors import InternalError

if TYPE_CHECKING:
    from lifetimes._typing import ByteView
    from lifetimes.host_store.files import SpillFile
    from lifetimes.lifetime import Lifetime
    from lifetimes.manager.core import Manager
    from lifetimes.pool import Block
    from lifetimes.timeline import Ticket, Timeline

__all__ = ["MOVES", "STATE_NAMES", "Entry"]

UNINIT: Final = 0
HOST: Final = 1
UPLOADING: Final = 2
CLEAN: Final = 3
DIRTY: Final = 4
EVICTING: Final = 5
BROKEN: Final = 6
RELEASED: Final = 7
UNMANAGED: Final = 8
SPILLING: Final = 9
DISK: Final = 10
LOADING: Final = 11

UNSEEN: Final = -1

STATE_NAMES: Final = (
    "uninitialised",
    "host",
    "uploading",
    "clean",
    "dirty",
    "evicting",
    "broken",
    "released",
    "unmanaged",
    "spilling",
    "on disk",
    "loading",
)

MOVES: Final[dict[int, frozenset[int]]] = {
    UNINIT: frozenset({DIRTY, BROKEN, RELEASED}),
    HOST: frozenset({UPLOADING, DIRTY, SPILLING, BROKEN, RELEASED}),
    UPLOADING: frozenset({CLEAN, HOST, BROKEN, RELEASED}),
    CLEAN: frozenset({DIRTY, HOST, DISK, EVICTING, BROKEN, RELEASED}),
    DIRTY: frozenset({EVICTING, CLEAN, BROKEN, RELEASED}),
    EVICTING: frozenset({HOST, CLEAN, DIRTY, BROKEN, RELEASED}),
    SPILLING: frozenset({DISK, HOST, BROKEN, RELEASED}),
    DISK: frozenset({LOADING, DIRTY, BROKEN, RELEASED}),
    LOADING: frozenset({HOST, DISK, BROKEN, RELEASED}),
    BROKEN: frozenset({DIRTY, UNMANAGED, RELEASED}),
    UNMANAGED: frozenset({BROKEN, RELEASED}),
    RELEASED: frozenset(),
}
"""Which states may follow which.  One table; `Entry.become` refuses everything else."""


class Entry:
    """The manager's record of one array.  All fields change under the library's lock.

    Note [Truth].  What an entry says of itself (state, block, pins, owner) is the truth; the sums over entries, the policy's
    members and the lists of the manager follow from it and can be recounted.  Each of these fields changes in one step.
    """

    __slots__ = (
        "block", "borrowed", "checked", "copyback", "earlier", "file", "home", "host", "kept", "key", "label",
        "last_write", "lease", "nbytes", "owner", "pins", "reads", "released", "state", "upload", "why",
    )  # fmt: skip

    def __init__(self, home: Manager, key: int, nbytes: int, label: str | None, state: int = UNINIT) -> None:
        self.home = home
        self.key = key
        self.nbytes = nbytes
        self.label = label
        self.state = state
        # Invariant: there in CLEAN, DIRTY, EVICTING, UNMANAGED and once UNINIT has been read; absent in HOST, UPLOADING,
        # SPILLING, DISK and LOADING, and always for zero bytes.
        self.block: Block | None = None
        # Content counts in HOST, UPLOADING, CLEAN, SPILLING and EVICTING (once it has landed); in DIRTY it is a landing
        # place kept warm.
        self.host: ByteView | None = None
        self.borrowed = False  # ``host`` is the user's own memory, which is never written, pooled or spilled
        self.file: SpillFile | None = None  # Invariant: None, or exactly the content: void from the first write on
        self.pins: dict[int, int] = {}  # token of a use -> its thread (its complement: reads ``host``)
        self.owner = 0  # the thread in the middle of a transition, or 0
        self.last_write: Ticket | None = None
        # Writes since the last overwriting one, before ``last_write``, that were not known to be fine.
        self.earlier: list[Ticket] | None = None
        # `timeline.told.count` when all these writes were last looked at, UNSEEN while an upload is on its way.
        self.checked = 0
        self.reads: dict[Timeline, int] = {}  # the last read on each stream since the last write
        self.copyback: Ticket | None = None  # the copy to ``host`` that is on its way
        self.upload: Ticket | None = None  # the last copy from ``host``, or after it a void one to it
        self.kept = False  # Invariant: the policy holds the key
        self.released = False  # gone from the table; the rest goes when nobody uses or moves it any more
        self.why = ""  # in BROKEN: what happened
        self.lease: Lifetime[int] | None = None  # of adopted memory: tells its owner at the end

    def __repr__(self) -> str:
        label = f" {self.label!r}" if self.label else ""
        return f"<entry #{self.key}{label}: {STATE_NAMES[self.state]}, {self.nbytes} bytes, {len(self.pins)} pins>"

    def become(self, state: int) -> None:
        """Move to another state, and the books with it.  Errors: `InternalError` for a move that `MOVES` does not have."""
        old = self.state
        if state not in MOVES[old]:
            raise InternalError(
                f"entry #{self.key} cannot go from {STATE_NAMES[old]} to {STATE_NAMES[state]}: {self!r}; "
                "this is a bug in lifetimes, please report it"
            )
        # No call from here on: neither a signal handler nor the collector gets in between.
        counters = self.home.counters
        counts, sums, peaks, nbytes = counters.counts, counters.sums, counters.peaks, self.nbytes
        self.state = state
        counts[old] -= 1
        sums[old] -= nbytes
        counts[state] += 1
        sums[state] += nbytes
        if sums[state] > peaks[state]:
            peaks[state] = sums[state]

    def attach(self, block: Block, upload: Ticket | None = None) -> None:
        """The entry's content lives in this block from now on, or will when ``upload`` has completed."""
        counters = self.home.counters
        block.owner = self.key
        self.block = block
        self.last_write = upload  # in one step with the block, which gets it back as its ticket
        counters.resident += 1
        counters.resident_bytes += self.nbytes

    def detach(self) -> Block | None:
        """The entry's content does not live in its block any more.  The block gets the tickets of its last uses."""
        block = self.block
        if block is None:
            return None
        block.tickets = self.tickets()
        counters = self.home.counters
        block.owner = 0
        self.block = None
        counters.resident -= 1
        counters.resident_bytes -= self.nbytes
        self.last_write = self.earlier = None
        self.reads = {}
        return block

    def tickets(self) -> list[Ticket]:
        """The last uses: what must complete before the block can serve another stream."""
        tickets = list(self.reads.items())
        if self.last_write is not None:
            tickets.append(self.last_write)
        return tickets

    def writes(self) -> list[Ticket]:
        """The writes that the content depends on, as far as they are not known to be fine."""
        writes = [] if self.earlier is None else list(self.earlier)
        if self.last_write is not None:
            writes.append(self.last_write)
        return writes

    def wrong(self) -> str | None:
        """Why the content on the device is lost, or None: a write that it depends on is known to have failed."""
        for timeline, sequence in self.writes():
            error = timeline.error(sequence)
            if error is not None:
                return str(error)
        return None

    def host_tickets(self) -> list[Ticket]:
        """The copies from and to ``host`` that may not have completed."""
        return [
            ticket for ticket in (self.upload, self.copyback) if ticket is not None and ticket[1] > ticket[0].reached
        ]

    def read_on_host(self) -> bool:
        """Whether a use reads ``host`` right now."""
        return any(thread < 0 for thread in self.pins.values())
