"""The pool: blocks of device memory between two uses, each waiting for the work that used it last."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lifetimes.cell import next_key
from lifetimes.locks import held_here, lock, refuse_reentry
from lifetimes.size_classes import check_nbytes, round_up

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lifetimes.backend import Driver
    from lifetimes.timeline import Ticket, Timeline

__all__ = ["NULL_BLOCK", "Block", "Pool", "PoolStatistics"]


class Block:
    """One allocation of the driver: its address and true capacity, and while it is held the tickets of its last uses."""

    __slots__ = ("address", "capacity", "given", "key", "owner", "tickets")

    def __init__(self, address: int, capacity: int) -> None:
        self.key = next_key()
        self.address = address
        self.capacity = capacity
        self.tickets: Sequence[Ticket] = ()
        self.owner = 0  # key of the array that lives in it, for owner_of
        self.given = 0.0  # when it was given to the pool, in seconds of time.monotonic()

    def __repr__(self) -> str:
        return f"<Block #{self.key} at {self.address:#x}, {self.capacity} bytes>"


NULL_BLOCK = Block(0, 0)
"""What zero bytes are given: it has no memory and aliases nothing."""


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """A snapshot.  Bytes are capacities."""

    held_bytes: int
    held_blocks: int
    hits: int
    misses: int


class Pool:
    """Holds given blocks by size class and hands them out again when their last use allows it.

    A block is reused at once by the stream that used it last (work there is ordered behind that use anyway), by
    another only when all its tickets have completed.  Within a class the oldest block goes first.  ``max_bytes`` and
    ``max_age`` (seconds) cap what is held; the largest blocks go back to the driver first.

    Complexity: take and give O(1) for blocks of one stream.  Locks: the library's.

    >>> from lifetimes.testing.sim import SimDriver
    >>> from lifetimes.timeline import Timeline
    >>> driver = SimDriver()
    >>> pool, stream = Pool(driver), Timeline(driver, driver.create_stream())
    >>> block = pool.take(1000, stream)
    >>> pool.give(block, [(stream, stream.tick())])
    >>> pool.take(1000, stream) is block, pool.statistics().hits
    (True, 1)
    """

    def __init__(self, driver: Driver, *, max_bytes: int | None = None, max_age: float | None = None) -> None:
        self.driver = driver
        self.max_bytes = max_bytes
        self.max_age = max_age
        # Invariant: no empty deques; every block in the deque of its capacity, oldest first.
        self._classes: dict[int, deque[Block]] = {}
        self.held_bytes = 0
        self.held_blocks = 0
        self.hits = 0
        self.misses = 0

    def take(self, nbytes: int, stream: Timeline) -> Block:
        """A block of at least ``nbytes``, held or new.  Zero bytes give the null block.

        Errors: `ValueError` and `TypeError` for a bad size, `OutOfMemory`; no statistic changes then.
        """
        size = check_nbytes(nbytes, self.driver.max_allocation)
        if not size:
            return NULL_BLOCK
        capacity = round_up(size, self.driver.max_allocation)
        block = self.find(capacity, stream)
        return block if block is not None else Block(self.driver.allocate(capacity), capacity)

    def give(self, block: Block, tickets: Sequence[Ticket] = ()) -> None:
        """Hold a block; ``tickets`` say which work used it last.  Over a cap, blocks go back to the driver."""
        if held_here():
            raise refuse_reentry("Pool.give")
        with lock:
            self.hold(block, tickets)
            over = () if self.max_bytes is None and self.max_age is None else self.excess()
        for each in over:
            self.driver.free(each.address)

    def find(self, capacity: int, stream: Timeline) -> Block | None:
        """A held block of exactly this class that ``stream`` may use now, or None.

        Only when the blocks of the class were last used by other streams is the driver asked, without the lock.
        """
        if held_here():
            raise refuse_reentry("the pool")
        with lock:
            block = self.reuse(capacity, stream)
            blocks = list(self._classes.get(capacity, ())) if block is None else []
        if blocks:
            _ask(blocks)
            with lock:
                block = self.reuse(capacity, stream)
        if block is None:
            self.misses += 1
        else:
            self.hits += 1
        return block

    # What the manager calls, the library's lock held.

    def reuse(self, capacity: int, stream: Timeline) -> Block | None:
        """`find` as far as is known already: under the lock, no driver call, not counted."""
        blocks = self._classes.get(capacity)
        if blocks is None:
            return None
        block = blocks[0]
        for ticket in block.tickets:
            if ticket[0] is not stream and ticket[1] > ticket[0].reached:
                found = _usable(blocks, stream)
                if found is None:
                    return None
                block = found
                break
        if block is blocks[0]:
            blocks.popleft()
        else:
            blocks.remove(block)
        if not blocks:
            del self._classes[capacity]
        self.held_bytes -= capacity
        self.held_blocks -= 1
        return block

    def hold(self, block: Block, tickets: Sequence[Ticket]) -> None:
        """`give` without the caps, under the lock."""
        capacity = block.capacity
        if not capacity:
            return
        block.tickets = tickets
        if self.max_age is not None:
            block.given = time.monotonic()
        blocks = self._classes.get(capacity)
        if blocks is None:
            self._classes[capacity] = blocks = deque()
        blocks.append(block)
        self.held_bytes += capacity
        self.held_blocks += 1

    def excess(self) -> list[Block]:
        """Take out, under the lock, the completed blocks over the caps; the caller frees them without it."""
        out: list[Block] = []
        if self.max_age is not None:
            oldest = time.monotonic() - self.max_age
            out += self._take_out(lambda block: block.given < oldest, None)
        if self.max_bytes is not None and self.held_bytes > self.max_bytes:
            out += self._take_out(None, self.held_bytes - self.max_bytes)
        return out

    def purge(self, nbytes: int | None = None) -> list[Block]:
        """Take out, under the lock, completed blocks, largest first, until ``nbytes`` of them (None: all) are out."""
        return self._take_out(None, nbytes)

    def in_flight(self) -> list[Block]:
        """The held blocks whose last use is not known to have completed, oldest first.  Under the lock."""
        blocks = [block for held in self._classes.values() for block in held if not _completed(block)]
        blocks.sort(key=lambda block: block.given)
        return blocks

    def _take_out(self, wanted: Callable[[Block], bool] | None, nbytes: int | None) -> list[Block]:
        out: list[Block] = []
        taken = 0
        for capacity in sorted(self._classes, reverse=True):
            blocks = self._classes[capacity]
            for block in list(blocks):
                if nbytes is not None and taken >= nbytes:
                    return out
                if _completed(block) and (wanted is None or wanted(block)):
                    blocks.remove(block)
                    if not blocks:
                        del self._classes[capacity]
                    self.held_bytes -= capacity
                    self.held_blocks -= 1
                    taken += capacity
                    out.append(block)
        return out

    def settle(self) -> None:
        """Ask the driver which in-flight work of held blocks has completed.  Call it without the lock."""
        with lock:
            blocks = [block for held in self._classes.values() for block in held]
        _ask(blocks)

    def statistics(self) -> PoolStatistics:
        """A snapshot of the counts."""
        return PoolStatistics(self.held_bytes, self.held_blocks, self.hits, self.misses)

    def check_invariants(self) -> None:
        """Recount what is held."""
        with lock:
            held = [(capacity, block) for capacity, blocks in self._classes.items() for block in blocks]
            assert all(self._classes.values()), "no class is empty"
            assert all(block.capacity == capacity for capacity, block in held), "a block lies in its own class"
            assert len({block.key for _, block in held}) == len(held), "a block is held once"
            assert sum(capacity for capacity, _ in held) == self.held_bytes, f"held_bytes is off: {self!r}"
            assert len(held) == self.held_blocks, f"held_blocks is off: {self!r}"

    def __repr__(self) -> str:
        return f"<Pool holding {self.held_blocks} blocks, {self.held_bytes} bytes>"


def _ask(blocks: list[Block]) -> None:
    """Learn from the driver which of the blocks' last uses have completed.  One question a stream."""
    latest: dict[Timeline, int] = {}
    for block in blocks:
        for timeline, sequence in block.tickets:
            if sequence > timeline.reached:
                latest[timeline] = max(sequence, latest.get(timeline, 0))
    for timeline, sequence in latest.items():
        timeline.done(sequence)


def _completed(block: Block) -> bool:
    return all(ticket[1] <= ticket[0].reached for ticket in block.tickets)


def _usable(blocks: deque[Block], stream: Timeline) -> Block | None:
    for block in blocks:
        if all(ticket[0] is stream or ticket[1] <= ticket[0].reached for ticket in block.tickets):
            return block
    return None
