"""What goes wrong around the random program: time, faults, interrupts."""

from __future__ import annotations

import gc

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from lifetimes._typing import Mode
from lifetimes.errors import (
    BrokenError,
)
from lifetimes.testing.disturb import run_disturbed
from lifetimes.testing.manager_machine.model import (
    FAULTS,
    MODES,
    REFUSALS,
    SMALL,
    interrupt_the_library,
)
from lifetimes.testing.manager_machine.rules import UsesAndMoves

__all__ = ["Trouble"]


class Trouble(UsesAndMoves):
    """Everything that a user has to live with."""

    # Time and trouble.

    @rule(steps=st.integers(1, 5))
    def time_passes(self, steps: int) -> None:
        """Some commands complete."""
        self.driver.step(steps)

    @rule()
    def all_completes(self) -> None:
        """Every command completes, and what was copied is right."""
        self.compare()

    @precondition(lambda self: self.content)
    @rule(
        kind=st.sampled_from(FAULTS), k=st.integers(1, 3), at=SMALL, mode=MODES, what=st.integers(0, 5), data=st.data()
    )
    def fault(self, kind: str, k: int, at: int, mode: Mode, what: int, data: st.DataObject) -> None:
        """One of the other rules, with the k-th driver call of some kind failing in it."""
        self.driver.faults.fail(kind, k)
        try:
            self.some_rule(at, mode, what)
        finally:
            self.refused += sum(fault.strikes for fault in self.driver.faults.faults if fault.kind == "free")
            self.driver.faults.clear()

    @precondition(lambda self: self.content)
    @rule(k=st.integers(1, 2), at=SMALL, what=st.integers(0, 3))
    def copyback_fails(self, k: int, at: int, what: int) -> None:
        """A copy to the host that fails on its way costs nothing but the copy."""
        self.compare()
        self.driver.faults.fail("copy_out", k, at="completion")
        try:
            (self.evict, self.read, self.prefetch_one, lambda at: self.reclaim("evict"))[what](at)
            self.driver.run_until_idle()
        finally:
            self.driver.faults.clear()
            self.results.clear()

    @precondition(lambda self: self.content)
    @rule(at=SMALL, mode=st.sampled_from(["r", "w"]))
    def upload_fails(self, at: int, mode: Mode) -> None:
        """A copy to the device that fails on its way: the content is on the host still."""
        if self.open:
            return  # an open use cannot be told apart from the upload
        self.compare()
        key = self.pick(at)
        self.driver.faults.fail("copy_in", 1, at="completion")
        try:
            if mode == "r":
                self.use(at, "r", 0, "")
            else:
                self.prefetch(at, -1)
            self.driver.run_until_idle()
        finally:
            self.driver.faults.clear()
            self.results.clear()
        self.verify(key)

    @precondition(lambda self: self.content)
    @rule(at=SMALL, step=st.integers(0, 400), what=st.sampled_from([0, 3, 4]))
    def interrupted(self, at: int, step: int, what: int) -> None:
        """Ctrl-C at some step of a call: nothing is pinned or moved afterwards, nothing lost."""
        key = self.pick(at)

        def call() -> None:
            if what == 0:
                with self.manager.use(key, "r", self.streams[0]):
                    pass
            elif what == 3:
                self.manager.evict(key)
            else:
                self.manager.prefetch(key)

        try:
            run_disturbed(call, step=step, act=interrupt_the_library, after_calls=True)
        except KeyboardInterrupt:
            pass
        except BrokenError:
            assert key in self.lost | self.unsure, f"array #{key} is not lost, but said to be"
        except REFUSALS:
            pass
        if sum(len(entry.pins) for entry in self.manager.pinned) > sum(len(each.modes) for each in self.open):
            gc.collect()  # the trace function and the frames it has seen, which hold the use, refer to each other

    def prefetch_one(self, at: int) -> None:
        """Prefetch on the manager's own stream."""
        self.prefetch(at, -1)

    def some_rule(self, at: int, mode: Mode, what: int) -> None:
        """One of them."""
        if what == 0:
            self.use(at, mode, at % 3, "")
        elif what == 1:
            self.use_many([(at, mode), (at + 1, "r")], at % 2, False)
        elif what == 2:
            self.evict(at)
        elif what == 3:
            self.prefetch(at, at % 4 - 1)
        elif what == 4:
            self.write(at)
        else:
            self.reclaim("evict")
