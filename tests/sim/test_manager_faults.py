"""The k-th driver call of each kind fails, for every k, in every call of the manager: data safe, error clear."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest

from lifetimes.errors import BackendError, BusyError, CleanupWarning, OutOfMemory
from tests.unit.memory.scene import SIZE, Scene

KINDS = ("allocate", "free", "copy_in", "copy_out", "create_stream", "create_event", "record", "stream_wait")


class Three(Scene):
    """Room for three: one written, one written on another stream, one clean; two are away."""

    def __init__(self) -> None:
        super().__init__(blocks=3)
        self.keys = self.adds(5)
        self.other = self.stream()
        self.write(self.keys[0], 11)
        self.write(self.keys[1], 12, stream=self.other)
        self.touch(self.keys[2])
        self.content = dict(zip(self.keys, (11, 12, 3, 4, 5), strict=True))


def use_one(scene: Three) -> None:
    scene.touch(scene.keys[3])


def use_all_there_is_room_for(scene: Three) -> None:
    with scene.manager.use_many([(scene.keys[3], "r"), (scene.keys[4], "r"), (scene.keys[0], "r")]):
        pass


def overwrite(scene: Three) -> None:
    with scene.manager.use(scene.keys[4], "w", scene.other) as address:
        scene.content[scene.keys[4]] = 55
        scene.fill(address, 55, scene.other)


def evict(scene: Three) -> None:
    for key in scene.keys[:3]:
        scene.manager.evict(key)


def read(scene: Three) -> None:
    for key in scene.keys:
        scene.value(key)


def prefetch(scene: Three) -> None:
    scene.manager.prefetch(scene.keys[3])
    scene.manager.prefetch(scene.keys[4], scene.other)


def reclaim(scene: Three) -> None:
    scene.manager.reclaim()


def lower(scene: Three) -> None:
    scene.manager.set_limit(hard=SIZE, soft=SIZE)


def release(scene: Three) -> None:
    del scene.content[scene.keys[1]]
    scene.manager.release(scene.keys[1])
    scene.manager.memory.purge()


CALLS: list[Callable[[Three], None]] = [
    use_one, use_all_there_is_room_for, overwrite, evict, read, prefetch, reclaim, lower, release,
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_a_driver_call_that_fails_costs_no_data(call: Callable[[Three], None], kind: str) -> None:
    errors = [BackendError, OutOfMemory]
    for k in range(1, 60):
        struck = False
        for error in errors:
            scene = Three()
            scene.driver.faults.fail(kind, k, error=error)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always", CleanupWarning)
                try:
                    call(scene)
                except (BackendError, OutOfMemory, BusyError):
                    pass
            struck = struck or bool(scene.driver.faults.strikes)
            leaked = sum("did not take back" in str(each.message) for each in told)
            scene.driver.faults.clear()
            scene.check()
            assert not scene.manager.pinned
            scene.manager.set_limit(hard=3 * SIZE, soft=None)
            for key, value in scene.content.items():
                assert scene.value(key) == value, f"{call.__name__}, {kind} call {k}"
                assert scene.on_device(key) == value
            scene.check()
            scene.manager.close()
            scene.other.close()
            assert len(scene.driver.live_blocks) == leaked
            assert not scene.driver.violations
            scene.driver.close()
        if not struck:
            return
    raise AssertionError("there is always one call more")


@pytest.mark.parametrize("kind", ["synchronize", "free", "destroy_stream", "destroy_event", "wait"])
def test_a_close_with_a_failing_driver_ends_and_tells(kind: str) -> None:
    scene = Three()
    scene.manager.release(scene.keys[1])
    scene.driver.faults.fail(kind, times=None, error=BackendError)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", CleanupWarning)
        try:
            scene.manager.close()
            raised = False
        except (BackendError, ExceptionGroup):
            raised = True
    assert raised or told or not scene.driver.faults.strikes
    scene.driver.faults.clear()
    scene.manager.close()
    assert scene.manager.ended
    scene.driver.run_until_idle()


def test_a_lost_context_leaves_the_books_right_and_the_close_quiet() -> None:
    """Everything that gives back does nothing, all else raises, as the guard of a lost context has it."""
    from lifetimes.resources.guard import GuardedDriver
    from lifetimes.testing.sim import SimDriver

    guarded = GuardedDriver(SimDriver(64 << 10))
    from lifetimes.manager import Manager

    manager = Manager(guarded)
    keys = [manager.add(np.full(SIZE, at, np.uint8)) for at in range(3)]
    for key in keys:
        with manager.use(key, "rw"):
            pass
    guarded.lose("reset by somebody else")
    manager.release(keys[0])
    manager.check_invariants()
    manager.close()
    assert manager.ended
    assert manager.memory.reserved == 0
