"""Where things were made: lines, stacks, scopes, and whose calls are passed over."""

from __future__ import annotations

import _thread
import contextvars
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import lifetimes
from lifetimes import Lifetime, live, origins, scope, set_stacks
from lifetimes.cell import live as cells
from lifetimes.origins import hide, origin_of, raw_of, record_at_least, recorded, unhide


@pytest.fixture(autouse=True)
def off_again() -> Iterator[None]:
    before, least = origins.get_stacks(), record_at_least("off")  # a tool may watch the tests
    yield
    set_stacks(before)
    record_at_least(*least)


def origin(lt: Lifetime[Any]) -> origins.Origin:
    found = origin_of(cells[lt.key])
    assert found is not None
    return found


def outer(depth: int) -> Lifetime[str]:
    return outer(depth - 1) if depth else Lifetime("x")


def test_nothing_is_recorded_by_default() -> None:
    set_stacks("off")
    x = Lifetime("x")
    assert raw_of(cells[x.key]) is None
    assert origin_of(cells[x.key]) is None


def test_the_line_is_that_of_the_caller_outside_of_the_library() -> None:
    set_stacks("line")
    with lifetimes.open("sim") as device:
        array = device.zeros(3, label="deep inside")
        (row,) = live(label="deep inside")
        assert row.origin is not None
        assert row.origin.startswith(f"{__file__}:")
        assert row.origin.endswith(" in test_the_line_is_that_of_the_caller_outside_of_the_library")
        assert len(row.stack) == 1
        assert row.thread == "MainThread"
        assert row.device == device.label
        assert row.age is not None
        assert 0 <= row.age < 60
        del array


def test_a_stack_has_the_calls_from_the_inside_out() -> None:
    set_stacks("full")
    x = outer(3)
    names = [site.rpartition(" in ")[2] for site in origin(x).sites]
    assert names[:5] == ["outer"] * 4 + ["test_a_stack_has_the_calls_from_the_inside_out"]
    assert [frame.name for frame in origin(x).frames()[-5:]] == names[:5][::-1]
    assert all(frame.filename == __file__ for frame in origin(x).frames()[-5:])
    assert origin(x).line == origin(x).sites[0]


def test_the_depth_bounds_a_stack() -> None:
    set_stacks("full", depth=2)
    assert len(origin(outer(5)).sites) == 2
    with pytest.raises(ValueError, match="from 1 on"):
        set_stacks("full", depth=0)


def test_equal_stacks_are_kept_once() -> None:
    set_stacks("full")
    first, second = [outer(2) for _ in range(2)]
    other = outer(2)
    assert origin(first).stack is origin(second).stack
    assert origin(other).stack is not origin(first).stack


def test_stacks_with_the_same_offsets_are_told_apart() -> None:
    """They are looked up by their offsets, so two functions with the same code must not be taken for each other."""
    set_stacks("full")
    made = {}
    for name in ("left", "right"):
        space: dict[str, Any] = {"Lifetime": Lifetime}
        exec(compile("def make():\n    return Lifetime('x')\n", f"{name}.py", "exec"), space)
        made[name] = space["make"]
    lives = [(name, function()) for _ in range(3) for name, function in made.items()]
    for name, lt in lives:
        assert origin(lt).line == f"{name}.py:2 in make"


def test_scopes_nest_and_belong_to_their_thread() -> None:
    set_stacks("line")
    there: list[Lifetime[str]] = []
    with scope("epoch"):
        x = Lifetime("x")
        with scope("step"):
            y = Lifetime("y")
            thread = threading.Thread(target=lambda: there.append(Lifetime("z")))
            thread.start()
            thread.join()
            inside = contextvars.copy_context().run(Lifetime, "copied")
        again = Lifetime("again")
    after = Lifetime("after")
    found = [origin(each).scope for each in (x, y, there[0], inside, again, after)]
    assert found == ["epoch", "epoch/step", "", "epoch/step", "epoch", ""]
    assert origin(there[0]).thread_name.startswith("thread ")


def test_a_scope_ends_with_an_exception() -> None:
    set_stacks("line")
    with pytest.raises(KeyError), scope("broken"):
        raise KeyError
    assert origin(Lifetime("x")).scope == ""


def test_a_scope_is_a_decorator_too() -> None:
    set_stacks("line")

    @scope("train")
    def step() -> Lifetime[str]:
        return Lifetime("x")

    assert origin(step()).scope == "train"


def test_calls_from_a_hidden_folder_are_passed_over() -> None:
    set_stacks("line")
    space: dict[str, Any] = {"Lifetime": Lifetime}
    exec(compile("def wrapped():\n    return Lifetime('x')\n", "/somewhere/library/wrap.py", "exec"), space)
    exec(compile("def generated(wrapped):\n    return wrapped()\n", "<generated 7>", "exec"), space)

    def make() -> str:
        return origin(space["generated"](space["wrapped"])).line

    assert make() == "/somewhere/library/wrap.py:2 in wrapped"
    hide("/somewhere/library")
    hide("/somewhere/library")
    assert make() == "<generated 7>:2 in generated"
    hide("<generated")
    assert make().startswith(f"{__file__}:")
    unhide("/somewhere/library")
    unhide("<generated")
    unhide("/somewhere/library")
    assert make() == "/somewhere/library/wrap.py:2 in wrapped"


def test_stacks_end_at_a_tool_that_runs_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins, "_ends", [])
    set_stacks("full")

    def tool() -> Lifetime[str]:
        return outer(1)

    before, x = origin(tool()).sites, tool()
    assert len(before) > 3
    origins.end_at(tool.__code__)
    assert [site.rpartition(" in ")[2] for site in origin(x).sites] == ["outer", "outer"]
    assert [frame.name for frame in origin(x).frames()] == ["outer", "outer"]


def test_a_thread_that_begins_with_the_constructor() -> None:
    """There is no caller then."""
    died = threading.Event()
    for level in ("line", "full"):
        set_stacks(level)
        died.clear()
        _thread.start_new_thread(Lifetime, ("x", died.set))
        assert died.wait(10)


def test_a_tool_records_whatever_the_program_says() -> None:
    record_at_least("line")
    set_stacks("off")
    x = Lifetime("x")
    assert raw_of(cells[x.key]) is not None
    set_stacks("full", depth=3)
    y = outer(5)
    assert (recorded(), len(origin(y).sites)) == ("full", 3)
    set_stacks("line")
    record_at_least("full", depth=2)
    z = outer(5)
    assert (origins.get_stacks(), recorded(), len(origin(z).sites)) == ("line", "full", 2)
    with pytest.raises(ValueError, match="not 'more'"):
        record_at_least("more")  # type: ignore[arg-type]
    record_at_least("off")
    set_stacks("off")
    assert recorded() == "off"


def test_levels_can_be_changed_while_things_live() -> None:
    set_stacks("full")
    x = outer(2)
    set_stacks("line")
    y = outer(2)
    set_stacks("off")
    assert len(origin(x).sites) > 3
    assert len(origin(y).sites) == 1
