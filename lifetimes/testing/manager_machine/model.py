"""What the random program knows and checks: the model, and what must hold after every step."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType
from typing import Any, ClassVar, cast

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant

from lifetimes._typing import ByteView, Mode
from lifetimes.entry import BROKEN, CLEAN, HOST
from lifetimes.errors import BackendError, BrokenError, CleanupWarning, ClosedError, OutOfMemory
from lifetimes.host_store.files import read_file
from lifetimes.manager import Manager
from lifetimes.testing.disturb import interrupt
from lifetimes.testing.sim import SimDriver, WouldBlock
from lifetimes.timeline import Timeline

__all__ = ["FAULTS", "MODES", "REFUSALS", "SMALL", "MachineModel", "Open", "interrupt_the_library"]

REFUSALS = (OutOfMemory, BackendError, WouldBlock)
"""What a planned fault, a full device or a wait that nobody ends may make of a call; content is unchanged then."""
FAULTS = ("allocate", "copy_in", "copy_out", "create_event", "record", "stream_wait", "free")
"""Not `wait` and `completed`: where they fail, they say that the work before them has."""
MODES = st.sampled_from(["r", "rw", "w"])
SMALL = st.integers(0, 30)


def interrupt_the_library() -> None:
    """What Ctrl-C does, unless it would strike inside the simulated device, which is no part of what is tested."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(("lifetimes.testing.sim", "lifetimes.testing.faults")):
            return
        frame = frame.f_back
    interrupt()


class Open:
    """A use that is open across steps."""

    def __init__(self, stack: ExitStack, modes: dict[int, Mode], stream: Timeline) -> None:
        self.stack = stack
        self.modes = modes
        self.stream = stream


class MachineModel(RuleBasedStateMachine):
    """The manager, the device below it, and what each array must contain."""

    total = 10 << 10
    """Bytes of the simulated device, a few arrays' worth."""
    manual: ClassVar[bool] = False
    """Whether a wait for unfinished work is refused instead of letting time pass."""
    settled: ClassVar[bool] = False
    """Whether all work completes after each step, so that content on the device can be looked at, too."""
    options: ClassVar[dict[str, Any]] = {}
    """Further options of the manager."""

    def manager_options(self) -> dict[str, Any]:
        """Options of the manager for this run; to be overridden where one needs, say, a directory of its own."""
        return dict(self.options)

    def __init__(self) -> None:
        super().__init__()
        self.quiet = warnings.catch_warnings()  # what fails on purpose here is told by warnings, too
        self.quiet.__enter__()
        warnings.simplefilter("ignore", CleanupWarning)
        self.driver = SimDriver(self.total + (16 << 10), manual=self.manual)
        self.manager = Manager(self.driver, memory_limit=self.total, pin_timeout=0.0, **self.manager_options())
        self.handles = [self.driver.create_stream() for _ in range(3)]
        self.streams = [Timeline(self.driver, handle, borrowed=at == 2) for at, handle in enumerate(self.handles)]
        self.content: dict[int, ByteView | None] = {}
        self.lost: set[int] = set()
        self.unsure: set[int] = set()  # a write did not go through: lost or not, nobody knows
        self.adopted: dict[int, int] = {}  # key -> address
        self.let_go: list[int] = []  # addresses whose owner was told
        self.open: list[Open] = []
        self.results: list[tuple[ByteView, ByteView, int]] = []  # what a copy brings, what it must bring, its array
        self.numbers = iter(range(1, 1 << 30))
        self.refused = 0  # blocks that the driver did not take back

    # What the rules are made of.

    def pick(self, at: int) -> int:
        """One of the keys."""
        keys = list(self.content)
        return keys[at % len(keys)]

    def fresh(self, nbytes: int) -> ByteView:
        """Bytes that no array has had before, and that do not look like poison."""
        number = next(self.numbers)
        return ((np.arange(nbytes) * 7 + number * 31) % 199).astype(np.uint8)

    def nbytes(self, key: int) -> int:
        """The size of an array."""
        entry = self.manager.table.get(key)
        assert entry is not None, f"the manager has lost array #{key}"
        return entry.nbytes

    def attempt(self, call: Callable[[], object]) -> bool:
        """Whether a call that may be refused went through."""
        try:
            call()
        except REFUSALS:
            return False
        return True

    def body(self, key: int, mode: Mode, address: int, stream: Timeline, *, fails: bool = False) -> None:
        """What a user does in his block: enqueue a copy from the array, then perhaps a function that writes it."""
        size = self.nbytes(key)
        if not size:
            return
        if mode != "w":
            expected = self.content[key]
            found = np.zeros(size, np.uint8)
            self.driver.copy_out(found, address, stream.handle)
            if expected is not None and key not in self.lost:
                self.results.append((found, expected, key))
        if mode != "r":
            new = self.fresh(size)
            known = mode == "w" or (self.content[key] is not None and key not in self.lost)
            if mode == "rw" and known:
                new = (cast("ByteView", self.content[key]) + new) % 199
            if fails:
                stream.fence()
                self.driver.faults.fail("call", 1, at="completion")
            self.driver.call(np.copyto, (self.driver.view(address, size), new), stream.handle)
            if fails or (mode == "rw" and key in self.lost):
                self.lost.add(key)
                self.content[key] = None
            else:
                self.lost.discard(key)
                self.content[key] = new if known else None
            if mode == "w":
                self.unsure.discard(key)

    def compare(self) -> None:
        """Everything that has been copied out by now, once all work has completed."""
        self.driver.run_until_idle()
        results, self.results = self.results, []
        for found, expected, key in results:
            assert np.array_equal(found, expected), f"array #{key}: a use saw {found[:8]}, not {expected[:8]}"

    def races(self, key: int, mode: Mode, stream: Timeline | None) -> bool:
        """Whether this use would not be ordered against one that is open: who writes when is the users' affair."""
        return any(
            key in each.modes and each.stream is not stream and (mode != "r" or each.modes[key] != "r")
            for each in self.open
        )

    def verify(self, key: int) -> None:
        """An array reads as the model has it."""
        if self.races(key, "r", None):
            return
        out = np.zeros(self.nbytes(key), np.uint8)
        expected = self.content[key]
        try:
            self.manager.read(key, out)
        except BrokenError:
            assert key in self.lost | self.unsure, f"array #{key} is not lost, but said to be"
            return
        except REFUSALS:
            return
        assert key not in self.lost - self.unsure, f"array #{key} is lost, and nobody says so"
        if expected is not None:
            assert np.array_equal(out, expected), f"array #{key} reads {out[:8]}, not {expected[:8]}"

    # What must hold.

    @invariant()
    def books_are_right(self) -> None:
        """Invariants, and totals against the model."""
        for key in [key for key in self.adopted if key not in self.content]:
            if self.adopted[key] in self.let_go:
                address = self.adopted.pop(key)
                self.let_go.remove(address)
                self.driver.free(address)  # a violation, if the manager's work still used it
        statistics = self.manager.statistics()
        self.manager.check_invariants()
        self.driver.check_invariants()
        assert not self.driver.violations, self.driver.violations
        assert statistics.arrays == len(self.content)
        assert statistics.array_bytes == sum(self.nbytes(key) for key in self.content)
        used = {key for each in self.open for key in each.modes}
        pinned = {entry.key for entry in self.manager.pinned}
        assert pinned == used, f"pinned are {pinned}, in use {used}"
        assert statistics.pinned_bytes == sum(entry.nbytes for entry in self.manager.pinned)

    @invariant()
    def content_is_right(self) -> None:
        """Every array has its last written value, seen without the manager and so without changing anything."""
        if self.settled:
            self.compare()
        for key, expected in self.content.items():
            if expected is not None and key not in self.lost | self.unsure:
                found = self.look_at(key)
                if found is not None:
                    assert np.array_equal(found, expected), f"array #{key} has {found[:8]}, not {expected[:8]}"

    def look_at(self, key: int) -> ByteView | None:
        """The content, None where it cannot be told before work in flight has completed."""
        entry = self.manager.table.get(key)
        assert entry is not None, f"the manager has lost array #{key}"
        # A clean array's upload may have failed, and nobody knows yet: what counts is the other copy.
        if entry.host is not None and (entry.state == HOST or (entry.state == CLEAN and entry.copyback is None)):
            return entry.host
        if entry.file is not None:
            found = np.empty(entry.nbytes, np.uint8)
            read_file(entry.file, found)
            return found
        if self.settled and entry.block is not None and entry.state != BROKEN:
            return self.driver.view(entry.block.address, entry.nbytes)
        return None

    def teardown(self) -> None:
        """Everything reads right at the end, and everything is given back."""
        try:
            self.driver.faults.clear()
            self.driver.manual = False
            for each in self.open:
                each.stack.close()
            self.open.clear()
            self.manager.set_limit(hard=self.total, soft=None)
            self.compare()
            for key in self.content:
                self.verify(key)
            self.manager.close()
            try:
                self.manager.add(1)
            except ClosedError:
                pass
            self.books_at_the_end()
        finally:
            self.quiet.__exit__(None, None, None)
            self.driver.close()

    def books_at_the_end(self) -> None:
        """Nothing of the manager is left on the driver."""
        self.driver.run_until_idle()
        for stream, handle in zip(self.streams, self.handles, strict=True):
            stream.close()
            self.driver.destroy_stream(handle)
        assert self.manager.memory.reserved == 0
        assert sorted(self.let_go) == sorted(self.adopted.values()), "an owner was not told, or told twice"
        for address in self.adopted.values():
            self.driver.free(address)
        assert len(self.driver.live_blocks) <= self.refused, "memory that the driver was not given back"
        assert not self.driver.violations, self.driver.violations
        assert self.driver.live_streams == self.driver.live_events == []
