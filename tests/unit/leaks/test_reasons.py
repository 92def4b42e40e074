"""Why something is alive: every planted kind is named, by the line that made it and by what holds it."""

from __future__ import annotations

import atexit
import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import lifetimes
from lifetimes import Lifetime, live, why
from lifetimes.leaks import reasons
from lifetimes.leaks.reasons import explain
from lifetimes.leaks.roots import Roots, local_variables
from lifetimes.leaks.tracebacks import chain, clear_tracebacks
from tests.unit.leaks import planted as garden
from tests.unit.leaks.planted import KINDS, line_of

WHERE = "tests.unit.leaks."


@contextmanager
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.usefixtures("lines", "planted")
@pytest.mark.parametrize("kind", KINDS)
def test_each_planted_leak_is_named_by_its_line_and_its_holder(kind: str) -> None:
    plant, reason, words = KINDS[kind]
    with no_collection():
        plant()
        if kind != "cycle":
            gc.collect()
        (row,) = live(label=kind)
        found = why(row)
    assert row.origin is not None
    assert row.origin.startswith(f"{garden.__file__}:{line_of(kind)} in ")
    assert found.reason == reason
    assert found.held_by.removeprefix(WHERE).startswith(words), found.held_by
    assert found.name in str(found)


@pytest.mark.usefixtures("lines", "planted")
@pytest.mark.parametrize(
    ("kind", "goes_on"),
    [
        ("export", "planted.kept[0] has not released"),
        ("child", f"made at {garden.__file__}:"),
    ],
)
def test_what_keeps_a_thing_whose_handle_is_gone_is_followed_to_its_root(kind: str, goes_on: str) -> None:
    KINDS[kind][0]()
    (row,) = live(label=kind)
    assert goes_on in why(row.key).held_by


def test_a_cycle_is_left_as_it_was() -> None:
    """The search itself must not collect, nor keep, what it looks at."""
    with no_collection():
        garden.cycle()
        (row,) = live(label="cycle")
        assert why(row).reason == "cycle"
        assert why(row).reason == "cycle"
        assert live(label="cycle")
    gc.collect()
    lifetimes.drain()
    assert not live(label="cycle")


def test_a_local_variable_of_a_running_call_is_named() -> None:
    here = Lifetime("x", label="here")
    found = why(here.key)
    assert found.reason == "local variable"
    assert found.held_by.startswith("local variable 'here' of test_a_local_variable_of_a_running_call_is_named (")


def test_a_local_variable_of_another_thread_is_named_with_its_thread() -> None:
    made, done = threading.Event(), threading.Event()

    def work() -> None:
        mine = Lifetime("x", label="there")
        made.set()
        done.wait()
        del mine

    thread = threading.Thread(target=work, name="worker 7")
    thread.start()
    made.wait()
    try:
        (row,) = live(label="there")
        assert "local variable 'mine' of" in why(row).held_by
        assert why(row).held_by.endswith("in thread 'worker 7'")
    finally:
        done.set()
        thread.join()


def test_an_open_with_block_is_named_with_its_thread() -> None:
    def use() -> Any:
        with Lifetime("x", label="used").use("a copy"):
            (row,) = live(label="used")
            return why(row)

    found = use()
    assert found.reason == "pin"
    assert found.held_by.startswith("a pin (a copy), in a `with` block of thread 'MainThread', now at ")


def test_looking_at_locals_keeps_nothing_alive() -> None:
    """Before Python 3.13 a look at a frame's variables leaves a copy of them there."""
    died: list[str] = []

    class Value:
        pass

    def call() -> None:
        value = Value()
        weakref.finalize(value, died.append, "value")
        Roots()
        explain([row.key for row in live()][:1])
        del value
        assert died == ["value"]

    call()


def test_a_copy_of_the_locals_that_somebody_has_is_left_alone() -> None:
    value = object()
    copy = locals()
    assert local_variables(sys._getframe())["value"] is value
    assert copy["value"] is value


def test_variables_survive_a_search_from_within_a_tracer() -> None:
    """A tracer's copy is written back to the variables, so an emptied one would empty them."""
    seen: list[object] = []

    def trace(frame: Any, event: str, arg: object) -> Any:
        if event == "line" and frame.f_code.co_name == "traced":
            Roots()
        return trace

    def traced() -> None:
        value = "still here"
        other = 1
        seen.append((value, other))

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        traced()
    finally:
        sys.settrace(before)
    assert seen == [("still here", 1)]


def test_nobodys_code_runs_while_references_are_read() -> None:
    class Hostile:
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(f"asked for {name}")

        def __repr__(self) -> str:
            raise AssertionError("asked for its repr")

        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

        def __hash__(self) -> int:
            return 7

    hostile = Hostile()
    object.__setattr__(hostile, "buffer", Lifetime("x", label="in hostile hands"))
    garden.names[hostile] = [hostile]  # type: ignore[index]
    (row,) = live(label="in hostile hands")
    try:
        assert why(row).held_by.endswith(".buffer")
    finally:
        dict.clear(garden.names)
        object.__delattr__(hostile, "buffer")


def test_a_path_around_tracebacks_is_preferred() -> None:
    """Somebody who holds it on purpose is told before somebody who holds it by accident."""

    def fails() -> None:
        local = Lifetime("x", label="both")
        garden.names["deep"] = [[[[[[[[local]]]]]]]]  # further than the traceback
        raise ValueError

    try:
        fails()
    except ValueError as error:
        garden.names["error"] = error
    (row,) = live(label="both")
    assert why(row).held_by.endswith("planted.names['deep']" + 8 * "[0]")
    garden.names.pop("deep")
    assert why(row).reason == "traceback"
    garden.names.clear()


def test_what_is_to_be_avoided_is_told_only_if_there_is_nothing_else() -> None:
    error = ValueError(Lifetime("x", label="in an exception"))
    garden.names["error"] = error
    (row,) = live(label="in an exception")
    key = row.key
    found = explain([key])[key]
    assert found.held_by.endswith(".args[0]")
    assert not found.avoided
    assert explain([key], avoid={id(error)})[key].avoided
    garden.names.clear()


def test_what_is_released_or_waiting_is_said_to_be() -> None:
    gone = Lifetime("x")
    key = gone.key
    del gone
    assert why(key).reason == "released"
    with lifetimes.defer():
        waiting = Lifetime("x", label="waiting")
        key = waiting.key
        del waiting
        assert why(key).reason == "waiting"
        assert "drain" in why(key).held_by


def test_the_collector_rests_while_cycles_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take them apart in the middle."""
    enabled: list[bool] = []

    class Watched(Roots):
        def __init__(self) -> None:
            enabled.append(gc.isenabled())
            super().__init__()

    monkeypatch.setattr(reasons, "Roots", Watched)
    x = Lifetime("x")
    why(x)
    assert (enabled, gc.isenabled()) == ([False], True)
    with no_collection():
        why(x)
        assert not gc.isenabled()


def test_the_registry_holds_nothing() -> None:
    """It is the beginning of no path, though everything stands in it."""
    export = Lifetime("x", label="out").export("native")
    (row,) = live(label="out")
    atexit.register(id, export)
    del export
    try:
        assert why(row).held_by == "an export, exported (native)"
    finally:
        atexit.unregister(id)


def test_native_code_is_unknown() -> None:
    thing = Lifetime("x", label="native")
    key = thing.key
    atexit.register(id, thing)
    del thing
    try:
        assert why(key).reason == "unknown"
    finally:
        atexit.unregister(id)


def test_children_that_keep_each_other_are_told_once() -> None:
    top = Lifetime("x", label="top")
    key = top.key
    for _ in range(30):
        top = Lifetime("y", parents=[top])
    assert why(key).reason == "child"
    assert len(why(key).held_by) < 3000


def test_several_holders_are_counted() -> None:
    parent = Lifetime("x", label="parent")
    children = [Lifetime("y", parents=[parent]) for _ in range(7)]
    key = parent.key
    del parent
    assert why(key).held_by.endswith("and 4 more")
    del children


def test_the_frames_of_a_chain_are_cleared() -> None:
    died: list[str] = []

    class Value:
        def __init__(self, name: str) -> None:
            weakref.finalize(self, died.append, name)

    def fails(name: str, cause: Exception | None) -> None:
        value = Value(name)
        if cause is not None:
            raise ValueError(id(value)) from cause
        raise KeyError(id(value))

    def caught(name: str, cause: Exception | None = None) -> Exception:
        try:
            fails(name, cause)
        except Exception as error:
            return error
        raise AssertionError

    error = ExceptionGroup("two", [caught("outer", caught("inner")), caught("member")])
    assert sorted(str(each.args[0]) for each in chain(error) if each.args)[-1] == "two"
    assert {type(each) for each in chain(error)} >= {ExceptionGroup, ValueError, KeyError}
    assert died == []
    clear_tracebacks(error)
    assert sorted(died) == ["inner", "member", "outer"]
