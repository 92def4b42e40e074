"""Ctrl-C at every step of every call: nothing is lost, nothing is released twice, nothing stays locked, pinned or busy.

A trace function raises `KeyboardInterrupt` at one event inside the package, each run at another one: every line, every
bytecode, every entry and return.  CPython delivers signals at far fewer points; debuggers and tracers use the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import lifetimes
from lifetimes import Lifetime, locks
from tests.unit.lifetimes.helpers import Runtime, Strike, check_quiet, interrupt, no_collector, registered, unraisable

pytestmark = pytest.mark.filterwarnings("ignore::lifetimes.CleanupWarning")
LIMIT = 20_000
"""No call here has as many steps: a loop that gets there does not end."""


class Work:
    """A task that has finished when the runtime says that all of it has."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def completed(self) -> bool:
        return self.runtime.idle


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
    runtime.idle = True
    owned.after(Work(runtime))
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
    owned[-1].after(Work(runtime))
    owned.clear()
    lifetimes.drain()
    assert runtime.made[0] not in runtime.log
    runtime.idle = True
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


def strike_everywhere(prepare: Callable[[Runtime], Any], act: Callable[[Runtime, Any], Any]) -> int:
    """Interrupt ``act`` at each of its steps in turn; the number of steps."""
    before = registered()
    for step in range(LIMIT):
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
            runtime.idle = True
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
    """Nothing lost after it is stored, nothing released twice; locks free, no mark left, pins gone."""
    assert strike_everywhere(*ACTIONS[name]) > 50


def test_acquire_is_interrupted_at_five_hundred_points_at_least() -> None:
    """getkyo/kyo#1820: an interrupt between acquiring a resource and registering its finalizer."""
    points = strike_everywhere(one, acquire) + strike_everywhere(one, acquire_and_keep)
    assert points >= 500
