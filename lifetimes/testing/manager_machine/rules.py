"""What the random program does: arrays, uses, moves, limits."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from lifetimes._typing import Mode
from lifetimes.errors import (
    BackendError,
    BrokenError,
    BusyError,
    OutOfMemory,
    OwnershipError,
)
from lifetimes.testing.manager_machine.model import (
    MODES,
    REFUSALS,
    SMALL,
    MachineModel,
    Open,
)
from lifetimes.testing.sim import WouldBlock

__all__ = ["UsesAndMoves"]


class UsesAndMoves(MachineModel):
    """Everything that a user may do."""

    # Arrays come and go.

    @initialize(sizes=st.lists(st.integers(1, 3000), min_size=3, max_size=6))
    def first(self, sizes: list[int]) -> None:
        """There is always something to begin with."""
        for nbytes in sizes:
            self.add(nbytes, True, True)

    @rule(
        nbytes=st.one_of(st.sampled_from([0, 1, 256, 1024]), st.integers(0, 6000)),
        full=st.booleans(),
        copy=st.booleans(),
    )
    def add(self, nbytes: int, full: bool, copy: bool) -> None:
        """A new array, with content or without."""
        if len(self.content) > 12:
            return
        content = self.fresh(nbytes)
        expected = content.copy() if full else None
        done: list[int] = []
        if self.attempt(lambda: done.append(self.manager.add(content if full else nbytes, copy=copy))):
            self.content[done[0]] = expected if nbytes else np.empty(0, np.uint8)

    @precondition(lambda self: self.content)
    @rule(at=SMALL)
    def release(self, at: int) -> None:
        """One goes; it may be in use still."""
        key = self.pick(at)
        assert self.attempt(lambda: self.manager.release(key))
        del self.content[key]
        self.lost.discard(key)
        for call in (self.manager.release, self.manager.evict):
            try:
                self.attempt(partial(call, key))
            except OwnershipError:
                continue
            raise AssertionError(f"array #{key} was released and is still there")

    @rule(nbytes=st.integers(0, 2000))
    def adopt(self, nbytes: int) -> None:
        """Memory of somebody else."""
        if len(self.adopted) > 2:
            return
        try:
            address = self.driver.allocate(nbytes + 1)
        except OutOfMemory:
            return
        key = self.manager.adopt(address, nbytes, on_release=self.let_go.append)
        self.content[key] = None if nbytes else np.empty(0, np.uint8)
        self.adopted[key] = address
        if nbytes:
            assert self.manager.owner_of(address + nbytes - 1) == (key, nbytes - 1)
            try:
                self.manager.adopt(address + nbytes // 2, 1)
            except OwnershipError:
                return
            raise AssertionError("memory was adopted twice")

    # Uses.

    @precondition(lambda self: self.content)
    @rule(at=SMALL, mode=MODES, stream=st.integers(0, 2), end=st.sampled_from(["", "", "", "error", "interrupt"]))
    def use(self, at: int, mode: Mode, stream: int, end: str) -> None:
        """One array for one block, which may raise."""
        key, timeline = self.pick(at), self.streams[stream]
        if self.races(key, mode, timeline):
            return
        try:
            with self.manager.use(key, mode, timeline) as address:
                self.body(key, mode, address, timeline)
                if end == "error":
                    raise ZeroDivisionError
                if end == "interrupt":
                    raise KeyboardInterrupt
        except (ZeroDivisionError, KeyboardInterrupt):
            assert end
        except BrokenError:
            assert key in self.lost | self.unsure, f"array #{key} is not lost, but said to be"
        except REFUSALS:
            pass

    @precondition(lambda self: self.content)
    @rule(at=SMALL, mode=st.sampled_from(["rw", "w"]), stream=st.integers(0, 1))
    def fail(self, at: int, mode: Mode, stream: int) -> None:
        """A function that fails on the device, fenced so that everybody knows which."""
        key, timeline = self.pick(at), self.streams[stream]
        if self.open:
            return  # what an open use writes cannot be told apart from this
        try:
            with self.manager.use(key, mode, timeline) as address:
                self.body(key, mode, address, timeline, fails=True)
            timeline.mark()
        except BrokenError:
            assert key in self.lost | self.unsure, f"array #{key} is not lost, but said to be"
        except REFUSALS:
            pass

    @precondition(lambda self: self.content)
    @rule(pairs=st.lists(st.tuples(SMALL, MODES), min_size=1, max_size=4), stream=st.integers(0, 2), stay=st.booleans())
    def use_many(self, pairs: list[tuple[int, Mode]], stream: int, stay: bool) -> None:
        """Several at once, perhaps the same one twice; the block may stay open."""
        timeline = self.streams[stream]
        wanted = [(self.pick(at), mode) for at, mode in pairs]
        if any(self.races(key, mode, timeline) for key, mode in wanted):
            return
        stack = ExitStack()
        try:
            addresses = stack.enter_context(self.manager.use_many(wanted, timeline))
        except BrokenError:
            assert any(key in self.lost | self.unsure for key, _ in wanted), "none of them is lost"
            return
        except REFUSALS:
            return
        try:
            modes: dict[int, Mode] = {}
            for key, mode in wanted:
                modes[key] = mode if modes.get(key, mode) == mode else "rw"
            where = dict(zip([key for key, _ in wanted], addresses, strict=True))
            for key, mode in modes.items():
                self.body(key, mode, where[key], timeline)
        except BackendError:
            pass
        if stay and len(self.open) < 3:
            self.open.append(Open(stack, modes, timeline))
        else:
            self.attempt(stack.close)

    @precondition(lambda self: self.open)
    @rule(at=SMALL)
    def leave(self, at: int) -> None:
        """The end of a block that stayed open."""
        self.attempt(self.open.pop(at % len(self.open)).stack.close)

    @precondition(lambda self: self.content)
    @rule(at=SMALL)
    def read(self, at: int) -> None:
        """The content, on the host."""
        self.verify(self.pick(at))

    @precondition(lambda self: self.content)
    @rule(at=SMALL)
    def write(self, at: int) -> None:
        """New content, from the host."""
        key = self.pick(at)
        if self.races(key, "w", self.manager.stream):
            return
        new = self.fresh(self.nbytes(key))
        self.content[key], before = None, self.content[key]
        calls = self.driver.counts["copy_in"]
        if self.attempt(lambda: self.manager.write(key, new)):
            self.content[key] = new
            self.lost.discard(key)
            self.unsure.discard(key)
        elif self.driver.counts["copy_in"] == calls and key not in self.lost:
            self.content[key] = before
        else:
            self.unsure.add(key)

    # Moves.

    @precondition(lambda self: self.content)
    @rule(at=SMALL)
    def evict(self, at: int) -> None:
        """Off the device."""
        key = self.pick(at)
        done: list[bool] = []
        if self.attempt(lambda: done.append(self.manager.evict(key))) and done[0]:
            entry = self.manager.table.get(key)
            assert entry is not None
            assert entry.block is None, f"evicted, and still there: {entry!r}"

    @precondition(lambda self: self.content)
    @rule(at=SMALL, stream=st.integers(-1, 2))
    def prefetch(self, at: int, stream: int) -> None:
        """Onto the device, if there is room."""
        key = self.pick(at)
        pinned = {entry: entry.block for entry in self.manager.pinned}
        try:
            self.manager.prefetch(key, None if stream < 0 else self.streams[stream])
        except (BackendError, WouldBlock):
            pass
        for entry, block in pinned.items():
            assert entry.block is block, f"a prefetch moved {entry!r}"

    @rule(level=st.sampled_from(["idle", "wait", "evict"]))
    def reclaim(self, level: str) -> None:
        """Give back what can be given back."""
        if self.attempt(lambda: self.manager.reclaim(level)) and level == "evict" and not self.open and not self.manual:
            assert self.manager.memory.pool.held_bytes == 0

    @rule(hard=st.one_of(st.none(), st.integers(1, 12 << 10)))
    def hard_limit(self, hard: int | None) -> None:
        """At once or not at all."""
        before = self.manager.memory.limit
        try:
            if not self.attempt(lambda: self.manager.set_limit(hard=self.total if hard is None else hard)):
                assert self.manager.memory.limit == before
        except BusyError:
            assert self.manager.memory.limit == before

    @rule(soft=st.one_of(st.none(), st.integers(1, 12 << 10)))
    def soft_limit(self, soft: int | None) -> None:
        """As pins drop."""
        self.attempt(lambda: self.manager.set_limit(soft=soft))
