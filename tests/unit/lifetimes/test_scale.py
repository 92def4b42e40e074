"""Long chains, wide families, many lifetimes: linear, no recursion, and nothing kept.

Operations are counted, not timed: the lines that run inside the package.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import lifetimes
from lifetimes import Lifetime
from lifetimes.cell import live, queue
from tests.unit.lifetimes.helpers import PACKAGE, Task, check_quiet, no_collector


def lines_run(function: Callable[[], object]) -> int:
    """How many lines inside the package ``function`` runs."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        count += event == "line"
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(previous)
    return count


def linear(measure: Callable[[int], int]) -> None:
    """Ten times as many, ten times the work, give or take a tenth."""
    small, large = measure(200), measure(2000)
    assert large < 11 * small, f"{small} lines for 200, {large} for 2000"


def wide(count: int) -> tuple[Lifetime[Any], list[Any], list[int]]:
    log: list[int] = []
    parent = Lifetime(None, log.append, -1)
    return parent, [Lifetime(None, log.append, number, parents=(parent,)) for number in range(count)], log


def long(count: int, log: list[int]) -> Lifetime[Any]:
    """A chain in which each is the child of the one before; only the last has a handle."""
    last = Lifetime(None, log.append, 0)
    for number in range(1, count):
        last = Lifetime(None, log.append, number, parents=(last,))
    return last


def test_closing_is_linear_in_the_children() -> None:
    def measure(count: int) -> int:
        parent, children, log = wide(count)
        lines = lines_run(parent.close)
        assert log == [*range(len(children) - 1, -1, -1), -1]
        return lines

    linear(measure)


@pytest.mark.parametrize("first", ["parent", "children"])
def test_dropping_is_linear_in_the_children(first: str) -> None:
    def measure(count: int) -> int:
        parent, children, log = wide(count)

        def drop() -> None:
            nonlocal parent
            if first == "parent":
                del parent
                children.clear()
            else:
                children.clear()
                del parent

        lines = lines_run(drop)
        lifetimes.drain()
        assert sorted(log) == list(range(-1, count))
        return lines

    linear(measure)


def test_a_chain_is_linear() -> None:
    def measure(count: int) -> int:
        log: list[int] = []
        last = [long(count, log)]
        lines = lines_run(last.clear) + lines_run(lifetimes.drain)
        assert log == list(range(count - 1, -1, -1))
        return lines

    linear(measure)


def test_finished_work_of_many_is_linear() -> None:
    def measure(count: int) -> int:
        tasks = [Task() for _ in range(count)]
        for task in tasks:
            Lifetime(None).after(task)
        lifetimes.drain()
        for task in tasks:
            task.finished = True
        return lines_run(lifetimes.drain)

    linear(measure)


def test_a_context_with_a_hundred_thousand_children() -> None:
    parent, children, log = wide(100_000)
    parent.close()
    assert len(log) == 100_001
    assert log[-1] == -1
    children.clear()
    assert not queue


@pytest.mark.parametrize("how", ["drop", "close the first", "collect"])
def test_a_chain_of_a_hundred_thousand_parents(how: str) -> None:
    """A release is a loop, and so is the end of the cells: nothing here goes as deep as the chain is long."""
    log: list[int] = []
    first = Lifetime(None, log.append, -1)
    last = Lifetime(None, log.append, 0, parents=(first,))
    for number in range(1, 100_000):
        last = Lifetime(None, log.append, number, parents=(last,))
    if how == "close the first":
        first.close()
        assert last.closed
    elif how == "collect":
        cycle: list[Any] = [last, first]
        cycle.append(cycle)
        del first, last, cycle
        gc.collect()
        assert log == []
        lifetimes.drain()
    else:
        del first, last
        lifetimes.drain()  # a drop releases a few; the rest waits for the next
    assert log == list(range(99_999, -2, -1))
    check_quiet()


def resident() -> int:
    """Bytes of memory in use, as the system sees them."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("count", [200_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_very_many_lifetimes_leave_nothing(count: int) -> None:
    """The memory of the process stays as large as it was after the first tenth of them."""
    before = len(live)

    def round_of(count: int) -> None:
        parent = Lifetime(None, kind="context")
        for number in range(count):
            lifetime = Lifetime(number, abs, number, kind="buffer", nbytes=64, parents=(parent,))
            if number % 64 == 0:
                lifetime.add_finalizer(abs, 1)
                with lifetime.use():
                    pass
                lifetime.close()

    with no_collector():  # nothing here is a cycle, so nothing needs it
        round_of(count // 10)
        start = resident()
        round_of(count - count // 10)
        assert resident() - start < 2_000_000
    assert len(live) == before
    assert not queue


def test_many_alive_at_once_leave_nothing() -> None:
    before = len(live)
    held = [Lifetime(number, abs, number) for number in range(100_000)]
    held.clear()
    assert len(live) == before
    assert not queue


def test_a_drain_ends_although_a_finalizer_makes_and_drops_without_end() -> None:
    made, stop = [0], [False]

    def again() -> None:
        made[0] += 1
        if not stop[0]:
            Lifetime(None, again)

    with lifetimes.defer():
        Lifetime(None, again)
    assert 0 < made[0] < 5000
    Lifetime(None)
    assert made[0] < 5000
    stop[0] = True
    lifetimes.drain()
    assert not queue
