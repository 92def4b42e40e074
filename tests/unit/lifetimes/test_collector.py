"""The collector may run anywhere: dropped in a collection means queued, and nothing of lifetimes runs or waits in one."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import lifetimes
from lifetimes import Lifetime, locks
from lifetimes.cell import queue
from tests.unit.lifetimes.helpers import Runtime, Strike, check_quiet, no_collector, registered, run_script
from tests.unit.lifetimes.test_interrupts import ACTIONS, LIMIT

TIMEOUT = 20.0
STRIDE = 4
"""Of the steps of a call one in so many is disturbed: a step is one bytecode, and not each can make a difference."""


class Node(Lifetime[Any]):
    """A lifetime that can be part of a cycle."""

    __slots__ = ("other",)

    other: Any


def cycle(runtime: Runtime, *parents: Any, **options: Any) -> Node:
    handle = runtime.create()
    node = Node(handle, runtime.free, handle, parents=parents, **options)
    node.other = node
    return node


@pytest.fixture(autouse=True)
def collector_off() -> Iterator[None]:
    gc.collect()
    with no_collector():
        yield
    check_quiet()


def test_a_cycle_is_released_at_the_next_safe_point_and_not_in_the_collection() -> None:
    runtime = Runtime()
    cycle(runtime)
    gc.collect()
    assert runtime.log == []
    lifetimes.drain()
    runtime.check()


def test_a_cycle_is_released_by_the_next_ordinary_drop() -> None:
    runtime = Runtime()
    for _ in range(10):
        cycle(runtime)
    gc.collect()
    assert runtime.log == []
    del runtime.made[:]
    Lifetime(None)
    assert sorted(runtime.log) == list(range(1000, 1010))


def test_an_ordinary_drop_releases_at_most_so_many_others() -> None:
    """A drop must not stop the program for as long as a collection left work."""
    runtime = Runtime()
    for _ in range(1000):
        cycle(runtime)
    gc.collect()
    Lifetime(None)
    assert len(runtime.log) == 64
    lifetimes.drain()
    runtime.check()


def test_drop_in_a_finalizer_of_the_collection_is_queued() -> None:
    """Somebody's ``__del__`` drops the last reference while the collector runs it."""
    runtime = Runtime()

    class Holder:
        def __init__(self) -> None:
            self.me = self
            self.held = [cycle(runtime)]
            self.held[0].other = None

        def __del__(self) -> None:
            self.held.clear()
            assert runtime.log == []

    Holder()
    gc.collect()
    assert runtime.log == []
    lifetimes.drain()
    runtime.check()


def test_while_one_thread_collects_another_still_releases_at_once() -> None:
    runtime, started, done = Runtime(), threading.Event(), threading.Event()
    log: list[str] = []

    class Slow:
        """Its finalizer keeps the collection going until the other thread is through."""

        def __del__(self) -> None:
            started.set()
            assert done.wait(TIMEOUT)

    def other() -> None:
        assert started.wait(TIMEOUT)
        Lifetime(None, log.append, "released")
        log.append("then")
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    slow = Slow()
    slow.me = slow  # type: ignore[attr-defined]
    cycle(runtime)
    del slow
    gc.collect()
    thread.join(TIMEOUT)
    assert log == ["released", "then"]
    lifetimes.drain()
    runtime.check()


@pytest.mark.parametrize("name", ACTIONS)
def test_a_collection_at_any_step_changes_nothing(name: str) -> None:
    """gc.collect() at each line, bytecode, entry and return inside the package, with dead cycles about."""
    prepare, act = ACTIONS[name]
    before = registered()
    for step in range(list(ACTIONS).index(name) % STRIDE, LIMIT, STRIDE):
        runtime, garbage = Runtime(), Runtime()
        parent = cycle(garbage)
        cycle(garbage, parent)
        del parent

        def collect(runtime: Runtime = runtime, garbage: Runtime = garbage) -> None:
            count = len(runtime.log) + len(garbage.log)
            gc.collect(0)
            gc.collect(1)
            assert len(runtime.log) + len(garbage.log) == count, "a finalizer ran inside the collection"

        strike = Strike(step, collect)
        subject = prepare(runtime)
        strike.run(act, runtime, subject)
        runtime.task.finished = True
        if isinstance(subject, list):
            subject.clear()
        del subject
        gc.collect(1)
        check_quiet()
        runtime.check()
        garbage.check()
        assert garbage.log[-1] == 1000, "the parent went before its child"
        assert registered() == before, f"at step {step}: {strike.where}"
        if strike.where is None:
            return
    raise AssertionError("the call does not end")


def test_storm() -> None:
    """A collection at every allocation, while lifetimes come and go in cycles and chains."""
    runtime = Runtime()
    previous = gc.get_threshold()
    gc.enable()
    gc.set_threshold(1)
    try:
        keep: list[Any] = []
        for number in range(1500):
            node = cycle(runtime, *keep[-1:])
            if number % 3 == 0:
                node.other = keep[0] if keep else None
            keep.append(node)
            if number % 7 == 6:
                keep.clear()
            with node.use():
                pass
            if number % 11 == 10:
                node.close()
                keep.clear()
        keep.clear()
        del node
    finally:
        gc.set_threshold(*previous)
    gc.collect()
    lifetimes.drain()
    runtime.check()


# The library's lock.


def test_a_collection_while_this_thread_holds_the_lock_returns_and_frees_later() -> None:
    """JuliaGPU/CuArrays.jl#685: a finalizer waits for a lock that its own thread holds."""
    runtime = Runtime()
    plain = Lifetime(runtime.create(), runtime.free, 1000)
    cycle(runtime)
    with locks.lock:
        del plain
        assert runtime.log == []
        gc.collect()
        assert lifetimes.drain() == 0
        assert runtime.log == []
    assert len(queue) >= 2
    Lifetime(None)
    runtime.check()


def test_a_collection_while_another_thread_holds_the_lock_returns_and_frees_later() -> None:
    """JuliaGPU/CuArrays.jl#685: the same with the lock in the hands of another thread."""
    runtime, held, release = Runtime(), threading.Event(), threading.Event()

    def hold() -> None:
        with locks.lock:
            held.set()
            assert release.wait(TIMEOUT)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(TIMEOUT)
    cycle(runtime)
    gc.collect()  # would hang here
    assert runtime.log == []
    plain = Lifetime(runtime.create(), runtime.free, 1001)
    del plain  # a drop needs no lock: another thread's does not delay it
    runtime.check()
    release.set()
    thread.join(TIMEOUT)


def test_close_from_code_that_interrupted_the_library_happens_at_the_next_safe_point() -> None:
    """A signal handler or a tracer closes something while its own thread is inside the lock."""
    runtime = Runtime()
    root, pinned = ACTIONS["close"][0](runtime), Lifetime(None)
    with pinned.use("meanwhile"):
        with locks.lock:
            root.close()
            assert root.closed
            assert root.children[-1].closed
            assert runtime.log == []
            with pytest.raises(lifetimes.BusyError, match="meanwhile"):
                pinned.close()
            assert not pinned.closed
        lifetimes.drain()
    runtime.check()
    assert runtime.log == sorted(runtime.log, reverse=True)


def test_attaching_and_detaching_from_code_that_interrupted_the_library() -> None:
    runtime = Runtime()
    lifetime = Lifetime(runtime.create())
    with locks.lock:
        lifetime.add_finalizer(runtime.free, 1000)
        other = Lifetime(None, runtime.free, 7)
        assert other.detach() is None
        with lifetime.use():
            pass
    del lifetime, other
    runtime.check()
    assert runtime.log == [1000]


# Finalizers that do things.


def test_finalizers_may_allocate_close_drop_and_create() -> None:
    log: list[str] = []
    other = [Lifetime(None, log.append, "closed by another")]
    dropped = [Lifetime(None, log.append, "dropped by another")]
    made: list[Lifetime[Any]] = []

    def finalize() -> None:
        _ = [[] for _ in range(10_000)]
        other.pop().close()
        dropped.clear()
        assert log == ["closed by another"], "a drop inside a finalizer is not a recursion"
        assert lifetimes.drain() == 0, "a drain inside a finalizer leaves it to the loop around"
        made.append(Lifetime(None, log.append, "made by another"))

    lifetime = Lifetime(None, finalize)
    del lifetime
    assert log == ["closed by another", "dropped by another"]
    made.clear()
    assert log == ["closed by another", "dropped by another", "made by another"]


def test_a_finalizer_cannot_add_one_to_what_is_being_released() -> None:
    caught: list[str] = []

    def finalize(weak: Any) -> None:
        try:
            weak().add_finalizer(print, "too late")
        except lifetimes.ClosedError as error:
            caught.append(str(error))

    lifetime = Lifetime(None)
    lifetime.add_finalizer(finalize, lifetime.weak())
    lifetime.close()
    assert len(caught) == 1
    assert "a finalizer was added" in caught[0]


def test_a_finalizer_that_waits_for_a_drop_on_another_thread() -> None:
    """No lock is held while finalizers run, and one thread's draining does not keep another from releasing."""
    log, freed = list[str](), threading.Event()

    def wait() -> None:
        thread = threading.Thread(target=lambda: Lifetime(None, freed.set))
        thread.start()
        assert freed.wait(TIMEOUT)
        thread.join(TIMEOUT)
        log.append("both")

    lifetime = Lifetime(None, wait)
    del lifetime
    assert log == ["both"]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
def test_a_signal_handler_that_drops_and_allocates() -> None:
    """It runs between any two bytecodes of the main thread, those of the library included."""
    runtime, kept, beats = Runtime(), list[Any](), [0]

    def handle(number: int, frame: object) -> None:
        beats[0] += 1
        kept.clear()
        kept.extend(cycle(runtime) for _ in range(3))
        kept[0].other = None
        Lifetime.acquire(runtime.create, finalizer=runtime.free).close()
        with lifetimes.defer():
            kept.pop(0)

    previous = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
        while beats[0] < 300:
            root = ACTIONS["close"][0](runtime)
            with root.use():
                pass
            root.close()
            Lifetime.acquire(runtime.create, finalizer=runtime.free)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    kept.clear()
    del root
    gc.collect()
    lifetimes.drain()
    runtime.check()


def test_a_finalizer_that_fails_inside_a_logging_handler_is_told_later(tmp_path: Any) -> None:
    """getsentry/sentry-python#803: a finalizer logs while the interrupted code holds the lock of the log."""
    ended = run_script(
        """
        import faulthandler, logging
        faulthandler.dump_traceback_later(30, exit=True)
        log = logging.getLogger("test")
        told = []
        def fail(): raise ValueError("failed on purpose")
        class Handler(logging.Handler):
            def emit(self, record):  # called with the handler's lock held
                node = [Lifetime(None, fail)]
                node.append(node)
        class Told(logging.Handler):
            def emit(self, record):
                told.append(record)
        log.addHandler(Handler())
        log.setLevel(logging.INFO)
        warnings.simplefilter("always")
        logging.captureWarnings(True)  # a failed finalizer is told by way of logging: this very lock
        logging.getLogger("py.warnings").addHandler(Told())
        logging.getLogger("py.warnings").addHandler(log.handlers[0])
        gc.set_threshold(1)
        for _ in range(3000):
            log.info("x")
        gc.set_threshold(700)
        gc.collect()
        while lifetimes.drain():
            gc.collect()
            if len(told) > 20_000: break
        print(len(told) > 2000, all("failed on purpose" in str(record.msg % record.args) for record in told), flush=True)
        log.removeHandler(log.handlers[0])
        os._exit(0)
        """,
        tmp_path,
    )
    assert (ended.code, ended.out, ended.err) == (0, "True True\n", "")
