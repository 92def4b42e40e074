"""Leaks of real devices: what holds arrays, what must not, and how that is told."""

from __future__ import annotations

import functools
import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import lifetimes
from lifetimes import Device, Lifetime, OwnershipError, live, why
from lifetimes.leaks import History, collect
from lifetimes.leaks.document import as_json
from lifetimes.leaks.page import as_html


@pytest.fixture
def device() -> Iterator[Device]:
    before = lifetimes.origins.get_stacks()
    with lifetimes.open("host", memory_limit="4MiB", stacks="line") as device:
        yield device
    lifetimes.set_stacks(before)


kept: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    yield
    kept.clear()


def test_an_array_in_use_in_a_suspended_generator_is_named(device: Device) -> None:
    def steps() -> Iterator[int]:
        array = device.zeros(10, label="in use")
        with device.use(write=[array]) as (address,):
            del array
            yield address

    kept.append(steps())
    next(kept[0])
    (row,) = live(label="in use")
    found = why(row)
    assert row.pins == 1
    assert found.reason == "generator"
    assert "kept[0] -> suspended generator test_an_array_in_use_in_a_suspended_generator_is_named" in found.held_by
    kept[0].close()


def test_an_array_that_a_view_keeps_is_told_with_the_view(device: Device) -> None:
    array = device.zeros(10, label="the whole")
    kept.append(array[2:])
    key = array.key
    del array
    (row,) = [row for row in live(kind="array") if row.key == key]
    assert row.children == 1
    assert "kept[0]" in why(row).held_by


def test_the_history_of_a_device_shows_its_peak(device: Device) -> None:
    with History() as history:
        first = device.zeros(1000, label="first")
        second = device.zeros(3000, label="second")
        del first
        third = device.zeros(500, label="third")
    recording = history.recording()
    assert recording.peak.nbytes == 8 * 4000
    held = recording.held(recording.alive_after(recording.peak.event), "label")
    assert [(each.key, each.nbytes) for each in held[:2]] == [("second", 24000), ("first", 8000)]
    assert {each.key for each in recording.held(recording.alive_after(len(recording.events) - 1), "device")} == {
        device.label
    }
    del second, third


def use(device: Device, big: Any, out: Any) -> None:
    with device.use(read=[big], write=[out]):
        pass


def uses(device: Device, big: Any, out: Any) -> Iterator[tuple[str, Callable[[], object]]]:
    """What remembers nothing of its arguments."""
    yield "call", lambda: device.call(lambda a, b: np.add(a, 1, out=b), big, out, modes="rw").wait()
    yield "use", lambda: use(device, big, out)
    yield "reports", lambda: (lifetimes.report(why=True), lifetimes.snapshot(), as_html(collect()), as_json(collect()))
    yield "closed over", lambda: device.call(lambda a: a.fill(big.size), out, modes="w").wait()


@pytest.mark.parametrize("name", ["call", "use", "reports", "closed over"])
def test_no_call_keeps_its_arrays(device: Device, name: str) -> None:
    """BUG-064 (pydata/numexpr#558): neither inputs nor outputs nor what a function closes over, nor reflection on them."""
    big, out = device.zeros(1000), device.zeros(1000)
    references = [weakref.ref(big), weakref.ref(out)]
    dict(uses(device, big, out))[name]()
    del big, out
    gc.collect()
    lifetimes.drain()
    assert [reference() for reference in references] == [None, None]


def test_a_call_that_fails_keeps_nothing(device: Device) -> None:
    """BUG-064: the failure is remembered, the arrays are not."""

    def fails(a: Any) -> None:
        raise ValueError("no")

    big = device.zeros(1000)
    reference = weakref.ref(big)
    work = device.call(fails, big, modes="w")
    with pytest.raises(lifetimes.BackendError):
        work.wait()
    del big, work
    sys.last_value = None
    gc.collect()
    lifetimes.drain()
    assert reference() is None


def test_looking_leaves_the_variables_of_a_module_alone() -> None:
    """BUG-064: a cure that cleared the caller's frame deleted users' globals."""
    space: dict[str, Any] = {}
    code = (
        "import lifetimes\nx = lifetimes.Lifetime('x', label='global')\nbefore = dict(globals())\n"
        "reason = lifetimes.why(x)\ntext = lifetimes.report(why=True)\nafter = globals()\n"
        "assert all(after[name] is value for name, value in before.items())\n"
    )
    exec(code, space)
    assert space["reason"].held_by.endswith(".x")
    space.clear()


class Owner:
    """An object with a lifetime that frees something of its own."""

    def __init__(self) -> None:
        self.freed = False
        self.lifetime: Lifetime[str] | None = None

    def close(self) -> None:
        self.freed = True


def strong_forms(handle: Lifetime[str]) -> Iterator[tuple[str, Callable[..., object], tuple[Any, ...]]]:
    yield "bound method", handle.close, ()
    yield "closure", lambda: handle, ()
    yield "partial", partial(print, handle), ()
    yield "partial of a method", partial(handle.close, True), ()
    yield "in a list", print, ([handle],)
    yield "in a dict of tuples", print, ({"x": (handle,)},)
    yield "default", functools.wraps(print)(lambda x=handle: x), ()


@pytest.mark.parametrize("form", [name for name, _, _ in strong_forms(Lifetime("x"))])
def test_a_finalizer_that_refers_to_its_handle_is_refused(form: str) -> None:
    """BUG-043 (DiamondLightSource/httomo#265): it would keep the handle alive until the end of the process."""
    handle = Lifetime("x", label=form)
    function, args = next((function, args) for name, function, args in strong_forms(handle) if name == form)
    with pytest.raises(OwnershipError, match="refers to the handle"):
        handle.add_finalizer(function, *args)
    reference = handle.weak()
    del handle, function, args
    assert reference() is None


def test_a_finalizer_with_a_weak_reference_gets_nothing_of_use_and_a_plain_one_frees() -> None:
    """BUG-043: the plain form dies with its handle; a weak reference has nothing to give any more by then."""
    seen: list[object] = []
    handle = Lifetime("x")
    weak = handle.weak()
    handle.add_finalizer(lambda reference: seen.append(reference() is None or reference().closed), weak)
    handle.add_finalizer(seen.append, "freed")
    del handle
    assert seen == ["freed", True]
    assert weak() is None
