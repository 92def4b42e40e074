"""Arrays in real memory against NumPy: views, evictions while workers are at it, exchange with another device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lifetimes
from lifetimes import Device
from lifetimes.errors import BrokenError, ClosedError
from tests.views import DTYPES, follow, numbered, same, steps

LARGE = 40_000  # elements of 8 bytes: more than a copy that runs inline


@pytest.fixture
def device() -> Iterator[Device]:
    """Small enough to evict."""
    with lifetimes.open("host", memory_limit="1MiB", table="judy") as device:
        yield device


@pytest.fixture(scope="module")
def shared() -> Iterator[Device]:
    """One device for all examples."""
    with lifetimes.open("host", memory_limit="1MiB") as device:
        # Its workers, those of its copies too, have started before any test looks.
        large = device.asarray(np.zeros(LARGE))
        for _ in range(2):
            device.call(lambda a: a.fill(1.0), large, modes="u").wait()
            large.numpy()
            large.evict()
        large.close()
        yield device


@given(
    data=st.data(),
    dtype=st.sampled_from(DTYPES),
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
)
@settings(max_examples=100)
def test_views_are_those_of_numpy(shared: Device, data: st.DataObject, dtype: Any, shape: tuple[int, ...]) -> None:
    source = numbered(shape, dtype)
    array = shared.asarray(source)
    views = data.draw(steps(shape))
    view, expected = follow(array, views), follow(source, views)
    if data.draw(st.booleans()):
        array.evict()
    same(view, expected)
    if view.repeats:
        return
    new = numbered(expected.shape, dtype)[::-1] if expected.ndim else numbered((), dtype)
    expected[...] = new
    shared.call(lambda seen: seen.__setitem__(..., new), view, modes=data.draw(st.sampled_from("wu")))
    same(view, expected)
    same(array, source)


def test_a_working_set_larger_than_the_device(device: Device) -> None:
    """Views of arrays that come and go, written by workers on two streams."""
    streams = [device.create_stream() for _ in range(2)]
    arrays = [device.asarray(np.full(LARGE, float(number))) for number in range(8)]  # 320 KB each, 3 at a time
    for round_ in range(3):
        for number, array in enumerate(arrays):
            half = array[round_ % 2 :: 2]
            device.call(lambda view: np.add(view, 1, out=view), half, modes="u", stream=streams[number % 2])
    for number, array in enumerate(arrays):
        found = array.numpy()
        assert found[0] == number + 2
        assert found[1] == number + 1
        assert found[2::2].tolist() == found[:1].tolist() * (LARGE // 2 - 1)
    assert device.statistics().evictions > 10
    device.manager.check_invariants()


def test_a_worker_that_fails_breaks_what_it_wrote_and_nothing_else(device: Device) -> None:
    def fail(view: Any) -> None:
        view[0] = 1
        raise ValueError("in the worker")

    bad, good = device.zeros(LARGE), device.zeros(LARGE)
    device.call(fail, bad[10:])
    device.call(lambda view: view.fill(3), good)
    assert good.numpy()[5] == 3.0
    with pytest.raises(BrokenError, match="in the worker"):
        bad.numpy()
    bad.write(0)
    assert bad.numpy()[0] == 0.0


def test_borrowed_content_is_never_written(device: Device) -> None:
    source = np.arange(float(LARGE)).reshape(2, -1)
    array = device.asarray(source, copy=False)
    device.call(lambda view: np.negative(view, out=view), array[1])
    assert array.evict()
    assert array.numpy()[1, 0] == -LARGE / 2
    assert source[1, 0] == LARGE / 2
    assert not source.flags.writeable


def test_to_device_between_back_ends(device: Device) -> None:
    with lifetimes.open("sim") as other, lifetimes.open("host", memory_limit="1MiB") as third:
        array = device.asarray(np.arange(12.0).reshape(3, 4))
        there = array.T[1:].to_device(other).to_device(third)
        same(there, np.arange(12.0).reshape(3, 4).T[1:])
        assert there.device is third
    with pytest.raises(ClosedError, match="array"):
        there.numpy()


def test_memory_that_is_seen_by_a_function_is_the_arrays(device: Device) -> None:
    """The view of a view starts where the address says."""
    array = device.asarray(numbered((4, 6), ">i4"))
    view = array[::-1, 1::2]
    places: list[int] = []
    device.call(lambda seen: places.append(seen.__array_interface__["data"][0]), view, modes="r").wait()
    with device.use(read=view) as (address,):
        assert places == [address]
        assert device.manager.owner_of(address) == (array.key, view.offset)
