"""Arrays of every layout: strides of any sign, nothing, one element, tails, sizes beyond 32 bits, aliased results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import lifetimes
from lifetimes.compiler import settings, target
from lifetimes.compiler.emit.llvm import MOST_COPIES
from lifetimes.compiler.plan import make_plan
from lifetimes.compiler.trace import trace
from tests.jitting import as_numpy_does, check, placed

RANDOM = np.random.default_rng(3)


@pytest.fixture
def device() -> Iterator[lifetimes.Device]:
    with lifetimes.open("host", memory_limit="64MiB") as opened:
        yield opened


def softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


IMAGE = RANDOM.normal(size=(9, 38, 3))
VIEWS: dict[str, Any] = {
    "plain": IMAGE,
    "first axis reversed": IMAGE[::-1],
    "one channel, reversed": IMAGE[::-1, :, 0],
    "every other, backwards": IMAGE[:, ::-2],
    "transposed": IMAGE.T,
    "rows of columns": IMAGE.transpose(1, 0, 2)[:, ::-1],
    "a row for all": np.broadcast_to(IMAGE[0, 0], (5, 3)),
    "a number for all": np.broadcast_to(IMAGE[0, 0, :1], (4, 21)),
    "no dimensions": IMAGE[1, 2, 2],
    "lengths of one": IMAGE[:1, :1, :],
    "one element": IMAGE[:1, :1, :1],
    "one column": IMAGE[:, 3:4, 1],
    "nothing": IMAGE[:, 5:5],
    "nothing at all": IMAGE[:0, :0],
    "far apart": RANDOM.normal(size=(4, 50))[:, ::49],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_any_strides_give_what_a_copy_gives(device: lifetimes.Device, view: Any) -> None:
    """BUG-020 (pydata/numexpr#63)."""
    array = np.asarray(view)
    as_numpy_does(
        device, lambda xp, x: (x - 0.25, xp.sin(x) * x, x[::-1] if x.ndim else x, xp.reshape(x, (x.size,))), array
    )
    for axis in range(array.ndim):
        as_numpy_does(
            device, lambda xp, x, axis=axis: (xp.sum(x, axis=axis), xp.sum(x * 2, axis=axis, keepdims=True)), array
        )
        as_numpy_does(device, lambda xp, x, axis=axis: xp.cumulative_sum(x, axis=axis), array)
        wanted = np.sum(array, axis=axis)
        out = device.asarray(np.full(wanted.shape, 7.0)[..., None].repeat(2, -1))[..., ::-1][..., 0]
        lifetimes.jit(lambda x, axis=axis: np.sum(x, axis=axis)).into(out, placed(device, array))
        np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-13, atol=1e-13)
        if array.shape[axis]:
            as_numpy_does(device, lambda xp, x, axis=axis: (xp.max(x, axis=axis), xp.argmin(x, axis=axis)), array)
    if array.ndim and array.shape[-1]:
        as_numpy_does(device, softmax, array)


def test_any_strides_on_many_threads() -> None:
    """BUG-020 (pydata/numexpr#63): the same views from 8 threads at once, each kernel shared out to several threads."""
    function = lifetimes.jit(lambda x: x[::-1, :, 0] - 0.25)
    image = RANDOM.normal(size=(300, 400, 3))
    wanted = image[::-1, :, 0] - 0.25
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            if not np.array_equal(function(given).numpy(), wanted):
                wrong.append(number)

    with lifetimes.open("host", memory_limit="64MiB") as device, settings.using(threads=3):
        given = device.asarray(image)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


@pytest.mark.parametrize("name", target.names())
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_every_length_around_the_vectors(device: lifetimes.Device, name: str, dtype: str) -> None:
    """From nothing to beyond the unrolled vectors, one by one: a tail that is off by one shows at one of them."""
    with settings.using(name) as chosen:
        lanes = chosen.target.registers // np.dtype(dtype).itemsize
        function = lifetimes.jit(lambda x: (x * x + x, np.sum(x), np.cumsum(x), np.max(x + x), np.argmax(x)))
        most = lanes * MOST_COPIES + lanes + 2
        lengths = {*range(1, min(most, 60)), *range(lanes * MOST_COPIES - 1, lanes * MOST_COPIES + 2), most}
        for length in sorted(lengths):
            whole = (np.arange(length * 3) * 37 % 11 - 5).astype(dtype)
            x = whole[length : 2 * length]  # what stands before and after must not matter
            got = [each.numpy() for each in function(device.asarray(whole)[length : 2 * length])]
            wanted = [x * x + x, np.sum(x), np.cumsum(x), np.max(x + x), np.argmax(x)]
            for each, want in zip(got, wanted, strict=True):
                np.testing.assert_array_equal(each, want, err_msg=f"{length} elements")


def test_transposes_in_strips(device: lifetimes.Device) -> None:
    """Large enough for several strips, and not a whole number of them."""
    x = RANDOM.normal(size=(301, 203))

    def transposed(x: Any) -> Any:
        return x.T + 1, x.T[::-1, 5:] * x.T[:, 5:]

    step: Any = make_plan(trace(transposed, (x,)).function, [(203, 1)], settings.now).steps[0]
    assert len(step.launches) > 2
    program = lifetimes.jit(transposed)
    for threads in (1, 3):
        with settings.using(threads=threads):
            one, two = program(device.asarray(x))
            np.testing.assert_array_equal(one.numpy(), x.T + 1)
            np.testing.assert_array_equal(two.numpy(), x.T[::-1, 5:] * x.T[:, 5:])
    cube = RANDOM.normal(size=(70, 80, 90))
    as_numpy_does(device, lambda xp, x: xp.permute_dims(x, (2, 0, 1)) + 0, cube)


@pytest.mark.parametrize("name", target.names())
def test_a_kernel_writes_its_elements_and_no_others(device: lifetimes.Device, name: str) -> None:
    """Full vectors, unrolled ones and masked tails, into the middle of a larger array."""
    with settings.using(name):
        function = lifetimes.jit(lambda x: x + 1)
        for length in range(0, 70):
            guard = device.asarray(np.full(length + 40, -7.0))
            function.into(guard[20 : 20 + length], device.asarray(np.zeros(length)))
            wanted = np.full(length + 40, -7.0)
            wanted[20 : 20 + length] = 1.0
            np.testing.assert_array_equal(guard.numpy(), wanted)


# More than 32 bits hold.


def test_offsets_and_strides_beyond_32_bits() -> None:
    """BUG-107 (cupy/cupy#5328): there is one width of indices, and it is 64 bits."""
    length = 2**31 + 4096
    with lifetimes.open("host", memory_limit="3GiB") as device:
        huge = device.empty(length, "int8")  # memory that nobody touches costs nothing
        copy = lifetimes.jit(lambda x: x + np.int8(0))
        sparse = np.arange(64, dtype="int8")
        stride = length // 64
        copy.into(huge[::stride][:64], device.asarray(sparse))
        copy.into(huge[length - 5 :], device.asarray(np.arange(50, 55, dtype="int8")))
        np.testing.assert_array_equal(copy(huge[length - 5 :]).numpy(), np.arange(50, 55))
        np.testing.assert_array_equal(
            copy(huge[::-stride][-64:]).numpy().sum(), copy(huge[::-stride][-64:]).numpy().sum()
        )
        np.testing.assert_array_equal(copy(huge[::stride][:64]).numpy(), sparse)
        total = lifetimes.jit(lambda x: np.sum(x, dtype=np.int64))
        assert int(total(huge[::stride][:64]).numpy()) == sparse.sum()


def test_more_elements_than_32_bits_count() -> None:
    """BUG-107 (cupy/cupy#5328): the loops themselves go beyond 2**31; the array repeats one element, so it needs no memory."""
    length = 2**31 + 3
    function = lifetimes.jit(lambda x: np.sum(x, dtype=np.int64))
    with lifetimes.open("host", memory_limit="1MiB") as device:
        ones = device.asarray(np.ones(1, "int8")).broadcast_to((length,))
        assert int(function(ones).numpy()) == length


@pytest.mark.slow
def test_every_element_beyond_32_bits() -> None:
    """BUG-107 (cupy/cupy#5328): a result of more than 2**31 elements, all of them written, read and found again."""
    length = 2**31 + 4099
    with lifetimes.open("host", memory_limit="4352MiB") as device:
        given = device.empty(length, "int8")
        filled = lifetimes.jit(lambda x: x * np.int8(0) + np.int8(3))(given)
        given.close()
        lifetimes.jit(lambda x: x + np.int8(6)).into(filled[length - 3 : length - 2], filled[:1])
        total, at, most = lifetimes.jit(lambda x: (np.sum(x, dtype=np.int64), np.argmax(x), np.max(x)))(filled)
        assert (int(total.numpy()), int(at.numpy()), int(most.numpy())) == (3 * length + 6, length - 3, 9)


# Results that share memory with arguments.


def test_a_result_written_over_an_argument(device: lifetimes.Device) -> None:
    """BUG-007 (pydata/numexpr#93): in place is as into a new array."""
    x, y = RANDOM.normal(size=1000), RANDOM.normal(size=1000)
    programs: list[Callable[..., Any]] = [
        lambda a, b: a - a * 0.001,
        lambda a, b: b * 100 + b - a,
        lambda a, b: a - np.sum(a),
        lambda a, b: a[::-1] + b,
        lambda a, b: np.cumsum(a) + a[::-1],
    ]
    for program in programs:
        wanted = program(x, y)
        for target_first in (True, False):
            a, b = device.asarray(x), device.asarray(y)
            lifetimes.jit(program).into(a if target_first else b, a, b)
            np.testing.assert_allclose((a if target_first else b).numpy(), wanted, rtol=1e-13, atol=1e-13)


def test_results_that_overlap_arguments_in_part(device: lifetimes.Device) -> None:
    """BUG-071 (numba/numba#230): a shifted copy is the copy of what was there before."""
    same = lifetimes.jit(lambda x: x + 0)
    plus = lifetimes.jit(lambda x, y: x + y)
    slices = [
        (slice(1, None), slice(None, -1)),
        (slice(None, -1), slice(1, None)),
        (slice(None), slice(None, None, -1)),
        (slice(None, None, 2), slice(1, None, 2)),
        (slice(2, 6), slice(4, 8)),
    ]
    for into, source in slices:
        a = np.arange(100)
        given = device.asarray(a)
        a[into] = a[source].copy()
        same.into(given[into], given[source])
        np.testing.assert_array_equal(given.numpy(), a)
    a = np.arange(100)
    given = device.asarray(a)
    plus.into(given[:-1], given[1:], given[:-1])
    np.testing.assert_array_equal(given.numpy()[:-1], a[1:] + a[:-1])


def test_two_results_into_one_memory(device: lifetimes.Device) -> None:
    function = lifetimes.jit(lambda x: (x + 1, x * 10))
    given = device.asarray(np.arange(10.0))
    both = device.asarray(np.zeros(12))
    function.into((both[:10], both[2:]), given)  # the second one comes last
    np.testing.assert_array_equal(both.numpy()[2:], np.arange(10.0) * 10)
    np.testing.assert_array_equal(both.numpy()[:2], [1.0, 2.0])


def test_into_computes_where_its_result_is(device: lifetimes.Device) -> None:
    """Arguments that are on no device go to that of ``out``, whichever is the current one."""
    function = lifetimes.jit(lambda x, a: x * a)
    out = device.asarray(np.zeros(3))
    with lifetimes.open("host", memory_limit="1MiB"):  # the current one
        for _ in range(2):
            function.into(out, np.arange(3.0), 2.0)
        lifetimes.jit(lambda a: a * 2).into(number := device.asarray(np.zeros(())), 4.0)
    assert out.numpy().tolist() == [0, 2, 4]
    assert number.numpy() == 8


def test_into_refuses_what_does_not_fit(device: lifetimes.Device) -> None:
    function = lifetimes.jit(lambda x: x + 1)
    x = device.asarray(np.zeros(3))
    with pytest.raises(ValueError, match=r"out 0 is float64 \(4,\), but the result is float64 \(3,\)"):
        function.into(device.asarray(np.zeros(4)), x)
    with pytest.raises(ValueError, match="out 0 is float32"):
        function.into(device.asarray(np.zeros(3, "float32")), x)
    with pytest.raises(ValueError, match="packed in another way"):
        function.into((x,), x)
    with pytest.raises(ValueError, match="repeats elements"):
        function.into(device.asarray(np.zeros(1)).broadcast_to((3,)), x)


def test_arrays_that_are_larger_together_than_the_device() -> None:
    """A working set of eight arrays on a device that holds four: they come and go, and no content is lost."""
    function = lifetimes.jit(lambda x, y: np.sin(x) + y)
    with lifetimes.open("host", memory_limit="4MiB") as device:
        content = [RANDOM.normal(size=120_000) for _ in range(8)]
        arrays = [device.asarray(each) for each in content]
        for turn in range(3):
            for at in range(8):
                other = (at + 3 + turn) % 8
                content[at] = np.sin(content[at]) + content[other]
                arrays[at] = function(arrays[at], arrays[other])
        for array, wanted in zip(arrays, content, strict=True):
            np.testing.assert_allclose(array.numpy(), wanted, rtol=1e-12, atol=1e-14)
        assert device.statistics().evictions > 8


def test_a_working_set_larger_than_the_device_is_refused() -> None:
    function = lifetimes.jit(lambda x, y: x + y)
    with lifetimes.open("host", memory_limit="2MiB") as device:
        x, y = device.asarray(np.zeros(100_000)), device.asarray(np.ones(100_000))
        with pytest.raises(lifetimes.OutOfMemory):
            function(x, y)
        assert x.numpy().sum() == 0
        assert y.numpy().sum() == 100_000


def test_weak_numbers_and_strong_ones(device: lifetimes.Device) -> None:
    x = RANDOM.normal(size=5).astype("float32")
    check(device, lambda x, a, b: x * a + b, x, 2, 0.5)
    check(device, lambda x, a: x * a, x, np.float64(2.5))
    check(device, lambda a, b: a / b, 1, 3)
