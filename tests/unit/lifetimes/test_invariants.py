"""`check_invariants` sees each kind of damage, and the suites here call it."""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lifetimes
from lifetimes import InternalError, Lifetime, locks, reaper
from lifetimes.cell import DROPPED, MARKED, RELEASED, live, parked, queue


class Family:
    def __init__(self) -> None:
        self.parent = Lifetime("parent")
        self.child = Lifetime("child", int, parents=[self.parent])


@pytest.fixture
def family() -> Iterator[Family]:
    """A parent and a child; the registry is mended afterwards."""
    made = Family()
    registry, cells = dict(live), [made.parent._cell, made.child._cell]
    before = [(cell.state, dict(cell.holders), cell.parents, cell.finalizer) for cell in cells]
    yield made
    live.clear()
    live.update(registry)
    for cell, (state, holders, parents, finalizer) in zip(cells, before, strict=True):
        cell.state, cell.parents, cell.finalizer, cell.added = state, parents, finalizer, None
        cell.holders.clear()
        cell.holders.update(holders)
    while locks.busy:
        locks.busy.pop()
    locks.collecting.clear()
    reaper.check_invariants()
    made.parent.close()


def registered_twice(family: Family) -> None:
    live[10**9] = family.child._cell


def still_registered(family: Family) -> None:
    family.child._cell.state = RELEASED


def left_marked(family: Family) -> None:
    family.parent._cell.state = MARKED


def later_finalizers_only(family: Family) -> None:
    family.child._cell.finalizer = None
    family.child._cell.added = [(int, ())]


def older_than_its_parent(family: Family) -> None:
    family.parent._cell.parents = (family.child._cell,)


def parent_forgot_it(family: Family) -> None:
    family.parent._cell.holders.clear()


def parent_is_gone(family: Family) -> None:
    del live[family.parent.key]


def child_is_gone(family: Family) -> None:
    del live[family.child.key]


def ready_and_not_queued(family: Family) -> None:
    family.child._cell.state = DROPPED


def marked_as_busy(family: Family) -> None:
    locks.mark(get_ident())


def marked_as_collecting(family: Family) -> None:
    locks.collecting.add("generation")


DAMAGES: dict[Callable[[Family], None], str] = {
    registered_twice: "is registered under 1000000000",
    still_registered: "is still registered",
    left_marked: "left undecided",
    later_finalizers_only: "later finalizers but no first",
    older_than_its_parent: "is older than its parent",
    parent_forgot_it: "is not held by its parent",
    parent_is_gone: "is not held by its parent",
    child_is_gone: "which is not its child",
    ready_and_not_queued: "is ready and in no queue",
    marked_as_busy: "marked as draining",
    marked_as_collecting: "a collection is noted",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_is_seen_and_the_state_is_told(damage: Callable[[Family], None], family: Family) -> None:
    reaper.check_invariants()
    damage(family)
    with pytest.raises(InternalError, match=DAMAGES[damage]) as caught:
        reaper.check_invariants()
    assert "State: live [<cell of object" in str(caught.value)


def test_a_lock_that_is_held_is_seen(family: Family) -> None:
    with locks.lock, pytest.raises(InternalError, match="holds the library's lock"):
        reaper.check_invariants()


def test_what_waits_in_a_queue_is_no_damage() -> None:
    with lifetimes.defer():
        made: list[Any] = [Lifetime(None, deferred=True), Lifetime(None)]
        made.clear()
        assert len(queue) + len(parked) >= 2
        reaper.check_invariants()


def test_the_suites_call_it() -> None:
    """A check that nobody calls checks nothing."""
    folder = Path(__file__).parent
    calling = {path.name for path in folder.glob("test_*.py") if "check_quiet()" in path.read_text()}
    assert {
        "test_collector.py",
        "test_interrupts.py",
        "test_observed.py",
        "test_order.py",
        "test_threads.py",
    } <= calling
    assert "check_invariants()" in (folder / "helpers.py").read_text()
    machine = Path(lifetimes.__file__).parent / "testing" / "lifetimes_machine.py"
    assert machine.read_text().count("check_invariants()") >= 2
