"""Reductions and scans: identities, NaN and infinities, nothing to reduce, partial blocks, long sums."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import lifetimes
from lifetimes.compiler import functions, settings, target
from lifetimes.compiler.parts import LONG, PART
from tests.jitting import as_numpy_does, check, placed

RANDOM = np.random.default_rng(5)


@pytest.fixture
def device() -> Iterator[lifetimes.Device]:
    with lifetimes.open("host", memory_limit="64MiB") as opened:
        yield opened


def extremes(xp: Any, x: Any) -> Any:
    return xp.min(x), xp.max(x), xp.argmin(x), xp.argmax(x)


@pytest.mark.parametrize("name", target.names())
def test_extremes_of_nothing_but_extremes(device: lifetimes.Device, name: str) -> None:
    """BUG-019 (cupy/cupy#7424): reductions start from the true identity, NaN wins, the first of equal ones counts."""
    inf, nan = np.inf, np.nan
    cases: list[Any] = [[inf], [-inf], [inf, inf], [nan], [1, nan, 2], [nan, nan], [-inf, nan, inf], [0.0, -0.0]]
    with settings.using(name):
        for dtype in ("float32", "float64"):
            for case in cases:
                as_numpy_does(device, extremes, np.array(case, dtype))
            for length in (7, 64, 65, 300):
                for filled in (inf, -inf, nan, 1.0):
                    x = np.full(length, filled, dtype)
                    as_numpy_does(device, extremes, x)
                    as_numpy_does(device, lambda xp, x: extremes(xp, x * 2 - x), x)
                    x[length // 2] = nan
                    x[length - 1] = nan
                    as_numpy_does(device, extremes, x)
        for dtype in ("int8", "uint8", "int32", "int64", "uint64"):
            for filled in (np.iinfo(dtype).min, np.iinfo(dtype).max):
                for length in (1, 3, 64, 65, 300):
                    as_numpy_does(device, extremes, np.full(length, filled, dtype))


def test_the_first_of_equal_ones_for_every_length(device: lifetimes.Device) -> None:
    """BUG-019 (cupy/cupy#7424), lengths 1 to 300, the extreme twice and at every distance from the vectors' edges."""
    function = lifetimes.jit(lambda x: (np.argmin(x), np.argmax(x)))
    for length in range(1, 301):
        x = (np.arange(length) * 29 % 7).astype("float32")
        low, high = (int(each.numpy()) for each in function(device.asarray(x)))
        assert (low, high) == (int(x.argmin()), int(x.argmax())), length


SHAPES = ((0,), (0, 1), (1, 0), (0, 3), (3, 0), (2, 0, 3))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["sum", "prod", "min", "max", "argmax", "any", "all", "mean"])
def test_nothing_to_reduce(device: lifetimes.Device, shape: tuple[int, ...], kind: str) -> None:
    """BUG-041 (cupy/cupy#266): shapes as the rules say, and an error only where there is no identity and a result is due."""
    x = np.zeros(shape, bool if kind in ("any", "all") else "float64")
    sets: list[Any] = [None]
    if kind != "argmax":
        sets += [axes for n in range(1, len(shape) + 1) for axes in itertools.combinations(range(len(shape)), n)]
    else:
        sets += list(range(len(shape)))
    for axes, keepdims in itertools.product(sets, (False, True)):

        def reduce(xp: Any, x: Any, axes: Any = axes, keepdims: bool = keepdims) -> Any:
            return getattr(xp, kind)(x, axis=axes, keepdims=keepdims)

        try:
            with np.errstate(all="ignore"), pytest.MonkeyPatch.context() as patch:
                patch.setattr("warnings.warn", lambda *args, **kwargs: None)
                wanted = np.asarray(getattr(np, kind)(x, axis=axes, keepdims=keepdims))
        except ValueError:
            if kind == "argmax" and 0 in shape and all(shape[a] for a in range(len(shape)) if axes in (None, a)):
                continue
            with pytest.raises(ValueError, match="has no value"):
                check(device, lambda x: reduce(functions, x), x)
            continue
        got = check(device, lambda x: reduce(functions, x), x)[0]
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_array_equal(got, wanted)


def test_sums_of_ones_count(device: lifetimes.Device) -> None:
    """BUG-104 (AccelerateHS/accelerate#123): every length around vectors, unrolled vectors and parts."""
    function = lifetimes.jit(lambda x: (np.sum(x), np.max(x)))
    lengths = {*range(1, 300), *range(300, 1101, 7)}
    for power in range(9, 17):
        lengths |= {2**power - 1, 2**power, 2**power + 1}
    lengths |= {LONG - 1, LONG, LONG + 1, LONG + PART - 1, LONG + PART, LONG + PART + 77}
    for length in sorted(lengths):
        x = np.ones(length)
        x[-1] = 2.0
        total, most = (float(each.numpy()) for each in function(device.asarray(x)))
        assert total == length + 1
        assert most == 2.0


@pytest.mark.parametrize("name", target.names())
def test_sums_of_ones_count_along_each_axis(device: lifetimes.Device, name: str) -> None:
    """BUG-104 (AccelerateHS/accelerate#123): rows and columns of every length, and the last number that was counted."""
    sums = lifetimes.jit(lambda x: (np.sum(x), np.sum(x, axis=0), np.sum(x, axis=1)))
    with settings.using(name):
        for length in [*range(0, 40), *range(40, 1101, 23)]:
            for shape in ((length, 3), (3, length)):
                whole, columns, rows = (each.numpy() for each in sums(device.asarray(np.ones(shape, "float32"))))
                assert whole == 3 * length
                assert columns.tolist() == [shape[0]] * shape[1]
                assert rows.tolist() == [shape[1]] * shape[0]
            if length:
                counted = lifetimes.jit(lambda x, n=length: np.max(x.__array_namespace__().arange(n) + x))
                assert int(counted(device.asarray(np.int64(0))).numpy()) == length - 1


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_sums_of_ones_count_on_several_threads(threads: int) -> None:
    """BUG-104 (AccelerateHS/accelerate#123): the same however the work is shared out, along each axis."""
    with lifetimes.open("host", memory_limit="256MiB") as device, settings.using(threads=threads):
        function = lifetimes.jit(lambda x: (np.sum(x), np.sum(x, axis=0), np.sum(x, axis=1)))
        for shape in ((3, 1_000_001), (1_000_001, 3), (1009, 1013), (1, 2_500_000)):
            whole, columns, rows = (each.numpy() for each in function(device.asarray(np.ones(shape, "float32"))))
            assert whole == shape[0] * shape[1]
            assert (columns == shape[0]).all()
            assert (rows == shape[1]).all()


def test_the_result_does_not_depend_on_the_threads() -> None:
    x = RANDOM.normal(size=1_500_000).astype("float32")
    program = lifetimes.jit(
        lambda x: (np.sum(x * x), np.cumsum(x.reshape(1000, 1500), axis=1), np.mean(x.reshape(1500, 1000), axis=0))
    )
    found = []
    with lifetimes.open("host", memory_limit="256MiB") as device:
        for threads in (1, 2, 3, 8):
            with settings.using(threads=threads):
                found.append([each.numpy().tobytes() for each in program(device.asarray(x))])
    assert all(each == found[0] for each in found)


def test_a_long_sum_of_float32_keeps_its_digits(device: lifetimes.Device) -> None:
    """One accumulator would be off by a hundredth here; vectors of them, in parts, are not."""
    x = np.random.default_rng(5).uniform(0.5, 1.5, 8_000_000).astype("float32")
    exact = x.astype("float64").sum()
    given = device.asarray(x)
    assert abs(float(lifetimes.jit(np.sum)(given).numpy()) / exact - 1) < 1e-6
    rows = lifetimes.jit(lambda x: np.sum(x.reshape(2, -1), axis=1))(given).numpy()
    np.testing.assert_allclose(rows, x.reshape(2, -1).sum(axis=1, dtype="float64"), rtol=1e-7)


def test_small_integers_are_summed_in_64_bits(device: lifetimes.Device) -> None:
    """BUG-026 (NVIDIA/cudf#8449)."""
    for dtype in ("int8", "uint8", "int16", "bool", "int32"):
        x = np.ones(10_000, dtype)
        as_numpy_does(device, lambda xp, x: (xp.sum(x), xp.prod(x), xp.sum(x, axis=0, keepdims=True)), x)
        as_numpy_does(device, lambda xp, x: xp.sum(x, dtype=xp.float32), x)
        as_numpy_does(device, lambda xp, x: xp.sum(x * 1), x)


ROWS = {
    "softmax": lambda xp, x: (
        xp.exp(x - xp.max(x, axis=-1, keepdims=True))
        / xp.sum(xp.exp(x - xp.max(x, axis=-1, keepdims=True)), axis=-1, keepdims=True)
    ),
    "log of a sum of exponentials": lambda xp, x: (
        xp.max(x, axis=-1) + xp.log(xp.sum(xp.exp(x - xp.max(x, axis=-1, keepdims=True)), axis=-1))
    ),
    "normed": lambda xp, x: (
        (x - xp.mean(x, axis=-1, keepdims=True))
        / xp.sqrt(xp.mean((x - xp.mean(x, axis=-1, keepdims=True)) ** 2, axis=-1, keepdims=True) + 1e-5)
    ),
    "standard deviation": lambda xp, x: xp.std(x, axis=-1),
    "share of the largest": lambda xp, x: x / xp.max(xp.abs(x), axis=-1, keepdims=True),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_pattern_of_rows_is_one_kernel(device: lifetimes.Device, row: Any) -> None:
    function = lifetimes.jit(lambda x: row(functions, x))
    assert function.lowered(lifetimes.spec((40, 100))).count("kernel:") == 1
    for shape in ((40, 100), (3, 5, 17), (2, 1), (1, 9)):
        as_numpy_does(device, row, RANDOM.normal(size=shape))
        across = RANDOM.normal(size=shape[::-1]).T  # rows whose elements lie far apart
        as_numpy_does(device, row, across)


@pytest.mark.parametrize("name", target.names())
def test_every_set_of_axes(device: lifetimes.Device, name: str) -> None:
    x = RANDOM.normal(size=(3, 4, 5, 6))
    sets = [axes for n in range(5) for axes in itertools.combinations(range(4), n)]
    with settings.using(name):
        for view in (x, x.transpose(2, 0, 3, 1), x[:, ::-1, :, ::2]):
            for kind in ("sum", "max"):

                def program(xp: Any, x: Any, kind: str = kind) -> Any:
                    return [getattr(xp, kind)(x, axis=axes) for axes in sets]

                as_numpy_does(device, program, view)


def test_scans_along_every_axis(device: lifetimes.Device) -> None:
    x = RANDOM.normal(size=(5, 33, 3))
    for view in (x, x.T, x[::-1, ::2], np.asfortranarray(x)):
        for axis in range(3):
            as_numpy_does(
                device, lambda xp, x, axis=axis: (xp.cumsum(x, axis=axis), xp.cumprod(x * 0.5, axis=axis)), view
            )
    given = placed(device, x.T)
    assert lifetimes.jit(lambda x: np.cumsum(x, axis=0))(given).shape == (3, 33, 5)
