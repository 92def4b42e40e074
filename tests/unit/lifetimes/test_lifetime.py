"""What one lifetime promises: finalizers once and last attached first, use, detach, borrow, acquire, weak."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import lifetimes
from lifetimes import BusyError, ClosedError, Lifetime
from lifetimes.cell import GONE, live
from tests.unit.lifetimes.helpers import Runtime, Task, check_quiet, no_collector, unraisable


@pytest.fixture
def log() -> list[Any]:
    return []


# The rules that the standard library documents for weakref.finalize.


def test_the_finalizer_is_called_when_the_object_dies(log: list[Any]) -> None:
    lifetime = Lifetime("value", log.append, "freed")
    assert not lifetime.closed
    assert log == []
    del lifetime
    assert log == ["freed"]


def test_it_stays_alive_until_it_is_called(log: list[Any]) -> None:
    """Nobody has to keep it: neither the recipe nor the registered half."""

    def make() -> Lifetime[Any]:
        def finalize(what: list[str]) -> None:
            log.extend(what)

        return Lifetime(None, finalize, ["freed"])

    lifetime = make()
    gc.collect()
    del lifetime
    assert log == ["freed"]


def test_it_is_called_once_however_often_the_lifetime_ends(log: list[Any]) -> None:
    lifetime = Lifetime(None, log.append, "freed")
    lifetime.close()
    lifetime.close(wait=True)
    with pytest.raises(ClosedError):
        lifetime.detach()
    del lifetime
    lifetimes.drain()
    assert log == ["freed"]


def test_several_are_called_last_attached_first(log: list[Any]) -> None:
    lifetime = Lifetime(None, log.append, 0)
    for number in range(1, 5):
        lifetime.add_finalizer(log.append, number)
    del lifetime
    assert log == [4, 3, 2, 1, 0]


def test_detach_gives_the_value_and_no_finalizer_is_called(log: list[Any]) -> None:
    lifetime = Lifetime("value", log.append, "freed")
    lifetime.add_finalizer(log.append, "freed too")
    assert lifetime.detach() == "value"
    assert lifetime.closed
    with pytest.raises(ClosedError, match="detached"):
        lifetime.use()
    lifetime.close()
    del lifetime
    assert log == []


def test_an_exception_does_not_propagate_from_a_drop_and_the_others_run(log: list[Any]) -> None:
    """There: shown like those of ``__del__``.  Here: a warning that names finalizer, lifetime, error and place."""
    lifetime = Lifetime(None, log.append, "first", kind="buffer", label="x", nbytes=64)
    lifetime.add_finalizer(int, "not a number")
    lifetime.add_finalizer(log.append, "last")
    with pytest.warns(
        lifetimes.CleanupWarning, match=r"finalizer int of buffer 'x' #\d+ \(64 bytes\).*ValueError.*number"
    ):
        del lifetime
    assert log == ["last", "first"]


def test_neither_function_nor_arguments_keep_the_object_alive(log: list[Any]) -> None:
    """There the user has to see to it; here the usual mistakes are refused (see the tests of bad input)."""
    lifetime = Lifetime(["value"], log.append, "freed")
    weak = lifetime.weak()
    del lifetime
    assert weak() is None
    assert log == ["freed"]


def test_a_value_that_refers_to_its_own_handle_is_collected(log: list[Any]) -> None:
    """weakref.finalize(obj) does not hold obj; the registry does not hold the value."""
    value: list[Any] = []
    value.append(Lifetime(value, log.append, "freed"))
    weak = value[0].weak()
    del value
    gc.collect()
    lifetimes.drain()
    assert weak() is None
    assert log == ["freed"]


def test_a_weak_reference_is_dead_when_the_finalizer_of_a_drop_runs_later(log: list[Any]) -> None:
    lifetime = Lifetime(None)
    lifetime.add_finalizer(lambda weak: log.append(weak()), lifetime.weak())
    with lifetimes.defer():
        del lifetime
    assert log == [None]


class Phoenix(Lifetime[Any]):
    """Comes back from the dead once."""

    __slots__ = ("first_end",)
    first_end: bool
    saved: ClassVar[list[Any]] = []

    def __del__(self) -> None:
        if self.first_end:
            super().__del__()
        self.saved.append(self)


def test_resurrected_before_its_end_it_is_released_when_it_really_dies(log: list[Any]) -> None:
    phoenix = Phoenix(None, log.append, "freed")
    phoenix.first_end = False
    del phoenix
    lifetimes.drain()
    assert log == []
    phoenix = Phoenix.saved.pop()
    assert not phoenix.closed
    del phoenix  # CPython calls __del__ once; this death the cell's own callback notices
    lifetimes.drain()
    assert log == ["freed"]
    assert Phoenix.saved == []


def test_resurrected_after_its_end_it_is_closed(log: list[Any]) -> None:
    phoenix = Phoenix("value", log.append, "freed")
    phoenix.first_end = True
    del phoenix
    assert log == ["freed"]
    phoenix = Phoenix.saved.pop()
    assert phoenix.closed
    assert phoenix._cell is GONE
    for use in (phoenix.use, phoenix.detach, phoenix.export, phoenix.__enter__):
        with pytest.raises(ClosedError):
            use()
    assert "closed" in repr(phoenix)
    phoenix.close()
    del phoenix
    lifetimes.drain()
    assert log == ["freed"]


def test_a_subclass_with_a_del_of_its_own_that_forgets_ours(log: list[Any]) -> None:
    class Forgetful(Lifetime[Any]):
        def __del__(self) -> None:
            log.append("its own")

    Forgetful(None, log.append, "freed")
    lifetimes.drain()
    assert log == ["its own", "freed"]


def test_a_second_init_loses_nothing(log: list[Any]) -> None:
    lifetime = Lifetime(None, log.append, "first")
    lifetime.__init__(None, log.append, "second")  # type: ignore[misc]
    del lifetime
    lifetimes.drain()
    assert sorted(log) == ["first", "second"]


def test_it_dies_as_soon_as_the_last_finalizer_has_failed() -> None:
    """A traceback holds its frames, those of the callers too: none must be left in a cycle until the next collection."""

    class Local:
        pass

    with no_collector():
        mine = Local()
        weak = weakref.ref(mine)
        held = {"drop": Lifetime(None, int, "x"), "deferred": Lifetime(None, int, "x", deferred=True)}
        with pytest.warns(lifetimes.CleanupWarning):
            del held["drop"]
        del held["deferred"]
        with pytest.warns(lifetimes.CleanupWarning):
            lifetimes.drain()
        handle = Lifetime(None, int, "x")
        handles = weakref.ref(handle)
        with pytest.warns(lifetimes.CleanupWarning):
            del handle
        assert handles() is None

        def close(mine: Local) -> None:
            try:
                Lifetime(None, int, "x").close()
            except ExceptionGroup:
                pass

        close(mine)
        del mine
        assert weak() is None


# Use.


def test_use_gives_the_value_and_unpins(log: list[Any]) -> None:
    lifetime = Lifetime("value", log.append, "freed")
    with lifetime.use("copying") as value:
        assert value == "value"
        with lifetime.use() as again:
            assert again == "value"
            with pytest.raises(BusyError, match=rf"in use by thread {threading.get_ident()} \(copying\)"):
                lifetime.close()
            assert not lifetime.closed
    lifetime.close()
    assert log == ["freed"]


def test_leaving_by_an_exception_unpins() -> None:
    lifetime = Lifetime("value")
    pin = lifetime.use()  # kept: its death would unpin as well
    with pytest.raises(ValueError), pin:
        raise ValueError
    lifetime.close()
    assert pin is not None


def test_a_pin_keeps_the_handle_and_what_it_depends_on(log: list[Any]) -> None:
    """JuliaGPU/CUDA.jl#3087: an address taken out of its owner, which dies before the call."""
    parent = Lifetime("parent", log.append, "parent")
    with Lifetime("value", log.append, "child", parents=[parent]).use() as value:  # no other reference to it
        del parent
        gc.collect()
        lifetimes.drain()
        assert value == "value"
        assert log == []
    assert log == ["child", "parent"]


def test_a_pin_that_is_not_entered_pins_nothing(log: list[Any]) -> None:
    lifetime = Lifetime(None, log.append, "freed")
    pin = lifetime.use()
    lifetime.close()
    assert log == ["freed"]
    with pytest.raises(ClosedError, match="just when"), pin:
        pass


def test_a_pin_is_entered_once(log: list[Any]) -> None:
    lifetime = Lifetime(None, log.append, "freed")
    pin = lifetime.use()
    with pin:
        with pytest.raises(RuntimeError, match="once"), pin:
            pass
    with pytest.raises(RuntimeError, match="once"), pin:
        pass
    del lifetime  # an old pin that is kept keeps nothing
    assert log == ["freed"]


def test_a_pin_that_is_lost_unpins() -> None:
    lifetime = Lifetime(None)
    pin = lifetime.use()
    pin.__enter__()
    with pytest.raises(BusyError):
        lifetime.close()
    del pin
    lifetime.close()


def test_after_close_everything_says_so_with_what_and_where(log: list[Any]) -> None:
    lifetime = Lifetime(None, log.append, kind="stream", label="copies")
    lifetime.add_finalizer(int)
    with pytest.raises(ExceptionGroup):
        lifetime.close()
    calls: dict[str, Callable[[], Any]] = {
        "used": lifetime.use,
        "exported": lifetime.export,
        "value": lambda: lifetime.value,
        "finalizer": lambda: lifetime.add_finalizer(print),
        "work": lambda: lifetime.after(threading.Event()),  # type: ignore[arg-type]
        "detached": lifetime.detach,
        "entered": lifetime.__enter__,
    }
    for word, call in calls.items():
        if word == "work":
            with pytest.raises(TypeError, match="completed"):
                call()
            continue
        with pytest.raises(ClosedError, match=rf"stream 'copies' #\d+ is closed, but .*{word}"):
            call()


# Closing.


def test_with_block_closes(log: list[Any]) -> None:
    with Lifetime(None, log.append, "freed") as lifetime:
        assert log == []
    assert lifetime.closed
    assert log == ["freed"]


def test_a_refused_close_changes_nothing(log: list[Any]) -> None:
    parent = Lifetime("parent", log.append, "parent", label="p")
    child = Lifetime("child", log.append, "child", parents=[parent], label="c")
    other = Lifetime("other", log.append, "other", parents=[parent])
    with child.use("a launch"):
        with pytest.raises(BusyError, match=r"'p'.*cannot be closed.*'c'.*a launch"):
            parent.close()
        assert [each.closed for each in (parent, child, other)] == [False] * 3
        with other.use() as value:
            assert value == "other"
        Lifetime(None, parents=[parent])
    assert log == []
    parent.close()
    assert log == ["other", "child", "parent"]


def test_the_error_names_a_few_pins_and_counts_the_rest() -> None:
    parent = Lifetime("parent")
    children = [Lifetime(number, parents=[parent]) for number in range(9)]
    pins = [child.use() for child in children]
    for pin in pins:
        pin.__enter__()
    with pytest.raises(BusyError, match="and 4 more"):
        parent.close()
    pins.clear()
    del pin
    parent.close()


def test_close_inside_the_finalizer_of_itself_and_of_its_child(log: list[Any]) -> None:
    """JuliaGPU/AMDGPU.jl#353: an early free that does nothing, or lets the finalizer free again."""
    parent = Lifetime(None, log.append, "parent")
    child = Lifetime(None, parents=[parent])
    child.add_finalizer(lambda weak: weak().close(), child.weak())
    child.add_finalizer(lambda weak: weak().close(), parent.weak())
    parent.close()
    assert log == ["parent"]
    assert parent.closed
    assert child.closed


def test_base_and_views(log: list[Any]) -> None:
    """JuliaGPU/AMDGPU.jl#353: one release, views are closed with their base, whatever is dropped or closed again."""
    base = Lifetime("base", log.append, "base")
    views = [Lifetime(number, log.append, number, parents=[base]) for number in range(3)]
    base.close()
    base.close()
    assert log == [2, 1, 0, "base"]
    for view in views:
        with pytest.raises(ClosedError, match="is closed"):
            view.use()
        view.close()
    views.clear()
    del base, view
    gc.collect()
    lifetimes.drain()
    assert log == [2, 1, 0, "base"]


# Detaching.


@pytest.mark.parametrize("holds", ["child", "pin", "export"])
def test_what_is_held_cannot_be_detached(holds: str, log: list[Any]) -> None:
    lifetime = Lifetime("value", log.append, "freed")
    if holds == "child":
        held: Any = Lifetime(None, parents=[lifetime])
    elif holds == "pin":
        held = lifetime.use()
        held.__enter__()
    else:
        held = lifetime.export()
    with pytest.raises(BusyError, match=holds):
        lifetime.detach()
    assert not lifetime.closed
    del held
    assert lifetime.detach() == "value"
    assert log == []


def test_detaching_lets_the_parents_go(log: list[Any]) -> None:
    parent = Lifetime("parent", log.append, "parent")
    child = Lifetime("child", log.append, "child", parents=[parent])
    del parent
    assert child.detach() == "child"
    lifetimes.drain()
    assert log == ["parent"]


# Other ways to make one.


class Counted:
    """A handle with a reference count, as OpenCL and COM have them."""

    def __init__(self) -> None:
        self.count = 1

    def retain(self) -> Counted:
        self.count += 1
        return self

    def release(self) -> None:
        self.count -= 1
        assert self.count >= 0


@pytest.mark.parametrize("first", ["wrapper", "owner"])
@pytest.mark.parametrize("how", ["adopt", "retain", "borrow"])
def test_adopt_retain_and_borrow(how: str, first: str) -> None:
    """inducer/pyopencl#180: a borrowed handle released, or an adopted one not retained."""
    handle = Counted()
    owner: Lifetime[Counted] | None = None
    if how == "adopt":
        wrapper = Lifetime(handle, handle.release)
    elif how == "retain":
        owner = Lifetime(handle, handle.release)
        wrapper = Lifetime.acquire(handle.retain, finalizer=Counted.release)
    else:
        owner = Lifetime(handle, handle.release)
        wrapper = Lifetime.borrow(handle, owner=owner)
    if first == "owner":
        del owner
        gc.collect()
        assert handle.count >= 1
        with wrapper.use() as value:
            assert value is handle
        del wrapper
    else:
        del wrapper
        assert handle.count == (0 if how == "adopt" else 1)
        del owner
    lifetimes.drain()
    assert handle.count == 0


def test_a_borrow_keeps_its_owner_and_tells_it(log: list[Any]) -> None:
    class Owner:
        pass

    owner = Owner()
    weak = weakref.ref(owner)
    borrowed = Lifetime.borrow(0x1000, owner=owner, on_release=log.append, kind="buffer")
    del owner
    gc.collect()
    assert weak() is not None
    child = Lifetime(None, parents=[borrowed])
    del borrowed
    assert weak() is not None
    assert log == []
    del child
    assert log == [0x1000]
    assert weak() is None


def test_closing_an_owner_closes_what_was_borrowed_from_it_first(log: list[Any]) -> None:
    owner = Lifetime("owner", log.append, "owner")
    borrowed = Lifetime.borrow("address", owner=owner, on_release=log.append)
    with borrowed.use("meanwhile"), pytest.raises(BusyError, match="meanwhile"):
        owner.close()
    owner.close()
    assert log == ["address", "owner"]
    assert borrowed.closed
    with pytest.raises(ClosedError):
        Lifetime.borrow("address", owner=owner)


def test_a_sweep_that_comes_before_the_owner_died_frees_nothing_borrowed(log: list[Any]) -> None:
    """AccelerateHS/accelerate#563: a sweep relies on the owner's finalizer having taken borrowed entries out."""
    table: dict[int, Lifetime[Any]] = {}
    swept: list[int] = []

    class Owner:
        pass

    def sweep(reference: object) -> None:
        swept.append(len(table))
        table.clear()
        lifetimes.drain()

    owner = Owner()
    watcher = weakref.ref(owner, sweep)  # called before anything else hears of its death
    table[0x1000] = Lifetime.borrow(0x1000, on_release=log.append)
    del owner
    assert watcher() is None
    assert swept == [1]
    assert log == [0x1000]  # told once, freed never: there is no way to give a borrow something that frees
    lifetimes.drain()
    assert log == [0x1000]


def test_acquire_owns_what_was_created() -> None:
    runtime = Runtime()
    lifetime = Lifetime.acquire(runtime.create, finalizer=runtime.free, kind="buffer", nbytes=8, label="x")
    assert (lifetime.value, lifetime.kind, lifetime.nbytes, lifetime.label) == (1000, "buffer", 8, "x")
    lifetime.add_finalizer(runtime.free, "first")
    lifetime.close()
    assert runtime.log == ["first", 1000]


def test_acquire_owns_nothing_if_the_creation_fails() -> None:
    runtime = Runtime()
    parent = Lifetime(None, runtime.free, "parent")
    before = len(live)
    with pytest.raises(ZeroDivisionError):
        Lifetime.acquire(lambda: 1 // 0, finalizer=runtime.free, parents=[parent])
    assert len(live) == before
    del parent
    assert runtime.log == ["parent"]


def test_acquire_takes_any_value(log: list[Any]) -> None:
    values: list[Any] = [None, (), [], (1, 2), 0]
    for value in values:
        lifetime = Lifetime.acquire(lambda value=value: value, finalizer=log.append)
        assert lifetime.value is value
        lifetime.close()
        assert log.pop() is value


def test_resources_used_twice_in_a_row_are_registered_twice(log: list[Any]) -> None:
    """numba/numba#3508: a batched release is still pending when the same thing is acquired again."""

    def pin(host: str) -> Lifetime[Any]:
        log.append(f"register {host}")
        return Lifetime(host, log.append, f"unregister {host}")

    for _ in range(2):
        with pin("x"):
            pass
    assert log == ["register x", "unregister x"] * 2


def test_what_is_batched_is_told_as_pending_until_it_is_flushed() -> None:
    """numba/numba#3508: memory just deleted still shows as used."""
    lifetime = Lifetime(None, int, deferred=True, kind="batched", nbytes=64)
    assert [row.state for row in lifetimes.live() if row.kind == "batched"] == ["live"]
    del lifetime
    assert [row.state for row in lifetimes.live() if row.kind == "batched"] == ["dropped"]
    assert lifetimes.drain() == 1
    assert [row for row in lifetimes.live() if row.kind == "batched"] == []


# Telling.


def test_it_tells_what_it_is() -> None:
    lifetime = Lifetime("value", kind="event", nbytes=3, label="x")
    assert (lifetime.kind, lifetime.nbytes, lifetime.label, lifetime.value) == ("event", 3, "x", "value")
    lifetime.label = "y"
    assert repr(lifetime) == f"<Lifetime event 'y' #{lifetime.key} (3 bytes)>"
    lifetime.close()
    assert repr(lifetime) == f"<Lifetime event 'y' #{lifetime.key} (3 bytes), closed>"


def test_keys_ascend_and_never_return() -> None:
    keys = [Lifetime(None).key for _ in range(100)]
    assert keys == sorted(set(keys))


def test_a_handle_that_equals_others_is_still_itself(log: list[Any]) -> None:
    """Identity is by a number, never by == or hash(): arrays compare element by element and cannot be hashed."""

    class Strange(Lifetime[Any]):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> Any:
            raise TypeError("ambiguous")

    parent = Strange(None, log.append, "parent")
    child = Strange(None, log.append, "child", parents=[parent])
    with child.use():
        pass
    task = Task()
    child.after(task)
    parent.close()
    assert log == []
    task.finished = True
    lifetimes.drain()
    assert log == ["child", "parent"]


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("how", ["acquire", "constructor", "two finalizers"])
def test_a_drop_at_the_recursion_limit_loses_nothing(how: str, deferred: bool) -> None:
    """Where there is room for no call, for one, for two and so on: of the drop, of the release, of the finalizer."""
    runtime = Runtime()

    def make() -> list[Any]:
        if how == "acquire":
            return [Lifetime.acquire(runtime.create, finalizer=runtime.free, deferred=deferred)]
        handle = runtime.create()
        lifetime = Lifetime(handle, runtime.free, handle, deferred=deferred)
        if how == "two finalizers":
            lifetime.add_finalizer(int)
        return [lifetime]

    def deeper(level: int, where: int, held: list[Any]) -> int:
        """Drop it at that level, when the recursion has been as deep as it can go; how deep that was."""
        deepest = level
        try:
            deepest = deeper(level + 1, where, held)
        except RecursionError:
            pass
        if level == where:
            held.clear()
        return deepest

    deepest = deeper(0, -1, [])
    failed = 0
    for room in range(12):
        with unraisable(), warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            deeper(0, deepest - room, make())
            gc.collect()  # for Python 3.11, where not even a function in C can be called at the limit
            lifetimes.drain()
        # One that began and found no room for its own calls has failed, and that is told.
        failed += len(told)
        assert len(runtime.log) + failed == len(runtime.made), f"lost with room for {room} calls"
        assert all("RecursionError" in str(each.message) for each in told)
        check_quiet()
    assert len(set(runtime.log)) == len(runtime.log)
    assert failed <= 2
