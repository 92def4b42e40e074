"""Many threads at once: every count returns to zero, each finalizer runs once, and nobody waits for ever."""

from __future__ import annotations

import faulthandler
import functools
import gc
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import lifetimes
from lifetimes import BusyError, ClosedError, Lifetime, closing, locks
from lifetimes.cell import live
from tests.unit.lifetimes.helpers import Runtime, Task, check_quiet

THREADS = 8


def run_threads(bodies: Sequence[Callable[[], object]], patience: float) -> None:
    """All at once; an exception in one fails the test, and a hang shows every stack."""
    failed: list[BaseException] = []
    ready = threading.Barrier(len(bodies))

    def run(body: Callable[[], object]) -> None:
        try:
            ready.wait(30)
            body()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(body,), daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + patience
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        faulthandler.dump_traceback(all_threads=True)
        pytest.fail("deadlock: the stacks are above")
    if failed:
        raise failed[0]


class Node(Lifetime[Any]):
    __slots__ = ("other",)

    other: Any


def worker(runtime: Runtime, seed: int, shared: list[Any], until: float) -> None:
    """Makes, drops, closes, uses, exports and detaches, alone and together with the others."""
    dice = random.Random(seed)
    mine: list[Any] = []
    while time.monotonic() < until:
        for _ in range(50):
            act(dice, runtime, mine, shared)
    mine.clear()


def act(dice: random.Random, runtime: Runtime, mine: list[Any], shared: list[Any]) -> None:
    among = mine if dice.random() < 0.6 or not shared else shared
    try:
        chosen = dice.choice(among) if among else None
    except IndexError:  # another thread was faster
        chosen = None
    kind = dice.randrange(10)
    try:
        if kind < 4 or chosen is None:
            parents = [chosen] if chosen is not None and dice.random() < 0.6 else []
            options = {"deferred": dice.random() < 0.1, "parents": parents}
            made = Node.acquire(runtime.create, finalizer=runtime.free, **options)
            made.other = made if dice.random() < 0.2 else None  # type: ignore[attr-defined]
            (mine if dice.random() < 0.7 else shared).append(made)
        elif kind == 4:
            chosen.close()
        elif kind == 5:
            with chosen.use():
                Lifetime(None, parents=[chosen])
        elif kind == 6:
            chosen.after(Task(finished=dice.random() < 0.5))
        elif kind == 7:
            export = chosen.export()
            with lifetimes.defer():
                export.release()
        elif kind == 8:
            chosen.add_finalizer(int)
        else:
            lifetimes.drain()
            lifetimes.live()
    except (BusyError, ClosedError):
        pass
    if len(mine) > 30:
        del mine[dice.randrange(30) :]
    if len(shared) > 60:
        del shared[:40]


class Counter(Runtime):
    """Numbers that two threads never share."""

    def create(self, *args: Any) -> int:
        self.made.append(0)
        handle = next(NUMBERS)
        self.log.append(handle)
        return handle

    def free(self, handle: Any) -> None:
        self.log.remove(handle)  # raises if it is freed twice
        self.made.pop()


NUMBERS = iter(range(10**12))


def churn(seconds: float) -> None:
    runtime, shared = Counter(), list[Any]()
    before = len(live)
    until = time.monotonic() + seconds
    previous = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        bodies = [lambda seed=seed: worker(runtime, seed, shared, until) for seed in range(THREADS)]
        run_threads(bodies, seconds + 60)
    finally:
        sys.setswitchinterval(previous)
    for cell in list(live.values()):  # the work that was left in flight ends
        for holder in list(cell.holders.values()):
            if holder.holds == "pending":
                holder.task.finished = True
    shared.clear()
    gc.collect()
    lifetimes.drain()
    assert runtime.log == []
    assert runtime.made == []
    assert len(live) == before
    check_quiet()


def test_eight_threads_for_three_seconds() -> None:
    churn(3.0)


@pytest.mark.stress
@pytest.mark.slow
def test_eight_threads_for_twenty_seconds() -> None:
    churn(20.0)


def test_sixteen_threads_close_together() -> None:
    """JuliaGPU/AMDGPU.jl#353: close() from several threads at once releases once."""
    for _ in range(30):
        log: list[str] = []
        base = Lifetime("base", log.append, "base")
        views = [Lifetime(None, log.append, f"view {number}", parents=[base]) for number in range(3)]
        run_threads([base.close for _ in range(16)], 30)
        assert log == ["view 2", "view 1", "view 0", "base"]
        assert all(view.closed for view in views)


def test_closing_and_dropping_race_for_one_release() -> None:
    for _ in range(100):
        log: list[int] = []
        parent = Lifetime(None)
        held = [Lifetime(None, log.append, 1, parents=[parent])]
        run_threads([parent.close, held.clear, lifetimes.drain], 30)
        lifetimes.drain()
        assert log == [1]


def test_use_races_with_close() -> None:
    """Either the use comes first and the close is refused, or it is told that it came too late."""
    outcomes = set()
    for _ in range(200):
        log: list[str] = []
        lifetime = Lifetime("value", log.append, "freed")
        entered, closed = list[bool](), list[bool]()

        def use(lifetime: Any = lifetime, entered: list[bool] = entered, log: list[str] = log) -> None:
            try:
                with lifetime.use():
                    entered.append(not log)
            except ClosedError:
                pass

        def close(lifetime: Any = lifetime, closed: list[bool] = closed) -> None:
            try:
                lifetime.close()
                closed.append(True)
            except BusyError:
                pass

        run_threads([use, close, use], 30)
        assert all(entered), "released under a use"
        outcomes.add((len(entered), bool(closed)))
        lifetime.close()
    assert outcomes


def test_a_use_that_begins_while_a_close_decides_waits_for_the_decision() -> None:
    """Staged: the close stands between its mark and its look at the pins."""
    lifetime, child = Lifetime("parent"), None
    child = Lifetime("child", parents=[lifetime])
    marked, go_on = threading.Event(), threading.Event()
    original = closing.held_by

    def stop_there(cells: Any, holds: str) -> Any:
        marked.set()
        assert go_on.wait(30)
        return original(cells, holds)

    results: list[Any] = []
    pin = child.use("before the mark")
    pin.__enter__()

    def close() -> None:
        try:
            lifetime.close()
        except BusyError as error:
            results.append(type(error))

    def use() -> None:
        with lifetime.use() as value:
            results.append(value)

    closing.held_by = stop_there
    try:
        closer = threading.Thread(target=close)
        closer.start()
        assert marked.wait(30)
        users = [threading.Thread(target=use) for _ in range(3)]
        for user in users:
            user.start()
        assert results == []
        # What is dropped and released meanwhile must not be released by anybody: it may turn out not to be closed.
        lifetimes.drain()
        go_on.set()
        for thread in (closer, *users):
            thread.join(30)
    finally:
        closing.held_by = original
    assert sorted(map(str, results)) == sorted(map(str, [BusyError, "parent", "parent", "parent"]))
    assert not lifetime.closed
    assert not child.closed
    del pin
    lifetime.close()


def test_a_refused_close_keeps_what_became_ready_meanwhile() -> None:
    """Between the mark and the refusal the last holder of a sibling goes: the sibling is as open as before."""
    log: list[str] = []
    root = Lifetime("root", log.append, "root")
    pinned = Lifetime("pinned", log.append, "pinned", parents=[root])
    sibling = Lifetime("sibling", log.append, "sibling", parents=[root])
    grandchild = [Lifetime("grandchild", log.append, "grandchild", parents=[sibling])]
    dropped = Lifetime("dropped", log.append, "dropped", parents=[root])
    original = closing.held_by

    def meanwhile(cells: Any, holds: str) -> Any:
        def drop_there() -> None:
            grandchild.clear()
            lifetimes.drain()

        nonlocal dropped
        other = threading.Thread(target=drop_there)
        other.start()
        other.join(30)
        return original(cells, holds)

    with pinned.use("meanwhile"):
        closing.held_by = meanwhile
        try:
            with pytest.raises(BusyError):
                root.close()
        finally:
            closing.held_by = original
        lifetimes.drain()
        assert log == ["grandchild"]
        assert not sibling.closed
        with sibling.use() as value:
            assert value == "sibling"
    del dropped
    assert log == ["grandchild", "dropped"]
    root.close()
    assert log == ["grandchild", "dropped", "sibling", "pinned", "root"]


def test_a_handle_dropped_while_a_close_decides_is_not_lost() -> None:
    """The close is refused and puts the states back; the drop that came in between stands."""
    log: list[str] = []
    root = Lifetime("root", log.append, "root")
    pinned = Lifetime("pinned", log.append, "pinned", parents=[root])
    held = [Lifetime("held", log.append, "held", parents=[root])]
    original = closing.held_by

    def meanwhile(cells: Any, holds: str) -> Any:
        with lifetimes.defer():
            other = threading.Thread(target=held.clear)
            other.start()
            other.join(30)
        return original(cells, holds)

    with pinned.use():
        closing.held_by = meanwhile
        try:
            with pytest.raises(BusyError):
                root.close()
        finally:
            closing.held_by = original
    lifetimes.drain()
    assert log == ["held"]
    root.close()


def test_a_drain_while_a_close_decides_loses_nothing_that_waited() -> None:
    """Dropped before, in the queue, and found marked by a drain of another thread: it is released after the refusal."""
    log: list[str] = []
    root = Lifetime("root", log.append, "root")
    pinned = Lifetime("pinned", log.append, "pinned", parents=[root])
    waiting = Lifetime("waiting", log.append, "waiting", parents=[root], deferred=True)
    del waiting
    original = closing.held_by

    def meanwhile(cells: Any, holds: str) -> Any:
        other = threading.Thread(target=lifetimes.drain)
        other.start()
        other.join(30)
        assert log == []
        return original(cells, holds)

    with pinned.use():
        closing.held_by = meanwhile
        try:
            with pytest.raises(BusyError):
                root.close()
        finally:
            closing.held_by = original
    lifetimes.drain()
    assert log == ["waiting"]
    root.close()


def test_a_parent_is_not_closed_while_a_child_is_being_created() -> None:
    """It would take the child along before there is anything to free, and what is created then would be lost."""
    freed: list[str] = []
    parent = Lifetime("parent", freed.append, "parent")
    refused: list[BaseException] = []

    def close() -> None:
        try:
            parent.close()
        except BusyError as error:
            refused.append(error)

    def create() -> str:
        other = threading.Thread(target=close)
        other.start()
        other.join(30)
        return "child"

    child = Lifetime.acquire(create, finalizer=freed.append, parents=[parent])
    assert "being created" in str(refused[0])
    assert child.value == "child"
    parent.close()
    assert freed == ["child", "parent"]


def test_threads_attach_finalizers_to_one_lifetime() -> None:
    """None is lost, each runs once."""
    for _ in range(20):
        log: list[int] = []
        lifetime = Lifetime(None)

        def attach(first: int, lifetime: Any = lifetime, log: list[int] = log) -> None:
            for number in range(first, first + 20):
                lifetime.add_finalizer(log.append, number)

        run_threads([functools.partial(attach, first) for first in range(0, 160, 20)], 30)
        lifetime.close()
        assert sorted(log) == list(range(160))


def test_the_lock_is_free_when_a_finalizer_runs() -> None:
    """And so in another thread, which would otherwise wait for it."""
    free: list[bool] = []

    def ask() -> None:
        def other() -> None:
            free.append(locks.lock.acquire(timeout=5))
            locks.lock.release()

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    Lifetime(None, ask)
    Lifetime(None, ask).close()
    with lifetimes.defer():
        Lifetime(None, ask)
    assert free == [True] * 3
