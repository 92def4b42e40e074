"""Every pair of calls, one of them stopped in the middle of each driver call that it makes, the other run meanwhile."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from lifetimes.errors import BusyError, CleanupWarning, ClosedError, OutOfMemory, OwnershipError
from tests.unit.memory.scene import SIZE, Gate, Scene, Thread

EXPECTED = (BusyError, ClosedError, OutOfMemory, OwnershipError)
"""What the loser of a race may be told."""


class Race(Scene):
    """Three arrays on a device with room for three: one is written, one is clean, one is away."""

    def __init__(self) -> None:
        super().__init__(blocks=3, pin_timeout=0.2)
        self.dirty, self.clean, self.away = self.adds(3)
        self.write(self.dirty, 11)
        self.touch(self.clean)
        self.touch(self.away)
        self.manager.evict(self.away)
        self.touch(self.add(4))
        self.content = {self.dirty: 11, self.clean: 2, self.away: 3}


def use_away(race: Race) -> None:
    with race.manager.use(race.away):
        pass


def use_dirty(race: Race) -> None:
    with race.manager.use(race.dirty):
        pass


def use_many(race: Race) -> None:
    with race.manager.use_many([(race.away, "r"), (race.dirty, "r")]):
        pass


def overwrite(race: Race) -> None:
    with race.manager.use(race.dirty, "w") as address:
        race.fill(address, 11)


def evict(race: Race) -> None:
    race.manager.evict(race.dirty)


def evict_clean(race: Race) -> None:
    race.manager.evict(race.clean)


def prefetch(race: Race) -> None:
    race.manager.prefetch(race.away)


def read(race: Race) -> None:
    out = race.manager.read(race.dirty, np.empty(SIZE, np.uint8))
    assert (out == 11).all()


def release(race: Race) -> None:
    race.content.pop(race.dirty, None)
    race.manager.release(race.dirty)


def release_away(race: Race) -> None:
    race.content.pop(race.away, None)
    race.manager.release(race.away)


def close(race: Race) -> None:
    race.manager.close()


def reclaim(race: Race) -> None:
    race.manager.reclaim()


def lower(race: Race) -> None:
    race.manager.set_limit(hard=SIZE)


def statistics(race: Race) -> None:
    race.manager.statistics()


FIRST: list[tuple[Callable[[Race], None], tuple[str, ...]]] = [
    (use_away, ("copy_in", "copy_out", "wait", "stream_wait")),
    (use_many, ("copy_in", "copy_out", "wait")),
    (overwrite, ("call",)),
    (evict, ("copy_out", "wait", "record", "create_event")),
    (evict_clean, ("completed",)),
    (prefetch, ("copy_in", "copy_out", "wait")),
    (read, ("copy_out", "wait")),
    (close, ("synchronize", "free", "destroy_stream", "destroy_event")),
    (reclaim, ("copy_out", "wait", "free")),
    (lower, ("copy_out", "free", "wait")),
    (statistics, ("completed",)),
]
SECOND = [
    use_away, use_dirty, use_many, overwrite, evict, evict_clean, prefetch, read, release, release_away, close, reclaim,
    lower, statistics,
]  # fmt: skip
PAIRS = [(first, kind, second) for (first, kinds), second in product(FIRST, SECOND) for kind in kinds]


@pytest.mark.parametrize(("first", "kind", "second"), PAIRS, ids=lambda part: getattr(part, "__name__", part))
def test_a_call_stopped_in_the_middle_and_another_one_meanwhile(
    first: Callable[[Race], None], kind: str, second: Callable[[Race], None]
) -> None:
    race, gate = Race(), Gate()
    race.driver.faults.before(kind, 1, gate.stop)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CleanupWarning)
        one = Thread(first, race)
        while one.running and not gate.reached.wait(0.001):
            pass  # not every call comes by every gate in this scene
        other = Thread(second, race)
        other._thread.join(0.03)  # it may have to wait for the first
        gate.open()
        for thread in (one, other):
            try:
                thread.join()
            except EXPECTED:
                pass
        race.driver.faults.clear()
    finish(race)


def finish(race: Race) -> None:
    """Whatever happened: the books are right, what is left reads right, and the rest is given back."""
    manager = race.manager
    if not manager.closed:
        race.check()
        manager.set_limit(hard=3 * SIZE)
        for key, value in race.content.items():
            assert race.value(key) == value
            assert race.on_device(key) == value
        race.check()
    manager.close()
    assert manager.ended
    race.driver.run_until_idle()
    assert race.driver.live_blocks == {}
    assert not race.driver.violations, race.driver.violations
    race.driver.close()


@pytest.mark.parametrize("second", SECOND, ids=lambda call: call.__name__)
def test_a_release_while_the_array_is_used_and_another_call_meanwhile(second: Callable[[Race], None]) -> None:
    race, gate = Race(), Gate()

    def first() -> None:
        with race.manager.use(race.dirty):
            release(race)
            gate.stop()

    one = Thread(first)
    gate.wait()
    other = Thread(second, race)
    other._thread.join(0.03)
    gate.open()
    for thread in (one, other):
        try:
            thread.join()
        except EXPECTED:
            pass
    finish(race)


def test_all_of_them_at_once_and_the_close_in_between() -> None:
    """BUG-023 (NVIDIA/cudf-spark#14201): evicting, opening and closing, started together; no lock order to get wrong."""
    for round_ in range(8):
        race = Race()
        barrier = threading.Barrier(4)

        def loop(calls: list[Callable[[Race], None]], race: Race = race, barrier: threading.Barrier = barrier) -> None:
            barrier.wait(20)
            for _ in range(10):
                for call in calls:
                    try:
                        call(race)
                    except EXPECTED:
                        pass

        def last(race: Race = race, barrier: threading.Barrier = barrier, turns: int = round_) -> None:
            barrier.wait(20)
            for _ in range(turns):
                race.manager.statistics()
            while not race.manager.ended:
                try:
                    race.manager.close()
                except BusyError:
                    pass

        threads = [
            Thread(loop, calls) for calls in ([evict, evict_clean, reclaim], [use_away, use_many], [overwrite, read])
        ]
        threads.append(Thread(last))
        for thread in threads:
            thread.join()
        with pytest.raises(ClosedError):
            race.manager.evict(race.dirty)
        assert race.driver.live_blocks == {}
        assert not race.driver.violations, race.driver.violations
