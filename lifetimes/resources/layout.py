"""Shapes, strides and dtypes: what an array may have, and the index arithmetic of views.

Note [Pictures].  NumPy does the arithmetic on a *picture*: an array of the right shape and strides over no memory of its
own.  Its elements are never touched, so whatever would copy them must be refused and not tried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lifetimes._typing import HostArray, Shape

__all__ = [
    "MOST", "Layout", "check_dtype", "check_shape", "contiguous_strides", "is_integer", "layout_of", "offset_in",
    "picture_of", "reshaped", "size_of",
]  # fmt: skip

MOST: Final = int(np.iinfo(np.intp).max)
"""The most elements that an array can have anywhere."""

_CAN_REFUSE_COPIES: Final = np.lib.NumpyVersion(np.__version__) >= "2.1.0"


class Layout:
    """Dtype, shape and strides of an array.  Made by `layout_of`: arrays of one layout have one and the same.

    So it is compared and hashed as the object it is, in a tenth of the time that its parts would take.
    """

    __slots__ = ("__weakref__", "dtype", "shape", "strides")

    def __init__(self, dtype: np.dtype[Any], shape: Shape, strides: Shape) -> None:
        self.dtype = dtype
        self.shape = shape
        self.strides = strides

    def __repr__(self) -> str:
        return f"<layout {self.dtype} {self.shape}, strides {self.strides}>"


_layouts: WeakValueDictionary[tuple[np.dtype[Any], Shape, Shape], Layout] = WeakValueDictionary()


def layout_of(dtype: np.dtype[Any], shape: Shape, strides: Shape) -> Layout:
    """The layout with these parts; the same one as long as anybody holds it.  Threading: any thread.

    >>> held = layout_of(np.dtype("int8"), (3,), (1,))
    >>> layout_of(np.dtype("int8"), (3,), (1,)) is held
    True
    """
    key = (dtype, shape, strides)
    found = _layouts.get(key)
    return _layouts.setdefault(key, Layout(dtype, shape, strides)) if found is None else found


def check_dtype(dtype: Any) -> np.dtype[Any]:
    """A dtype that device memory can hold.  Errors: `TypeError` for Python objects and for dtypes with a shape."""
    checked: np.dtype[Any] = np.dtype(dtype)
    if checked.hasobject:
        raise TypeError(f"dtype {checked} holds Python objects, which a device cannot; use a numeric dtype")
    if checked.subdtype is not None:
        raise TypeError(f"dtype {checked} has a shape of its own; put {checked.shape} at the end of the array's shape")
    return checked


def check_shape(shape: Any, what: str = "shape") -> Shape:
    """A shape as a tuple of ints.

    Errors: `TypeError` for what is no integer (True and 1.0 too), `ValueError` below zero and for more elements than an
    array can have anywhere (zero lengths left out, as NumPy counts them).

    >>> check_shape(3), check_shape([2, 0])
    ((3,), (2, 0))
    >>> check_shape((2, -2))
    Traceback (most recent call last):
    ValueError: shape (2, -2): a dimension cannot be negative
    """
    given = shape if isinstance(shape, (tuple, list)) else (shape,)
    checked = []
    elements = 1
    for dimension in given:
        if not is_integer(dimension):
            raise TypeError(f"{what} {shape!r}: a dimension must be an integer, not {dimension!r}")
        length = dimension.__index__()
        if length < 0:
            raise ValueError(f"{what} {shape!r}: a dimension cannot be negative")
        elements *= length or 1
        checked.append(length)
    if elements > MOST:
        raise ValueError(f"{what} {shape!r}: no array can have so many elements")
    return tuple(checked)


def is_integer(number: object) -> bool:
    """True for integers of any library, False for bool, which is no length and no index."""
    return hasattr(number, "__index__") and not isinstance(number, (bool, np.bool_, np.ndarray))


def size_of(shape: Shape) -> int:
    """The number of elements.  Python integers: no shape can overflow it."""
    size = 1
    for length in shape:
        size *= length
    return size


def contiguous_strides(shape: Shape, itemsize: int) -> Shape:
    """The strides in bytes of a C-contiguous array.

    >>> contiguous_strides((2, 3), 8)
    (24, 8)
    """
    strides = []
    step = itemsize
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def picture_of(shape: Shape, strides: Shape, dtype: np.dtype[Any]) -> HostArray:
    """A NumPy array of this layout whose elements must not be touched (Note [Pictures])."""
    return np.lib.stride_tricks.as_strided(np.empty(1, dtype), shape, strides)


def offset_in(picture: HostArray) -> int:
    """Bytes from the first element of the picture that this one was made from to its own first element."""
    root = picture
    while isinstance(root.base, np.ndarray):
        root = root.base
    start: int = root.__array_interface__["data"][0]
    moved: int = picture.__array_interface__["data"][0] - start
    return moved


def reshaped(picture: HostArray, shape: Sequence[Any]) -> HostArray:
    """The picture in another shape, one length of which may be -1.  Errors: `ValueError` when it would take a copy."""
    unknown = [at for at, length in enumerate(shape) if is_integer(length) and length == -1]
    wanted = list(check_shape([1 if at in unknown else length for at, length in enumerate(shape)]))
    for at in unknown:
        wanted[at] = -1
    try:
        if _CAN_REFUSE_COPIES:
            return picture.reshape(wanted, copy=False)
        view = picture.view()
        view.shape = tuple(wanted)  # how it was said before NumPy 2.1
        return view
    except (ValueError, AttributeError) as error:
        raise ValueError(
            f"shape {picture.shape} with strides {picture.strides} cannot become {tuple(wanted)} without a copy: {error}"
        ) from None
