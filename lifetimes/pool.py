"""The pool: blocks of device memory between two uses, each waiting for the work that used it last."""

from __future__ import annotations

import time
from _thread import get_ident
from collections import deque
from dataclasses import dataclass
from itertools import starmap
from typing import TYPE_CHECKING, Final

from lifetimes.cell import next_key
from lifetimes.failures import warn
from lifetimes.locks import held_here, lock, refuse_reentry
from lifetimes.size_classes import check_nbytes, round_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lifetimes.backend import Driver
    from lifetimes.timeline import Ticket, Timeline

__all__ = ["NULL_BLOCK", "Block", "Pool", "PoolStatistics"]


REMEMBERED: Final = 1024
"""For so many sizes the class is looked up instead of computed."""


class Block:
    """One allocation of the driver: its address and true capacity, and while it is held the tickets of its last uses."""

    __slots__ = ("address", "capacity", "given", "key", "owner", "tickets")

    def __init__(self, address: int, capacity: int) -> None:
        self.key = next_key()
        self.address = address
        self.capacity = capacity
        self.tickets: Sequence[Ticket] = ()
        self.owner = 0  # key of the array that lives in it, for owner_of; complement of the thread that has it in hand
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
    peak_bytes: int
    hits: int
    misses: int


class Pool:
    """Holds given blocks by size class and hands them out again when their last use allows it.

    A block is reused at once by the stream that used it last (work there is ordered behind that use anyway), by
    another only when all its tickets have completed.  Within a class the oldest block goes first.  ``max_bytes`` and
    ``max_age`` (seconds) cap what is held: idle blocks beyond them go back to the driver, the largest first.

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
        # Invariant: every block in the deque of its capacity, oldest first.  An empty deque stays: there are few classes, and
        # making it anew would be a good part of the time of a `give`.
        self._classes: dict[int, deque[Block]] = {}
        self._capacities: dict[int, int] = {}  # sizes that were asked for -> their class; the first thousand
        self.held_bytes = 0
        self.held_blocks = 0
        self.peak_bytes = 0
        self.hits = 0
        self.misses = 0

    def take(self, nbytes: int, stream: Timeline) -> Block:
        """A block of at least ``nbytes``, held or new.  Zero bytes give the null block.

        Errors: `ValueError` and `TypeError` for a bad size, `OutOfMemory`; no statistic changes then.
        """
        capacity = self._capacities.get(nbytes) if type(nbytes) is int else None
        if capacity is None:
            largest = self.driver.max_allocation
            size = check_nbytes(nbytes, largest)
            if not size:
                return NULL_BLOCK
            capacity = round_up(size, largest)
            if len(self._capacities) < REMEMBERED:
                self._capacities[size] = capacity
        block = self.find(capacity, stream)
        if block is not None:
            return block
        # One C call from the driver's answer to our list: an interrupt cannot lose the memory in between.
        address: list[int] = []
        try:
            address.extend(starmap(self.driver.allocate, ((capacity,),)))
            block = Block(address[0], capacity)
        except BaseException:
            if address:
                self.driver.free(address[0])
            raise
        self.misses += 1
        return block

    def give(self, block: Block, tickets: Sequence[Ticket] = ()) -> None:
        """Hold a block; ``tickets`` say which work used it last.  Over a cap, idle blocks go back to the driver.

        Errors: none; a driver that does not take a block back is a `CleanupWarning`.
        """
        if held_here():
            raise refuse_reentry("Pool.give")
        with lock:
            self.hold(block, tickets)
        if self.max_bytes is not None or self.max_age is not None:
            self.settle()
            with lock:
                over = self.excess()
            GiveBack(self.driver, over).run()

    def purge(self, nbytes: int | None = None) -> int:
        """Give idle blocks back to the driver, largest first, until ``nbytes`` of them (None: all) are; how many bytes."""
        self.settle()
        with lock:
            idle = self.take_out(nbytes)
        GiveBack(self.driver, idle).run()
        return sum(block.capacity for block in idle)

    def find(self, capacity: int, stream: Timeline) -> Block | None:
        """A held block of exactly this class that ``stream`` may use now, or None.

        Only when the blocks of the class were last used by other streams is the driver asked, without the lock.
        """
        if held_here():
            raise refuse_reentry("the pool")
        with lock:
            block = self.reuse(capacity, stream)
            if block is not None:
                return block
            blocks = list(self._classes.get(capacity, ()))
        if blocks:
            _ask(blocks)
            with lock:
                block = self.reuse(capacity, stream)
        return block

    # What the manager calls, the library's lock held.

    def reuse(self, capacity: int, stream: Timeline) -> Block | None:
        """`find` as far as is known already: under the lock, no driver call."""
        blocks = self._classes.get(capacity)
        if not blocks:
            return None
        at = 0
        for block in blocks:
            for ticket in block.tickets:
                if ticket[0] is not stream and ticket[1] > ticket[0].reached:
                    break
            else:
                break
            at += 1
        else:
            return None
        block.owner = ~get_ident()
        del blocks[at]
        self.held_bytes -= capacity
        self.held_blocks -= 1
        self.hits += 1
        return block

    def hold(self, block: Block, tickets: Sequence[Ticket]) -> None:
        """`give` without the caps, under the lock."""
        capacity = block.capacity
        if not capacity:
            return
        block.owner = 0
        block.tickets = tickets
        block.given = time.monotonic()
        blocks = self._classes.get(capacity)
        if blocks is None:
            self._classes[capacity] = blocks = deque()
        blocks.append(block)
        self.held_bytes += capacity
        self.held_blocks += 1
        if self.held_bytes > self.peak_bytes:
            self.peak_bytes = self.held_bytes

    def excess(self) -> list[Block]:
        """Take out, under the lock, idle blocks that are too old or too many; the caller frees them without it."""
        out: list[Block] = []
        if self.max_age is not None:
            oldest = time.monotonic() - self.max_age
            if any(blocks[0].given < oldest for blocks in self._classes.values() if blocks):
                out += self.take_out(None, lambda block: block.given < oldest)
        if self.max_bytes is not None and self.held_bytes > self.max_bytes:
            out += self.take_out(self.held_bytes - self.max_bytes)
        return out

    def take_out(self, nbytes: int | None, wanted: Callable[[Block], bool] | None = None) -> list[Block]:
        """Take out, under the lock, idle blocks, largest first, until ``nbytes`` of them (None: all) are out.

        Complexity: O(held blocks).
        """
        out: list[Block] = []
        taken = 0
        me = ~get_ident()
        for capacity in sorted([capacity for capacity, blocks in self._classes.items() if blocks], reverse=True):
            if nbytes is not None and taken >= nbytes:
                break
            blocks = self._classes[capacity]
            left: deque[Block] = deque()
            for block in blocks:
                enough = nbytes is not None and taken >= nbytes
                if not enough and _completed(block) and (wanted is None or wanted(block)):
                    block.owner = me
                    taken += capacity
                    out.append(block)
                else:
                    left.append(block)
            gone = len(blocks) - len(left)
            # No call from here on, so an interrupt finds the class and the totals in step.
            self._classes[capacity] = left
            self.held_bytes -= capacity * gone
            self.held_blocks -= gone
        return out

    def in_flight(self) -> list[Block]:
        """The held blocks whose last use is not known to have completed, oldest first.  Under the lock."""
        blocks = [block for block in self.blocks() if not _completed(block)]
        blocks.sort(key=lambda block: block.given)
        return blocks

    def blocks(self) -> list[Block]:
        """All held blocks.  Under the lock."""
        return [block for blocks in self._classes.values() for block in blocks]

    def keep_only(self, keys: frozenset[int]) -> None:
        """Under the lock: after an interrupt, forget the blocks whose key is not given, and those held twice."""
        seen: set[int] = set()
        for capacity, blocks in list(self._classes.items()):
            left = deque(block for block in blocks if block.key in keys and block.key not in seen)
            seen.update(block.key for block in left)
            self._classes[capacity] = left
        self.recount()

    def recount(self) -> None:
        """Under the lock: the totals, from the classes.  Complexity: O(classes)."""
        held = {capacity: len(blocks) for capacity, blocks in self._classes.items()}
        self.held_bytes = sum(capacity * number for capacity, number in held.items())
        self.held_blocks = sum(held.values())
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)

    def settle(self) -> None:
        """Ask the driver which in-flight work of held blocks has completed.  Call it without the lock."""
        with lock:
            blocks = self.blocks()
        _ask(blocks)

    def statistics(self) -> PoolStatistics:
        """A snapshot of the counts."""
        return PoolStatistics(self.held_bytes, self.held_blocks, self.peak_bytes, self.hits, self.misses)

    def check_invariants(self) -> None:
        """Recount what is held."""
        with lock:
            held = [(capacity, block) for capacity, blocks in self._classes.items() for block in blocks]
            assert all(block.capacity == capacity for capacity, block in held), "a block lies in its own class"
            assert len({block.key for _, block in held}) == len(held), "a block is held once"
            assert sum(capacity for capacity, _ in held) == self.held_bytes, f"held_bytes is off: {self!r}"
            assert len(held) == self.held_blocks, f"held_blocks is off: {self!r}"
            assert self.held_bytes <= self.peak_bytes, f"the peak is below what is held: {self!r}"

    def __repr__(self) -> str:
        return f"<Pool holding {self.held_blocks} blocks, {self.held_bytes} bytes>"


class GiveBack:
    """Gives idle blocks to the driver, all of them, each once, whatever fails.  Use it without the lock.

    Making it changes nothing.  What the driver refuses is a `CleanupWarning`.
    """

    __slots__ = ("_calls", "blocks")

    def __init__(self, driver: Driver, blocks: Iterable[Block]) -> None:
        self.blocks = list(blocks)
        # Advancing a starmap makes the call, advancing it again does nothing: so nothing is freed twice.
        self._calls = [starmap(driver.free, ((block.address,),)) for block in self.blocks]

    def run(self) -> None:
        """Errors: an interrupt, after the rest has been freed."""
        try:
            self._run()
        finally:
            self._run()  # what an interrupt has left

    def _run(self) -> None:
        for block, call in zip(self.blocks, self._calls, strict=True):
            try:
                for _ in call:
                    pass
            except Exception as error:
                warn(f"the driver did not take back {block!r}: {error}", error)


def _ask(blocks: Iterable[Block]) -> None:
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
