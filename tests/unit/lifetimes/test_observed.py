"""Under profilers and tracers: the same results."""

from __future__ import annotations

import cProfile
import gc
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import lifetimes
from lifetimes import Lifetime
from tests.unit.lifetimes.helpers import PACKAGE, Task, check_quiet, no_collector


def program() -> list[Any]:
    """A bit of everything; what it returns is what it did, in order."""
    log: list[Any] = []
    context = Lifetime("context", log.append, "context")
    stream = Lifetime("stream", log.append, "stream", parents=[context])
    array = Lifetime.acquire(list, "ab", finalizer=log.append, parents=[context, stream])
    array.add_finalizer(log.append, "array")
    task = Task()
    array.after(task)
    node = [Lifetime("node", log.append, "node", parents=[stream], deferred=True)]
    node.append(node)  # type: ignore[arg-type]
    with array.use("in use") as value:
        log.append(value)
        try:
            context.close()
        except lifetimes.BusyError:
            log.append("busy")
    del context, node
    gc.collect()
    with lifetimes.defer():
        del array
        log.append("deferred")
    lifetimes.drain()
    log.append("waiting")
    task.finished = True
    thread = threading.Thread(target=stream.close)
    thread.start()
    thread.join()
    del stream, thread
    lifetimes.drain()
    return log


def watch(frame: Any, event: str, arg: Any) -> Any:
    """Allocates and collects inside the library, makes and drops lifetimes of its own outside."""
    if frame.f_code.co_filename.startswith(PACKAGE):
        gc.collect(0)
    elif frame.f_code.co_filename == __file__:
        held = [Lifetime(event, int)]
        held.append(held)  # type: ignore[arg-type]
        Lifetime(None, int)
    return watch


@contextmanager
def profiled() -> Iterator[None]:
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)


@contextmanager
def traced() -> Iterator[None]:
    previous = sys.gettrace()
    sys.settrace(watch)
    try:
        yield
    finally:
        sys.settrace(previous)


@contextmanager
def opcodes() -> Iterator[None]:
    def trace(frame: Any, event: str, arg: Any) -> Any:
        frame.f_trace_opcodes = True
        return watch(frame, event, arg) and trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(previous)


@contextmanager
def threads_too() -> Iterator[None]:
    threading.setprofile(watch)
    threading.settrace(watch)
    try:
        with profiled(), traced():
            yield
    finally:
        threading.setprofile(None)
        threading.settrace(None)


@contextmanager
def profiler() -> Iterator[None]:
    profile = cProfile.Profile()
    profile.enable()
    try:
        yield
    finally:
        profile.disable()


@contextmanager
def memory_traced() -> Iterator[None]:
    tracemalloc.start(5)
    try:
        yield
    finally:
        tracemalloc.stop()


@contextmanager
def recorded() -> Iterator[None]:
    """Everybody who listens to the library itself."""
    heard: list[str] = []

    def listen(name: str, key: int, details: dict[str, Any]) -> None:
        heard.append(name)
        with lifetimes.defer():
            pass

    lifetimes.instrument.subscribe(listen)
    lifetimes.set_stacks("full")
    try:
        yield
    finally:
        lifetimes.set_stacks("off")
        lifetimes.instrument.unsubscribe(listen)
    assert heard.count("create") == heard.count("release") > 0


OBSERVERS = [profiled, traced, opcodes, threads_too, profiler, memory_traced, recorded]


@pytest.mark.parametrize("observer", OBSERVERS)
def test_the_same_results(observer: Callable[[], Any]) -> None:
    with no_collector():
        expected = program()
        with observer():
            got = program()
    assert [str(each) for each in got] == [str(each) for each in expected]
    assert expected[0] == ["a", "b"]
    assert expected[-1] == "context"
    assert len(expected) == 9, expected
    check_quiet()
