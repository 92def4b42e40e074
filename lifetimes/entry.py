"""One managed array: where its content is, who uses it, and how it may move.

The states and the moves between them::

    UNINIT ---write---> DIRTY <------------- EVICTING (writer cancels, or the copy-back failed)
    HOST ----upload---> UPLOADING -> CLEAN <- EVICTING (a reader cancels)
    HOST ----write-only use-> DIRTY          EVICTING -> HOST (the copy-back has completed)
    CLEAN <-> DIRTY, CLEAN -> HOST (no copy)
    any -> BROKEN (the last write failed), any -> RELEASED, UNMANAGED -> RELEASED

CLEAN means that the upload has been enqueued and is ordered by its ticket, not that it has completed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lifetimes.errors import InternalError

if TYPE_CHECKING:
    from lifetimes._typing import ByteView
    from lifetimes.pool import Block
    from lifetimes.timeline import Ticket, Timeline

__all__ = ["MOVES", "Entry"]

UNINIT: Final = 0
HOST: Final = 1
UPLOADING: Final = 2
CLEAN: Final = 3
DIRTY: Final = 4
EVICTING: Final = 5
BROKEN: Final = 6
RELEASED: Final = 7
UNMANAGED: Final = 8

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
)

MOVES: Final[dict[int, frozenset[int]]] = {
    UNINIT: frozenset({DIRTY, BROKEN, RELEASED}),
    HOST: frozenset({UPLOADING, DIRTY, RELEASED}),
    UPLOADING: frozenset({CLEAN, HOST, RELEASED}),
    CLEAN: frozenset({DIRTY, HOST, BROKEN, RELEASED}),
    DIRTY: frozenset({EVICTING, CLEAN, UNINIT, BROKEN, RELEASED}),
    EVICTING: frozenset({HOST, CLEAN, DIRTY, BROKEN, RELEASED}),
    BROKEN: frozenset({DIRTY, RELEASED}),
    UNMANAGED: frozenset({RELEASED}),
    RELEASED: frozenset(),
}
"""Which states may follow which.  One table; `Entry.become` refuses everything else."""


class Entry:
    """The manager's record of one array.  All fields change under the library's lock.

    ``host`` is a buffer whose content counts in the states HOST, UPLOADING and CLEAN; in DIRTY it is a landing
    place kept warm.  ``borrowed`` says that it is the user's own memory, which is never written.
    """

    __slots__ = (
        "block", "borrowed", "copyback", "host", "key", "label", "last_write", "nbytes", "owner", "parked", "pins",
        "reads", "released", "state",
    )  # fmt: skip

    def __init__(self, key: int, nbytes: int, label: str | None) -> None:
        self.key = key
        self.nbytes = nbytes
        self.label = label
        self.state = UNINIT
        # Invariant: present in UPLOADING, CLEAN, DIRTY, EVICTING and once UNINIT has been read; absent in HOST.
        self.block: Block | None = None
        self.host: ByteView | None = None
        self.borrowed = False
        self.pins: dict[object, int] = {}  # a use -> its thread
        self.owner = 0  # the thread in the middle of a transition, or 0
        self.last_write: Ticket | None = None
        self.reads: dict[Timeline, int] = {}  # the last read on each stream since the last write
        self.copyback: Ticket | None = None  # the copy to ``host`` that is on its way
        self.parked = False  # found pinned by an eviction and taken out of the policy; put back at the last unpin
        self.released = False  # asked for while pinned or in transition: done at the end of that

    def __repr__(self) -> str:
        label = f" {self.label!r}" if self.label else ""
        return f"<entry #{self.key}{label}: {STATE_NAMES[self.state]}, {self.nbytes} bytes, {len(self.pins)} pins>"

    def become(self, state: int) -> None:
        """Move to another state.  Errors: `InternalError` for a move that `MOVES` does not have."""
        if state not in MOVES[self.state]:
            raise InternalError(
                f"entry #{self.key} cannot go from {STATE_NAMES[self.state]} to {STATE_NAMES[state]}: {self!r}; "
                "this is a bug in lifetimes, please report it"
            )
        self.state = state

    def attach(self, block: Block) -> None:
        """The entry's content lives in this block from now on."""
        self.block = block
        block.owner = self.key

    def tickets(self) -> list[Ticket]:
        """The last uses: what must complete before the block can serve another stream."""
        tickets = list(self.reads.items())
        if self.last_write is not None:
            tickets.append(self.last_write)
        return tickets

    def valid_on_host(self) -> bool:
        """Whether ``host`` holds the content (a copy that is still landing aside)."""
        return self.state in (HOST, UPLOADING, CLEAN)
