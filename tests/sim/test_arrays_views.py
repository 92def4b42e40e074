"""Arrays and views against NumPy: any basic index, any strides, any dtype a device can hold; read and written through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lifetimes
from lifetimes import Array, Device
from lifetimes.errors import BusyError, ClosedError, OutOfMemory
from lifetimes.testing.sim import SimDriver
from tests.views import DTYPES, follow, numbered, same, steps


@pytest.fixture(scope="module")
def shared() -> Iterator[Device]:
    """One device for all examples; small enough to evict."""
    driver = SimDriver(total=16 << 10)
    with lifetimes.open(driver, memory_limit="8KiB") as device:
        yield device
    assert not driver.violations


@given(
    data=st.data(),
    dtype=st.sampled_from(DTYPES),
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
)
@settings(max_examples=250)
def test_views_are_those_of_numpy(shared: Device, data: st.DataObject, dtype: Any, shape: tuple[int, ...]) -> None:
    """Content, then a write through the view, then the whole again; at any time it may be evicted."""
    source = numbered(shape, dtype)
    array = shared.asarray(source)
    same(array, source)
    views = data.draw(steps(shape))
    view, expected = follow(array, views), follow(source, views)
    if data.draw(st.booleans()):
        assert array.evict()
    same(view, expected)
    if view.repeats:
        with pytest.raises(ValueError, match="can only be read"):
            view.write(expected)
        return
    new = numbered(expected.shape, dtype)[::-1] if expected.ndim else numbered((), dtype)
    expected[...] = new
    if data.draw(st.booleans()):
        view.write(new)
    else:
        shared.call(lambda seen: seen.__setitem__(..., new), view, modes=data.draw(st.sampled_from("wu")))
    same(view, expected)
    same(array, source)


def test_strides_and_offsets_are_those_of_numpy(shared: Device) -> None:
    source = numbered((4, 6), "f8")
    array = shared.asarray(source)
    for index in (np.s_[::-1, 1::2], np.s_[2], np.s_[:, -1], np.s_[3:1:-1, None, ::-3], np.s_[1:1]):
        view, expected = array[index], source[index]
        assert view.strides == expected.strides
        if view.size:
            assert view.offset == expected.__array_interface__["data"][0] - source.__array_interface__["data"][0]
        assert view.base is array
        assert view[...].base is array
        assert (view.key, view.device, view.kind) == (array.key, shared, "view")


@pytest.mark.parametrize(
    ("index", "error"),
    [
        ([0, 1], TypeError), (np.array([0]), TypeError), (True, TypeError), (np.True_, TypeError), ("a", TypeError),
        (1.0, TypeError), ((0, [1]), TypeError), (5, IndexError), (-6, IndexError), ((0, 0, 0), IndexError),
        ((..., ...), IndexError), (slice(0, 3, 0), ValueError),
    ],
)  # fmt: skip
def test_what_makes_no_view_is_refused(shared: Device, index: Any, error: type[Exception]) -> None:
    array = shared.zeros((5, 4))
    before = len(lifetimes.live())
    with pytest.raises(error):
        array[index]
    assert len(lifetimes.live()) == before


def test_numpy_integers_are_indices(shared: Device) -> None:
    array = shared.asarray(numbered((3, 4), "i4"))
    same(array[np.int8(-1), np.uint64(2)], numbered((3, 4), "i4")[-1:, 2].reshape(()))


@pytest.mark.parametrize(
    ("shape", "error", "says"),
    [
        ((7,), ValueError, "cannot become"), ((-1, -1), ValueError, "unknown"), ((-2, 6), ValueError, "negative"),
        ((12.0,), TypeError, "integer"), ((True, 12), TypeError, "integer"), ("12", TypeError, "integer"),
    ],
)  # fmt: skip
def test_bad_reshapes_are_refused(shared: Device, shape: Any, error: type[Exception], says: str) -> None:
    array = shared.zeros((3, 4))
    with pytest.raises(error, match=says):
        array.reshape(*shape)
    with pytest.raises(error, match=says):
        array.reshape(shape if not isinstance(shape, str) else [shape])


def test_a_reshape_that_needs_a_copy_is_refused_and_reads_nothing(shared: Device) -> None:
    """The picture that NumPy computes with has no memory behind it: copying it would read far outside."""
    array = shared.empty((3, 4))
    with pytest.raises(ValueError, match="without a copy"):
        array.T.reshape(12)
    with pytest.raises(ValueError, match="without a copy"):
        array.broadcast_to((1 << 40, 3, 4)).reshape(-1)


def test_broadcasting_names_both_shapes(shared: Device) -> None:
    array = shared.asarray(numbered((3, 1), "f4"))
    same(array.broadcast_to((2, 3, 4)), np.broadcast_to(numbered((3, 1), "f4"), (2, 3, 4)))
    with pytest.raises(ValueError, match=r"\(3,1\).*\(2,4\)"):
        array.broadcast_to((2, 4))
    for shape in ((-1, 3, 1), (2.0, 3, 1), (1 << 62, 3, 1)):
        with pytest.raises((ValueError, TypeError)):
            array.broadcast_to(shape)


def test_what_repeats_elements_can_only_be_read(shared: Device) -> None:
    array = shared.asarray(numbered((3,), "f8"))
    wide = array.broadcast_to((2, 3))[:, 1:]
    assert wide.repeats
    assert not array.repeats
    assert not array.broadcast_to((1, 3)).repeats
    for mistake in (
        lambda: wide.write(0),
        lambda: shared.use(write=[wide]),
        lambda: shared.call(len, wide),
        lambda: shared.call(len, wide, modes="w"),
    ):
        with pytest.raises(ValueError, match="can only be read"):
            mistake()
    seen: list[Any] = []
    shared.call(lambda view: seen.append(view.copy()), wide, modes="r").wait()
    assert seen[0].tolist() == numbered((3,), "f8")[[1, 2]][None].repeat(2, 0).tolist()
    with shared.use(read=wide) as (address,):
        assert shared.manager.owner_of(address) == (array.key, 8)


def test_a_function_cannot_write_to_what_it_only_reads(shared: Device) -> None:
    """What it wrote would be lost at the next eviction."""
    array = shared.asarray(numbered((3,), "f8"))

    def write(view: Any) -> None:
        view[0] = 7

    stream = shared.create_stream()
    shared.call(write, array, modes="r", stream=stream)
    with pytest.raises(lifetimes.BackendError, match="read-only"):
        stream.synchronize()
    same(array, numbered((3,), "f8"))


# Shapes and dtypes at the door.

BAD_SHAPES = [
    ((-1,), ValueError), ((-1, -1), ValueError), ((2, -2, -2), ValueError), ((2**40, 2**40), ValueError),
    ((1.0,), TypeError), ((True,), TypeError), (("3",), TypeError), ((0, 2**63), ValueError), (None, TypeError),
    ("3", TypeError), (2**40, OutOfMemory), ((np.nan,), TypeError), ((np.array([2]),), TypeError), (True, TypeError),
    ((2**31, 2**31, 0, 4), ValueError), ([[2]], TypeError),
]  # fmt: skip


@pytest.mark.parametrize("make", ["empty", "zeros"])
@pytest.mark.parametrize(("shape", "error"), BAD_SHAPES)
def test_bad_shapes_are_refused(shared: Device, make: str, shape: Any, error: type[Exception]) -> None:
    """BUG-058 (inducer/pyopencl#345)."""
    before, counts = len(lifetimes.live()), shared.statistics().arrays
    with pytest.raises(error):
        getattr(shared, make)(shape)
    assert len(lifetimes.live()) == before
    assert shared.statistics().arrays == counts


def test_good_shapes(shared: Device) -> None:
    for shape, expected in [(3, (3,)), ((), ()), ([2, 0], (2, 0)), ((np.int32(2), 3), (2, 3)), (np.uint8(4), (4,))]:
        assert shared.zeros(shape).shape == expected
        same(shared.zeros(shape, ">i4"), np.zeros(expected, ">i4"))


@pytest.mark.parametrize("dtype", ["O", object, np.dtype([("a", "O")]), "(2,)f4", "no such", np.dtype("(2,)O")])
def test_dtypes_that_a_device_cannot_hold(shared: Device, dtype: Any) -> None:
    before = len(lifetimes.live())
    for make in (lambda: shared.empty(3, dtype), lambda: shared.zeros(3, dtype), lambda: shared.asarray([1, 2], dtype)):
        with pytest.raises(TypeError):
            make()
    with pytest.raises(TypeError, match="Python objects"):
        shared.asarray([object()])
    assert len(lifetimes.live()) == before


def test_every_dtype_comes_back(shared: Device) -> None:
    for dtype in DTYPES:
        source = numbered((2, 3), dtype)
        array = shared.asarray(source)
        assert array.evict()
        same(array[::-1], source[::-1])


# Zero sizes.


@pytest.mark.parametrize("backend", ["sim", "host"])
def test_arrays_of_nothing(backend: str) -> None:
    """In and out, views, uses, calls, launches, evictions; no call with size 0.  BUG-059 (libocca/occa#712)."""
    driver = SimDriver() if backend == "sim" else lifetimes.registry.find("host").open()
    with lifetimes.open(driver) as device:
        x = device.zeros(8)
        arrays = [device.zeros(0), device.zeros((3, 0)), device.empty((0, 2), "c16"), device.asarray([]), x[5:5], x[:0][::-1],
                  x[None, 8:], device.asarray(np.empty((4, 0)), copy=False)]  # fmt: skip
        for array in arrays:
            expected = np.empty(array.shape, array.dtype)
            same(array, expected)
            array.write(expected)
            array.write(7)
            with device.use(write=[array], read=[x]):
                pass
            calls: list[Any] = []
            device.call(lambda view, calls=calls: calls.append(view.shape), array).wait()
            assert calls == [array.shape]
            same(array.reshape(*reversed(array.shape)), expected.reshape(array.shape[::-1]))
            same(array.T[...], expected.T)
            assert array.evict() in (True, False)
            same(array, expected)
            if device._code is not None:
                device.compile("def f(a): pass")["f"].launch(array, size=array.size, modes="u").wait()
            assert array.nbytes == 0
        assert "array" in lifetimes.report()
        for array in arrays:
            array.close()
            array.close()
        if isinstance(driver, SimDriver):
            sizes = [
                detail for kind, detail in driver.log if kind in ("allocate", "copy_in", "copy_out", "copy", "view")
            ]
            assert not [detail for detail in sizes if detail[1] == 0]  # type: ignore[index]
            assert not driver.violations
        device.manager.check_invariants()


def test_scalars(shared: Device) -> None:
    array = shared.asarray(2.5)
    assert (array.shape, array.numpy().item(), array[()].shape, array[...].shape) == ((), 2.5, (), ())
    same(array[None], np.array([2.5]))
    array.write(4)
    assert array.T.numpy().item() == 4.0
    with pytest.raises(TypeError, match="no dimensions"):
        len(array)
    with pytest.raises(IndexError):
        array[0]


# Sources.


def test_asarray_copies(shared: Device) -> None:
    source = np.arange(6.0)
    array = shared.asarray(source)
    source[0] = 9
    assert array.numpy()[0] == 0.0
    for other in ([0, 1, 2], (0, 1, 2), range(3), np.arange(6)[::2] // 2, memoryview(b"\0\1\2")):
        assert shared.asarray(other, "i4").numpy().tolist() == [0, 1, 2]
    assert shared.asarray(np.asfortranarray(numbered((2, 3), "f8"))).numpy().tolist() == numbered((2, 3), "f8").tolist()
    copied = shared.asarray(array)
    assert copied.key != array.key
    same(copied, array.numpy())


@pytest.mark.parametrize("shape", [(6,), (2, 3)], ids=["owner", "view"])
def test_copy_false_borrows_and_marks_read_only(shared: Device, shape: tuple[int, ...]) -> None:
    source = np.arange(6.0).reshape(shape)
    array = shared.asarray(source, copy=False)
    assert not source.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        source[0] = 1
    before = shared.manager.host_store.statistics().used_bytes
    same(array, np.arange(6.0).reshape(shape))
    array.write(np.zeros(shape))
    assert array.evict()
    same(array, np.zeros(shape))
    assert source.tolist() == np.arange(6.0).reshape(shape).tolist(), "what is borrowed is never written"
    assert shared.manager.host_store.statistics().used_bytes > before
    array.close()


def test_copy_false_copies_what_it_cannot_borrow(shared: Device) -> None:
    source = np.arange(12.0).reshape(3, 4)
    for other in (source.T, source[:, ::2]):
        array = shared.asarray(other, copy=False)
        assert source.flags.writeable
        source += 1
        assert array.numpy().tolist() == (other - 1).tolist()
    assert shared.asarray(source, "f4", copy=False).dtype == "f4"
    assert source.flags.writeable


def test_numpy_gets_a_copy(shared: Device) -> None:
    array = shared.asarray(np.arange(6.0).reshape(2, 3))
    assert np.asarray(array).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert np.asarray(array[1], "f4").dtype == "f4"
    assert (np.full(3, 2) * array[1]).tolist() == [6, 8, 10]
    with pytest.raises(ValueError, match="a copy of it or nothing"):
        array.__array__(copy=False)


def test_write_converts_and_broadcasts(shared: Device) -> None:
    array = shared.zeros((2, 3), "i4")
    array.write([1, 2, 3])
    array[0].write(9)
    assert array.numpy().tolist() == [[9, 9, 9], [1, 2, 3]]
    with pytest.raises(ValueError, match="broadcast"):
        array.write(np.zeros((3, 2)))
    same(array[1], np.array([1, 2, 3], "i4"))


# Storage and its views.


def test_a_partial_overwrite_keeps_the_rest(shared: Device) -> None:
    """ "w" on a view of a part is "rw": the rest of the storage must be there, also after an eviction."""
    array = shared.asarray(np.arange(8.0))
    assert array.evict()
    uploads = shared.statistics().uploads
    with shared.use(write=[array[2:4]]):
        pass
    assert shared.statistics().uploads == uploads + 1
    shared.call(lambda view: view.fill(0), array[2:4], modes="w")
    assert array.numpy().tolist() == [0, 1, 0, 0, 4, 5, 6, 7]
    assert array.evict()
    uploads = shared.statistics().uploads
    with shared.use(write=[array.reshape(2, 4)]):
        pass
    assert shared.statistics().uploads == uploads, "all of it is overwritten, by another name"
    assert not array.T.reshape(8)[::-1].whole
    assert not array.broadcast_to((1, 8))[:, ::-1].whole


def test_a_view_keeps_the_storage_and_the_device(shared: Device) -> None:
    driver = SimDriver()
    view = lifetimes.open(driver).asarray(np.arange(8.0))[1:3][::-1]
    assert view.numpy().tolist() == [2.0, 1.0]
    del view
    assert driver._closed
    assert not driver.violations


USES_OF_A_VIEW: list[Callable[[Device, Array], object]] = [
    lambda device, view: view.numpy(),
    lambda device, view: view.write(0),
    lambda device, view: view.evict(),
    lambda device, view: view[0],
    lambda device, view: view.T,
    lambda device, view: view.reshape(view.shape),
    lambda device, view: view.broadcast_to((2, *view.shape)),
    lambda device, view: device.use(read=[view]).__enter__(),
    lambda device, view: device.call(len, view, modes="r"),
    lambda device, view: device.asarray(view),
    lambda device, view: view.to_device(lifetimes.open(SimDriver())),
]


def test_closing_the_base_closes_the_views(shared: Device) -> None:
    array = shared.asarray(np.arange(8.0))
    views = [array[1:], array[1:][::2], array.T, array.broadcast_to((2, 8)), array.reshape(2, 4)]
    other = views[0]
    other.close()
    assert views[1].numpy().tolist() == [1.0, 3.0, 5.0, 7.0], "a view is of the storage, not of another view"
    assert not array.closed
    array.close()
    array.close()
    for view in views:
        assert view.closed
        for use in USES_OF_A_VIEW:
            with pytest.raises(ClosedError, match="closed"):
                use(shared, view)
    assert array.closed
    with pytest.raises(ClosedError, match="array"):
        array[0]


def test_a_used_view_keeps_the_base_open(shared: Device) -> None:
    array = shared.asarray(np.arange(8.0), label="the base")
    view = array[2:]
    with view.use(), pytest.raises(BusyError, match="in use"):
        array.close()
    with shared.use(read=[view]), pytest.raises(BusyError, match=r"device\.use"):
        array.close()
    assert array.numpy()[0] == 0.0
    assert view.label == "the base"


def test_an_array_that_is_being_read_cannot_be_closed(shared: Device) -> None:
    driver: Any = shared.driver
    array = shared.asarray(np.arange(8.0))
    shared.call(lambda view: view.fill(1), array, modes="w")
    refused: list[bool] = []

    def close() -> None:
        with pytest.raises(BusyError, match="numpy"):
            array.close()
        refused.append(True)

    driver.faults.before("copy_out", 1, close)
    assert array.numpy()[0] == 1.0
    assert refused
    driver.faults.clear()


def test_one_array_for_reading_and_writing(shared: Device) -> None:
    array = shared.asarray(np.arange(8.0))
    assert array.evict()
    with shared.use(read=[array], write=[array]) as (one, other):
        assert one == other
    assert array.numpy()[3] == 3.0, "it was read, so it was there"
    with shared.use(read=array, write=array[4:]) as (one, other):
        assert other - one == 32


def test_a_use_is_entered_once(shared: Device) -> None:
    array = shared.empty(8)
    use = shared.use(read=[array])
    with use:
        with pytest.raises(BusyError, match="once"), use:
            pass
        assert shared.statistics().pinned == 1
    with pytest.raises(BusyError, match="once"), use:
        pass
    assert shared.statistics().pinned == 0
    array.close()
    with pytest.raises(TypeError, match="array of this device"):
        shared.use(read=[np.zeros(3)])  # type: ignore[list-item]
