"""Ctrl-C at every step of every call: nothing is lost, nothing is released twice, nothing stays locked, pinned or busy.

A trace function raises `KeyboardInterrupt` at one event inside the package, each run at another one: every line, every
bytecode, every entry and return.  CPython delivers signals at far fewer points; debuggers and tracers use the others.
"""

from __future__ import annotations

import functools
import gc
import itertools
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

import lifetimes
from lifetimes import Lifetime, locks
from tests.unit.lifetimes.helpers import (
    Runtime,
    Strike,
    Task,
    check_quiet,
    interrupt,
    no_collector,
    registered,
    unraisable,
)

pytestmark = pytest.mark.filterwarnings("ignore::lifetimes.CleanupWarning")
LIMIT = 20_000
"""No call here has as many steps: a loop that gets there does not end."""


# Each action gets a runtime, and what the preparation before it returned.


def acquire(runtime: Runtime, parent: Lifetime[Any]) -> None:
    Lifetime.acquire(runtime.create, 1, finalizer=runtime.free, kind="buffer", parents=(parent,))


def acquire_and_keep(runtime: Runtime, parent: Lifetime[Any]) -> Any:
    return Lifetime.acquire(runtime.create, finalizer=runtime.free, parents=(parent, parent))


def use(runtime: Runtime, owned: Lifetime[Any]) -> None:
    with owned.use("inside") as value:
        assert value == owned.value


def close_after_use(runtime: Runtime, owned: Lifetime[Any]) -> None:
    with owned.use():
        pass
    owned.close()


def close(runtime: Runtime, owned: Lifetime[Any]) -> None:
    owned.close()


def close_waiting(runtime: Runtime, owned: Lifetime[Any]) -> None:
    owned.after(Task(finished=True))
    owned.close(wait=True)


def refused_close(runtime: Runtime, owned: Lifetime[Any]) -> None:
    with owned.use("on purpose"):
        try:
            owned.close()
        except lifetimes.BusyError:
            return
        raise AssertionError("it was closed although it was in use")


def leave_block(runtime: Runtime, owned: Lifetime[Any]) -> None:
    with owned:
        pass


def drop(runtime: Runtime, owned: list[Any]) -> None:
    owned.clear()


def drain(runtime: Runtime, owned: list[Any]) -> None:
    with lifetimes.defer():
        owned.clear()
        lifetimes.drain()


def deferred_block(runtime: Runtime, owned: list[Any]) -> None:
    with lifetimes.defer():
        owned.clear()


def drop_while_working(runtime: Runtime, owned: list[Any]) -> None:
    task = runtime.task = Task()
    owned[-1].after(task)
    owned.clear()
    lifetimes.drain()
    assert runtime.made[0] not in runtime.log
    task.finished = True
    lifetimes.drain()


def export(runtime: Runtime, owned: list[Any]) -> None:
    exported = owned[0].export("to C")
    owned.clear()
    exported.release()


def add_finalizers(runtime: Runtime, owned: Lifetime[Any]) -> None:
    handle = runtime.create()
    try:
        owned.add_finalizer(runtime.free, handle)
    except KeyboardInterrupt:
        runtime.made.remove(handle)  # either attached or not: which of them the log will tell
        raise


# Preparations: what the action gets.


def one(runtime: Runtime) -> Any:
    return Lifetime(0)


def family(runtime: Runtime) -> Any:
    """A root that holds its two children and their common child."""
    root = owner(runtime)
    left, right = owner(runtime, root), owner(runtime, root)
    leaf = owner(runtime, left, right)
    leaf.add_finalizer(int)  # a second one
    root.children = (left, right, leaf)
    return root


class Root(Lifetime[Any]):
    __slots__ = ("children",)

    children: tuple[Lifetime[Any], ...]


def owner(runtime: Runtime, *parents: Any) -> Root:
    return Root.acquire(runtime.create, finalizer=runtime.free, parents=parents)  # type: ignore[return-value]


def several(runtime: Runtime) -> list[Any]:
    """A parent, two children and a deferred one, oldest last, so that a clear drops the parent last."""
    parent = owner(runtime)
    deferred = Lifetime(runtime.create(), runtime.free, runtime.made[-1], deferred=True)
    return [owner(runtime, parent), owner(runtime, parent), deferred, parent]


ACTIONS: dict[str, tuple[Callable[[Runtime], Any], Callable[[Runtime, Any], Any]]] = {
    "acquire": (one, acquire),
    "acquire and keep": (one, acquire_and_keep),
    "use": (family, use),
    "use, then close": (family, close_after_use),
    "close": (family, close),
    "close, waiting": (family, close_waiting),
    "close, refused": (family, refused_close),
    "with block": (family, leave_block),
    "drop": (several, drop),
    "drain": (several, drain),
    "defer": (several, deferred_block),
    "work in flight": (several, drop_while_working),
    "export": (several, export),
    "add a finalizer": (family, add_finalizers),
}


ALWAYS_EVERYWHERE = ("acquire", "use", "close", "drain", "drop")


def strike_everywhere(
    prepare: Callable[[Runtime], Any], act: Callable[[Runtime, Any], Any], first: int = 0, stride: int = 1
) -> int:
    """Interrupt ``act`` at each of its steps in turn, or at one in so many; the number of steps."""
    before = registered()
    for step in range(first, LIMIT, stride):
        runtime = Runtime()
        strike = Strike(step, interrupt, also=(Runtime.free, Runtime.create))
        subject = prepare(runtime)
        with no_collector(), unraisable():
            try:
                strike.run(act, runtime, subject)
                for _ in range(3):  # a Ctrl-C that was delivered again strikes here at the latest
                    pass
            except KeyboardInterrupt:
                pass
            except BaseExceptionGroup as group:
                assert group.subgroup(KeyboardInterrupt) is not None  # noqa: PT017
        where = strike.where
        try:
            assert not locks.held_here()
            assert threading.get_ident() not in locks.busy
            runtime.task.finished = True
            if isinstance(subject, list):
                subject.clear()
            del subject
            check_quiet()
            runtime.check()
            assert registered() == before
        except BaseException as error:
            error.add_note(f"struck at step {step}: {where}")
            raise
        if where is None:
            return step
    raise AssertionError("the call does not end")


@pytest.mark.parametrize("name", ACTIONS)
def test_an_interrupt_at_any_step_leaves_nothing_behind(name: str) -> None:
    """Nothing lost after it is stored, nothing released twice; locks free, no mark left, pins gone.

    The calls that most others are made of at each step, the others at a third of them.
    """
    stride = 1 if name in ALWAYS_EVERYWHERE else 3
    assert strike_everywhere(*ACTIONS[name], list(ACTIONS).index(name) % stride, stride) > 50


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ACTIONS if name not in ALWAYS_EVERYWHERE])
def test_an_interrupt_at_every_single_step_leaves_nothing_behind(name: str) -> None:
    assert strike_everywhere(*ACTIONS[name]) > 50


def test_acquire_is_interrupted_at_five_hundred_points_at_least() -> None:
    """getkyo/kyo#1820: an interrupt between acquiring a resource and registering its finalizer."""
    points = strike_everywhere(one, acquire) + strike_everywhere(one, acquire_and_keep)
    assert points >= 500


def free_in_python(log: list[int], handle: int) -> None:
    log.append(handle)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
def test_real_signals_at_random_moments() -> None:
    """A handler that raises, a few hundred times, wherever the timer finds the program."""
    numbers, log, struck = itertools.count(), list[int](), [0]
    parents = [Lifetime(None)]

    def strike(number: int, frame: object) -> None:
        struck[0] += 1
        raise KeyboardInterrupt

    def program() -> None:
        while struck[0] < 400:
            # Created and freed in C, in one step each: what an interrupt can do to a function of the user's is his affair.
            held = [Lifetime.acquire(numbers.__next__, finalizer=log.append, parents=parents) for _ in range(3)]
            held.append(Lifetime.acquire(numbers.__next__, finalizer=functools.partial(free_in_python, log)))
            held[0].add_finalizer(int)
            with held[1].use():
                pass
            held.pop(0).close()
            with lifetimes.defer():
                held.pop()

    previous = signal.signal(signal.SIGALRM, strike)
    foreign: list[BaseException] = []
    with no_collector(), unraisable() as swallowed:
        while struck[0] < 400:
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0007)
                    program()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                pass
            except BaseExceptionGroup as group:
                foreign += [group] * (not struck_only(group))
        signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, previous)
    assert not foreign
    assert [error for error in swallowed if not isinstance(error, KeyboardInterrupt)] == []
    gc.collect()
    while lifetimes.drain():
        pass
    parents.clear()
    made = next(numbers)
    assert sorted(log) == list(range(made))
    assert made > 400
    check_quiet()


def struck_only(error: BaseException) -> bool:
    """Nothing but interrupts."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(struck_only, error.exceptions))
    return isinstance(error, KeyboardInterrupt)
