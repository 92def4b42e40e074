"""Indexing, taking and adding at indices: as NumPy does, and an index that is known to be outside is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lifetimes.compiler import functions as xp
from lifetimes.compiler.trace import trace
from lifetimes.errors import TraceError
from tests.tracing import as_numpy_does, graph, interpreted

CUBE = np.arange(60.0).reshape(3, 4, 5)
ROWS, GRID = np.array([0, 2, -1]), np.array([[1], [2]])

INDICES: list[Any] = [
    0, -1, np.int8(1), slice(None), slice(1, None), slice(None, None, -1), slice(5, 1, -2), slice(10, 20),
    slice(-2, None), ...,
    None, (), (0, 1), (0, 1, 2), (..., 0), (None, 0, None), (0, ..., None, 0), (slice(1), slice(2), slice(3)),
    (slice(None, None, 2), -1, slice(None, None, -2)), (slice(0, 0),), (slice(None), slice(3, 1)),
    (np.int64(-1), slice(1)),
    [0, 2, 0], ROWS, GRID, (ROWS,), ([0, -1], 1), (1, [0, -1]), (slice(None), ROWS), (slice(None), GRID), (..., GRID),
    (None, ROWS, None), (ROWS, ROWS),
    (GRID, ROWS), (ROWS, slice(None), ROWS), (0, slice(None), ROWS), (ROWS, slice(None), 0), (slice(None), ROWS, ROWS),
    (ROWS, slice(None), GRID), (ROWS, 1, GRID),
    (slice(None, None, -1), ROWS), (ROWS, slice(1, None, 2)), (slice(None), None, ROWS), (ROWS, None, ROWS),
    (..., ROWS, ROWS), [], [[0], [1]],
    (np.array(1), slice(None)), np.array(-1), np.uint8(2), np.array([0, 1], np.uint8),
    (slice(1), [0, 1], slice(None), None),
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_an_index_means_what_numpy_means(index: Any) -> None:
    as_numpy_does(lambda xp, x: x[index], CUBE)


@pytest.mark.parametrize(
    "index", [ROWS, GRID, np.array(1), np.array([], np.int64), np.array([0, 1], np.uint8)], ids=repr
)
def test_a_traced_index_means_what_a_known_one_does(index: Any) -> None:
    as_numpy_does(lambda xp, x, i: (x[i], x[:, i], x[i, i], x[i, :, i], x[0, i], x[..., i, 1]), CUBE[:, :3, :3], index)


def test_views_are_slices_and_not_gathers() -> None:
    assert {node.op for node in graph(lambda x: x[::-1, None, 1, ..., 1:2], CUBE).nodes()} == {
        "param",
        "slice",
        "squeeze",
        "expand",
    }
    assert graph(lambda x: x[...], CUBE).outs[0].op == "param"


@pytest.mark.parametrize(
    ("index", "says"),
    [
        (3, r"index 3 is out of bounds for axis 0 of shape \(3, 4, 5\)"),
        (-4, "index -4 is out of bounds for axis 0"),
        ((0, 0, 5), "index 5 is out of bounds for axis 2"),
        ([0, 3], "index 3 is out of bounds for axis 0"),
        ((slice(None), [-5]), "index -5 is out of bounds for axis 1"),
        ((0, 0, 0, 0), r"4 indices are too many for shape \(3, 4, 5\)"),
        ((..., ...), "one '...' only"),
        (1.0, "1.0 is no index"),
        ("a", "'a' is no index"),
        ([0.5], "is no index"),
        (np.array([0.5]), "an index is an integer, not float64"),
        ((ROWS, np.zeros((2, 2), int)), r"shapes \(3,\) and \(2, 2\) do not broadcast"),
    ],
)
def test_an_index_that_is_none_is_refused_by_name(index: Any, says: str) -> None:
    with pytest.raises(IndexError, match=says) as caught:
        trace(lambda x: x[index], (CUBE,))
    assert isinstance(caught.value, TraceError)


@pytest.mark.parametrize(
    "index", [CUBE > 1, True, [True, False, True], (slice(None), np.ones(4, bool)), np.True_], ids=repr
)
def test_bools_are_no_index_and_the_way_out_is_named(index: Any) -> None:
    with pytest.raises(TraceError, match=r"use where\(mask, x, other\)"):
        trace(lambda x: x[index], (CUBE,))
    with pytest.raises(TraceError, match=r"use where\(mask, x, other\)"):
        trace(lambda x: x[x > 1], (CUBE,))


def test_an_index_that_is_not_known_and_outside_reads_the_nearest() -> None:
    for index in ([5], [-9], [0, 99, -99]):
        at = np.array(index)
        nearest = np.clip(np.where(at < 0, at + 3, at), 0, 2)
        got = interpreted(lambda x, i: (x[i], xp.take(x, i, axis=0), x[i, i]), CUBE[:, :3], at)
        np.testing.assert_array_equal(got[0], CUBE[:, :3][nearest])
        np.testing.assert_array_equal(got[1], CUBE[:, :3][nearest])
        np.testing.assert_array_equal(got[2], CUBE[:, :3][nearest, nearest])


def test_taking_is_numpys() -> None:
    as_numpy_does(
        lambda xp, x, i, j: (
            xp.take(x, i, axis=0), xp.take(x, j, axis=1), xp.take(x, i, axis=-1), xp.take(x, i),
            xp.take(x, [0, -1], axis=2),
            xp.take(x, 1, axis=1),
        ),
        CUBE, ROWS, GRID,
    )  # fmt: skip


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_taking_along_an_axis_is_numpys(axis: int) -> None:
    order = np.argsort(-CUBE % 7, axis=axis)
    as_numpy_does(lambda xp, x, i: xp.take_along_axis(x, i, axis=axis), CUBE, order)
    as_numpy_does(lambda xp, x, i: xp.take_along_axis(x, i - i.shape[axis], axis=axis), CUBE, order)
    one = order[(slice(None),) * (axis % 3) + (slice(0, 1),)]
    as_numpy_does(lambda xp, x, i: xp.take_along_axis(x, i, axis=axis), CUBE, one)
    as_numpy_does(lambda xp, x, i: xp.take_along_axis(x, i, axis=0), CUBE[:, :1], np.zeros((2, 4, 1), int))


@pytest.mark.parametrize("dtype", ["float64", "int8", "uint8"])
def test_adding_at_indices_adds_as_often_as_an_index_is_there(dtype: str) -> None:
    x, updates = np.zeros((3, 4), dtype), np.ones((5, 4), dtype)
    index = np.array([0, 2, 2, -1, 0])
    (got,) = interpreted(lambda x, i, u: xp.scatter_add(x, i, u), x, index, updates)
    assert got[:, 0].tolist() == [2, 0, 3]
    assert got.dtype == np.dtype(dtype)
    as_numpy_does(
        lambda xp, x, u: (xp.scatter_add(x, [3, 3], u[:3, :2], axis=1), xp.scatter_add(x[:, 0], [1, 1, 1], u[:3, 0])),
        x,
        updates,
    )


def test_unsigned_indices_are_never_negative() -> None:
    """Not even those that int64 does not hold."""
    at = np.array([1, 2**63, 2**64 - 1], np.uint64)
    got = interpreted(
        lambda x, i: (x[i], x[i, i], xp.take(x, i, axis=1), xp.scatter_add(x, i, 1.0)), CUBE[0, :3, :3], at
    )
    want = CUBE[0, :3, :3]
    np.testing.assert_array_equal(got[0], want[[1, 2, 2]])
    np.testing.assert_array_equal(got[1], want[[1, 2, 2], [1, 2, 2]])
    np.testing.assert_array_equal(got[2], want[:, [1, 2, 2]])
    np.testing.assert_array_equal(got[3], want + [[0], [1], [0]])


def test_adding_outside_adds_nothing() -> None:
    (got,) = interpreted(lambda x, i: xp.scatter_add(x, i, 1.0), np.zeros(3), np.array([-4, 3, 1, 99, -99]))
    assert got.tolist() == [0, 1, 0]


def test_adding_is_the_transpose_of_taking() -> None:
    """The sum of taken elements times weights is the sum of the array times the added weights, for indices of any shape."""
    random = np.random.default_rng(1)
    for axis in range(3):
        for index in (ROWS, GRID, np.array(1)):
            weights = random.random(np.take(CUBE, index, axis).shape)
            forward, backward = interpreted(
                lambda x, w, i, axis=axis: (
                    xp.sum(xp.take(x, i, axis=axis) * w),
                    xp.sum(x * xp.scatter_add(xp.zeros_like(x), i, w, axis=axis)),
                ),
                CUBE, weights, index,
            )  # fmt: skip
            assert forward == pytest.approx(backward, rel=1e-12)


def test_taking_from_nothing_is_refused() -> None:
    empty = np.zeros((0, 3))
    for use in (
        lambda x: x[[0]],
        lambda x: xp.take(x, np.array([0]), axis=0),
        lambda x: x[0],
        lambda x: x[np.array([0])],
    ):
        with pytest.raises(IndexError):
            trace(use, (empty,))
    as_numpy_does(lambda xp, x: (x[:, [0, 1]], x[[]], x[1:]), empty)
    with pytest.raises(ValueError, match="differ in their number of dimensions"):
        trace(lambda x: xp.take_along_axis(x, [0], axis=0), (CUBE,))
