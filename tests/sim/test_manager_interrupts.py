"""Ctrl-C at every step of every call: pins, counts and content are right afterwards."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lifetimes.errors import CleanupWarning
from lifetimes.locks import lock
from lifetimes.manager import Manager
from lifetimes.manager.letting_go import let_go
from lifetimes.manager.moves import tend_soon
from lifetimes.testing.disturb import interrupt, run_disturbed
from lifetimes.testing.sim import SimDriver
from tests.unit.memory.scene import LONG

SIZE = 1000


def interrupt_the_library() -> None:
    """Not inside the simulated device, which is no part of what is tested here."""
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(("lifetimes.testing.sim", "lifetimes.testing.faults")):
            return
        frame = frame.f_back
    interrupt()


class Scene:
    """Four arrays over a limit of three: resident and clean, resident and written, evicted, uninitialised."""

    def __init__(self, tmp_path: Any = None) -> None:
        self.driver = SimDriver(64 << 10)
        options = {} if tmp_path is None else {"host_limit": 6000, "spill_dir": tmp_path}
        self.manager = manager = Manager(
            self.driver, memory_limit=3072, pin_timeout=0.0, collect_garbage=False, **options
        )
        self.content = {}
        self.clean, self.dirty, self.away = (self.add(number) for number in (1, 2, 3))
        self.empty = manager.add(SIZE)
        with manager.use(self.clean):
            pass
        new = np.full(SIZE, 77, np.uint8)
        with manager.use(self.dirty, "rw") as address:
            self.driver.call(np.copyto, (self.driver.view(address, SIZE), new), manager.stream.handle)
        self.content[self.dirty] = new
        self.more = [] if tmp_path is None else [self.add(number) for number in range(4, 8)]

    def add(self, number: int) -> int:
        content = np.full(SIZE, number, np.uint8)
        key = self.manager.add(content)
        self.content[key] = content
        return key

    def check(self, what: str) -> None:
        manager = self.manager
        manager.statistics()
        manager.check_invariants()
        assert not manager.pinned, what
        manager.reclaim("idle")  # what is given back while work is in flight on it, the device tells
        assert not self.driver.violations, what
        for key, content in self.content.items():
            if manager.table.get(key) is not None:
                assert np.array_equal(manager.read(key, np.empty(SIZE, np.uint8)), content), f"{what}: array #{key}"
        # Nothing is stuck: everything can still be used, evicted and given back.
        for key in list(self.content):
            if manager.table.get(key) is not None:
                with manager.use(key):
                    pass
                assert manager.evict(key), what
        manager.check_invariants()
        manager.close()
        assert self.driver.live_blocks == {}, what
        assert self.driver.live_streams == [], what
        assert self.driver.live_events == [], what
        assert not self.driver.violations, what
        self.driver.close()


def use_resident(scene: Scene) -> None:
    with scene.manager.use(scene.clean):
        pass


def write_resident(scene: Scene) -> None:
    with scene.manager.use(scene.dirty, "rw"):
        pass


def upload(scene: Scene) -> None:
    with scene.manager.use(scene.away):
        pass


def upload_by_evicting(scene: Scene) -> None:
    with scene.manager.use(scene.empty, "rw"):
        with scene.manager.use(scene.away):
            pass


def use_many(scene: Scene) -> None:
    with scene.manager.use_many([(scene.away, "r"), (scene.dirty, "r"), (scene.empty, "w")]):
        pass


def too_many(scene: Scene) -> None:
    try:
        with scene.manager.use_many([(scene.away, "r"), (scene.dirty, "r"), (scene.empty, "r"), (scene.clean, "r")]):
            pass
    except MemoryError:
        pass


def evict_written(scene: Scene) -> None:
    scene.manager.evict(scene.dirty)


def evict_clean(scene: Scene) -> None:
    scene.manager.evict(scene.clean)


def cancel_eviction(scene: Scene) -> None:
    manager = scene.manager
    with manager.use(scene.empty, "w"), manager.use(scene.away):
        pass
    with manager.use(scene.dirty):
        pass


def prefetch(scene: Scene) -> None:
    scene.manager.prefetch(scene.away)


def add_and_release(scene: Scene) -> None:
    key = scene.add(9)
    scene.manager.release(key)
    del scene.content[key]


def release_pinned(scene: Scene) -> None:
    with scene.manager.use(scene.clean):
        scene.manager.release(scene.clean)


def read(scene: Scene) -> None:
    for key in (scene.clean, scene.dirty, scene.away):
        scene.manager.read(key, np.empty(SIZE, np.uint8))


def reclaim(scene: Scene) -> None:
    scene.manager.evict(scene.clean)  # so that there is something to give back
    scene.manager.reclaim("wait")


def shrink(scene: Scene) -> None:
    scene.manager.set_limit(hard=1024, soft=512)


def adopt(scene: Scene) -> None:
    address = 1 << 40
    key = scene.manager.adopt(address, 100)
    scene.manager.owner_of(address)
    scene.manager.release(key)


def statistics(scene: Scene) -> None:
    scene.manager.statistics()


CALLS: list[Callable[[Scene], None]] = [
    use_resident, write_resident, upload, upload_by_evicting, use_many, too_many, evict_written, evict_clean,
    cancel_eviction, prefetch, add_and_release, release_pinned, read, reclaim, shrink, adopt, statistics,
]  # fmt: skip


@pytest.mark.parametrize("stride", [29, pytest.param(1, marks=LONG)], ids=["one in 29", "all"])
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
@pytest.mark.thread_unsafe(reason="sets a trace function")
def test_ctrl_c_at_any_step_leaves_pins_counts_and_content_right(call: Callable[[Scene], None], stride: int) -> None:
    """At one in so many steps, different ones for each call, or at all of them."""
    struck = 0
    for step in range(CALLS.index(call) % stride, 5000, stride):
        scene = Scene()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CleanupWarning)
            try:
                if not run_disturbed(call, scene, step=step, act=interrupt_the_library, after_calls=True):
                    scene.check(f"{call.__name__} undisturbed")
                    break
            except KeyboardInterrupt:
                struck += 1
            gc.collect()  # the trace function of the test and the frames it has seen refer to each other
            scene.check(f"{call.__name__} at step {step}")
    else:
        raise AssertionError("the call never ends")
    assert struck > 40 // stride


@pytest.mark.thread_unsafe(reason="sets a trace function")
def test_what_was_put_off_is_not_lost_when_ctrl_c_strikes_it() -> None:
    """An array that was released by whoever interrupted the library goes, and goes once."""
    for step in range(500):
        scene = Scene()
        with lock:
            scene.manager.release(scene.dirty)
        assert scene.manager.get(scene.dirty) is not None
        try:
            reached = run_disturbed(scene.manager.run_late, step=step, act=interrupt, after_calls=True)
        except KeyboardInterrupt:
            reached = True
        gc.collect()
        scene.manager.run_late()
        assert scene.manager.get(scene.dirty) is None, f"step {step}"
        assert not scene.manager.late
        scene.manager.close()
        if not reached:
            break
    assert step > 20


@pytest.mark.parametrize("stride", [29, pytest.param(1, marks=LONG)], ids=["one in 29", "all"])
@pytest.mark.thread_unsafe(reason="sets a trace function")
def test_ctrl_c_in_what_was_put_off_when_a_handle_goes(stride: int) -> None:
    """Its storage is let go, and then what waits is done: here, aiming at a soft limit."""
    struck = 0
    for step in range(0, 5000, stride):
        scene = Scene()
        with lock:
            scene.manager.memory.soft = SIZE
            scene.manager.waiting.attention += 1
            tend_soon(scene.manager)
        del scene.content[scene.clean]
        try:
            if not run_disturbed(
                let_go, scene.manager, scene.clean, step=step, act=interrupt_the_library, after_calls=True
            ):
                break
        except KeyboardInterrupt:
            struck += 1
        gc.collect()
        scene.check(f"step {step}")
    assert struck > 200 // stride
