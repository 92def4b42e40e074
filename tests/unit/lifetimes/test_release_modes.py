"""A drop while a lock is held that the finalizer takes: what happens in each mode; and what is a safe point.

The finalizer asks for the lock without waiting and notes "stuck" where a real one would wait for ever.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

import lifetimes
from lifetimes import Lifetime
from tests.unit.lifetimes.helpers import check_quiet, no_collector, run_script


class Guarded:
    """A pool whose finalizers take the lock under which it may drop things."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.log: list[str] = []

    def give_back(self) -> None:
        if self.lock.acquire(blocking=False):
            self.log.append("given back")
            self.lock.release()
        else:
            self.log.append("stuck")


@pytest.fixture(autouse=True)
def eager_afterwards() -> Iterator[None]:
    with no_collector():
        yield
    lifetimes.set_release_mode("eager")
    check_quiet()


MODES: dict[str, tuple[Callable[[], AbstractContextManager[Any]], bool, str, list[str], list[str]]] = {
    # around the locked region, deferred=, release mode, noted inside the lock, noted after the next safe point
    "eager": (nullcontext, False, "eager", ["stuck"], ["stuck"]),
    "deferred=True": (nullcontext, True, "eager", [], ["given back"]),
    "with defer()": (lifetimes.defer, False, "eager", [], ["given back"]),
    "safepoint": (nullcontext, False, "safepoint", [], ["given back"]),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ["dropped", "collected"])
def test_a_drop_under_a_lock_that_the_finalizer_takes(mode: str, how: str) -> None:
    """Eager is for finalizers that take no such lock: then the drop runs them where it stands."""
    around, deferred, release_mode, inside, after = MODES[mode]
    guarded = Guarded()
    lifetimes.set_release_mode(release_mode)  # type: ignore[arg-type]
    lifetime = Lifetime(None, guarded.give_back, deferred=deferred)
    holder: list[Any] = [lifetime]
    if how == "collected":
        holder.append(holder)
        inside, after = [], ["given back"]  # nothing runs inside a collection, in no mode
    del lifetime
    with around():
        with guarded.lock:
            del holder
            if how == "collected":
                gc.collect()
            assert guarded.log == inside
    lifetimes.drain()
    assert guarded.log == after


def test_the_eager_mode_really_stands_still_there(tmp_path: Any) -> None:
    """The one case of the table that must not be used, and the same program with deferred=True."""
    script = """
        import faulthandler
        faulthandler.dump_traceback_later({patience}, exit=True)
        lock = threading.Lock()
        def give_back():
            with lock:
                free("given back")
        x = Lifetime(None, give_back, deferred={deferred})
        with lock:
            del x
        lifetimes.drain()
    """
    ended = run_script(script.format(patience=1, deferred=False), tmp_path)
    assert ended.code == 1
    assert "in give_back" in ended.err
    assert ended.freed == []
    ended = run_script(script.format(patience=30, deferred=True), tmp_path)
    assert (ended.code, ended.err, ended.freed) == (0, "", ["given back"])


def test_a_deferred_one_waits_for_a_safe_point_and_not_for_a_drop() -> None:
    log: list[str] = []
    deferred = Lifetime(None, log.append, "deferred", deferred=True)
    del deferred
    for _ in range(3):
        Lifetime(None, log.append, "other")
    assert log == ["other"] * 3
    lifetimes.drain()
    assert log == ["other"] * 3 + ["deferred"]


def test_a_deferred_child_keeps_its_parent_until_the_safe_point() -> None:
    log: list[str] = []
    parent = Lifetime(None, log.append, "parent")
    child = Lifetime(None, log.append, "child", parents=[parent], deferred=True)
    del child, parent
    assert log == []
    lifetimes.drain()
    assert log == ["child", "parent"]


def close_something() -> None:
    Lifetime(None).close()


def acquire_something() -> None:
    kept = Lifetime.acquire(int, finalizer=abs)
    assert kept.value == 0


def leave_a_defer() -> None:
    with lifetimes.defer():
        pass


@pytest.mark.parametrize("safe_point", [close_something, acquire_something, leave_a_defer, lifetimes.drain])
def test_safe_points(safe_point: Callable[[], object]) -> None:
    log: list[str] = []
    for options in ({"deferred": True}, {}):
        lifetimes.set_release_mode("eager" if options else "safepoint")
        dropped = Lifetime(None, log.append, "released", **options)  # type: ignore[arg-type]
        del dropped
        assert log == []
        safe_point()
        assert log == ["released"]
        log.clear()


def test_making_a_lifetime_is_no_safe_point() -> None:
    """It may be made under a lock that finalizers take: ``with lock: return Lifetime(...)``."""
    log: list[str] = []
    deferred = Lifetime(None, log.append, "released", deferred=True)
    del deferred
    kept = Lifetime(None)
    assert log == []
    kept.close()
    assert log == ["released"]


def test_defer_blocks_nest_and_are_of_one_thread() -> None:
    log: list[str] = []

    def drop(name: str) -> None:
        Lifetime(None, log.append, name)

    with lifetimes.defer():
        drop("outer")
        with lifetimes.defer():
            drop("inner")
        assert log == []
        thread = threading.Thread(target=drop, args=("other thread",))
        thread.start()
        thread.join()
        # A drop drains the queue, whoever filled it: the block is there for the locks of its own thread.
        assert "other thread" in log
        log.clear()
        drop("again")
        assert log == []
        assert lifetimes.drain() == 1
        assert log == ["again"]
    drop("last")
    assert log == ["again", "last"]


def test_a_defer_that_dies_in_a_generator_ends() -> None:
    def block() -> Iterator[None]:
        with lifetimes.defer():
            yield

    blocks = [block(), block()]
    for each in blocks:
        next(each)
    log: list[str] = []
    Lifetime(None, log.append, "released")
    assert log == []
    blocks.clear()
    assert log == ["released"]


def test_a_defer_is_entered_once_at_a_time() -> None:
    block = lifetimes.defer()
    with block:
        with pytest.raises(RuntimeError, match="once"), block:
            pass
    with block:
        pass


def test_leaving_a_defer_by_an_exception_ends_it() -> None:
    log: list[str] = []
    with pytest.raises(ValueError):
        with lifetimes.defer():
            Lifetime(None, log.append, "released")
            raise ValueError
    assert log == ["released"]


def test_release_mode_is_checked_and_told() -> None:
    assert lifetimes.get_release_mode() == "eager"
    lifetimes.set_release_mode("safepoint")
    lifetimes.set_release_mode("safepoint")
    assert lifetimes.get_release_mode() == "safepoint"
    lifetimes.set_release_mode("eager")
    assert lifetimes.get_release_mode() == "eager"
    with pytest.raises(ValueError, match="'lazy'"):
        lifetimes.set_release_mode("lazy")  # type: ignore[arg-type]


def test_drain_counts_and_stops_at_its_limit() -> None:
    log: list[int] = []
    with lifetimes.defer():
        for number in range(10):
            Lifetime(None, log.append, number)
        assert lifetimes.drain(0) == 0
        assert lifetimes.drain(3) == 3
        assert log == [0, 1, 2]
        assert lifetimes.drain() == 7
        assert lifetimes.drain() == 0
