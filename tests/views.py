"""Views of views, on a device and in NumPy: what the two are compared by."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
from hypothesis import strategies as st

from lifetimes import Array

RECORD = np.dtype([("a", ">i2"), ("b", "f8"), ("c", "?")])
PADDED = np.dtype({"names": ["x"], "formats": ["f4"], "itemsize": 12})
DTYPES = ["f8", "<i2", ">i4", ">f8", "?", "c16", "u1", "S3", "<U2", "M8[s]", "V5", RECORD, PADDED]


def numbered(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array of this shape in which hardly two elements are the same."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = (np.arange(count) * 37 % 251).astype(np.uint8)
    if np.dtype(dtype).kind in "U":
        raw = (np.arange(count // 4) % 90 + 33).astype("<u4").view(np.uint8)
    if np.dtype(dtype) == np.bool_:
        raw &= 1
    return raw.view(dtype).reshape(shape) if count else np.empty(shape, dtype)


def same(array: Array, expected: Any) -> None:
    found = array.numpy()
    assert (array.shape, array.dtype, array.size, array.ndim) == (
        expected.shape, expected.dtype, expected.size, expected.ndim,
    )  # fmt: skip
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    if expected.dtype.names is None:
        assert found.tobytes() == expected.tobytes()
    else:
        assert found.tolist() == expected.tolist()  # NumPy does not copy what lies between fields
    assert found.flags.c_contiguous
    assert found.flags.owndata or found.base is not None


@st.composite
def steps(draw: st.DrawFn, shape: tuple[int, ...]) -> list[tuple[str, Any]]:
    """Views of views: what to do, and the shape it is done to is followed with NumPy."""
    picture, done = np.empty(shape, np.uint8), []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["index", "transpose", "reshape", "broadcast"]))
        what: Any = None
        if kind == "index":
            what = draw(hnp.basic_indices(picture.shape, allow_newaxis=True, max_dims=5))
            picture = picture[to_an_array(what)]
        elif kind == "transpose":
            what = draw(st.permutations(range(picture.ndim)))
            picture = picture.transpose(what)
        elif kind == "reshape":
            what = draw(st.sampled_from(reshapes(picture.shape)))
            if not np.shares_memory(picture, picture.reshape(what)):
                continue
            picture = picture.reshape(what)
        else:
            what = (draw(st.integers(0, 3)), *picture.shape)
            picture = np.broadcast_to(picture, what)
        if picture.size > 2000:
            break
        done.append((kind, what))
    return done


def to_an_array(index: Any) -> tuple[Any, ...]:
    """An index that gives an array and no scalar, whatever it picks."""
    whole = index if isinstance(index, tuple) else (index,)
    return whole if any(each is Ellipsis for each in whole) else (*whole, ...)


def reshapes(shape: tuple[int, ...]) -> list[Any]:
    size = int(np.prod(shape))
    found: list[Any] = [(size,), (1, *shape), (*shape, 1)]
    found += [(-1,), (size // 2, 2)] if size and size % 2 == 0 else []
    return found


def follow(array: Any, steps: list[tuple[str, Any]]) -> Any:
    """The same views of a device array or of NumPy's."""
    for kind, what in steps:
        if kind == "index":
            array = array[to_an_array(what) if isinstance(array, np.ndarray) else what]
        elif kind == "transpose":
            array = array.transpose(what) if len(what) else array.transpose()
        elif kind == "reshape":
            array = array.reshape(what)
        else:
            wide = np.broadcast_to(array, what) if isinstance(array, np.ndarray) else array.broadcast_to(what)
            # NumPy's is read-only even where nothing repeats
            array = (
                wide if isinstance(wide, Array) else np.lib.stride_tricks.as_strided(array, wide.shape, wide.strides)
            )
    return array
