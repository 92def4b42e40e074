"""`Array`: a typed, shaped lifetime over an entry of the memory manager."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lifetimes.errors import OwnershipError, TraceError
from lifetimes.lifetime import Lifetime
from lifetimes.manager.letting_go import let_go
from lifetimes.resources.layout import (
    Layout,
    check_shape,
    contiguous_strides,
    is_integer,
    layout_of,
    offset_in,
    picture_of,
    reshaped,
    size_of,
)

if TYPE_CHECKING:
    from lifetimes._typing import ByteView, HostArray, Shape
    from lifetimes.device import Device
    from lifetimes.manager import Manager

__all__ = ["Array", "check_arrays", "recording"]

recording: Final[ContextVar[bool]] = ContextVar("lifetimes.recording", default=False)
"""True while a function is recorded: what NumPy made of an array's content then would be a constant of the record."""


class Array(Lifetime[int]):
    """An array of one device, or a view of one.  Made by `Device.asarray` and `Device.empty`, which are C-contiguous.

    Its content is on the device or on the host as memory allows; using it brings it where it is needed.  The value of
    the lifetime is the key of its storage in the manager's table.  Basic indexing, `transpose`, `reshape` and
    `broadcast_to` give views: children that share the storage, closed with it.

    >>> import lifetimes, numpy as np
    >>> with lifetimes.open("host", memory_limit="1MiB") as device:
    ...     x = device.asarray(np.arange(6.0).reshape(2, 3), label="x")
    ...     x.shape, x.nbytes, x.evict(), x.numpy().sum()
    ...     x[:, ::-1].numpy()
    ((2, 3), 48, True, np.float64(15.0))
    array([[2., 1., 0.],
           [5., 4., 3.]])
    """

    __slots__ = ("_device", "_layout", "base", "dtype", "offset", "shape", "strides")

    _device: Device
    _layout: Layout | None
    """Its `layout`, once that has been asked for."""
    dtype: np.dtype[Any]
    shape: Shape
    strides: Shape
    """Bytes between neighbours along each dimension, as NumPy has them."""
    offset: int
    """Bytes from the start of the storage to the first element."""
    base: Array | None
    """The array whose storage a view shares; None for an array of its own."""

    def __init__(
        self,
        device: Device,
        content: HostArray | None,
        shape: Shape,
        dtype: np.dtype[Any],
        *,
        copy: bool = True,
        label: str | None = None,
    ) -> None:
        self._device = device
        self._layout = None
        self.dtype = dtype
        self.shape = shape
        self.strides = contiguous_strides(shape, dtype.itemsize)
        self.offset = 0
        self.base = None
        nbytes = size_of(shape) * dtype.itemsize
        manager = device.manager
        # The cell first, then the entry under its number: an interrupt in between leaves nothing behind.
        super().__init__(0, kind="array", nbytes=nbytes, label=label, parents=(device,))
        cell = self._cell
        self._value = key = cell.key
        cell.args = (manager, key)
        cell.finalizer = let_go
        try:
            manager.add(nbytes if content is None else content, copy=copy, label=label, key=key)
        except BaseException:
            self.close()
            raise

    # What it is.

    @property
    def key(self) -> int:
        """The key of its storage in the manager's table; for an array of its own also its number as a lifetime."""
        return self._value

    @property
    def device(self) -> Device:
        """The device it belongs to."""
        return self._device

    @property
    def layout(self) -> Layout:
        """Its dtype, shape and strides as one object, the same for all arrays of one layout."""
        layout = self._layout
        if layout is None:
            self._layout = layout = layout_of(self.dtype, self.shape, self.strides)
        return layout

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return size_of(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of its elements.  (Reports count the storage once, with the array that owns it.)"""
        return size_of(self.shape) * self.dtype.itemsize

    @property
    def storage_nbytes(self) -> int:
        """The bytes of the storage, which views share."""
        return self._cell.nbytes if self.base is None else self.base._cell.nbytes

    @property
    def whole(self) -> bool:
        """Whether it covers its storage from end to end in C order."""
        return (
            self.nbytes == self.storage_nbytes
            and not self.offset
            and self.strides == contiguous_strides(self.shape, self.dtype.itemsize)
        )

    @property
    def repeats(self) -> bool:
        """Whether elements share memory, as those of `broadcast_to` do: such a view can only be read."""
        return any(not stride and length > 1 for stride, length in zip(self.strides, self.shape, strict=True))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array of no dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, shape {self.shape}, {self.dtype}>"

    # Views.

    def __getitem__(self, index: Any) -> Array:
        """A view by basic indexing: integers, slices of any step, ``...`` and ``None``.

        Errors: `TypeError` for arrays and lists of indices, which would be a copy; `IndexError` out of range.
        """
        given = index if isinstance(index, tuple) else (index,)
        for each in given:
            if not (each is None or each is Ellipsis or isinstance(each, slice) or is_integer(each)):
                raise TypeError(
                    f"index {each!r} does not make a view; use integers, slices, ... or None, or index the copy of numpy()"
                )
        # An Ellipsis in the end keeps NumPy from turning a single element into a scalar.
        whole = any(each is Ellipsis for each in given)
        return self._view(self._picture()[given if whole else (*given, ...)])

    def transpose(self, *axes: Any) -> Array:
        """A view with permuted dimensions; reversed without arguments."""
        return self._view(self._picture().transpose(*axes))

    @property
    def T(self) -> Array:  # noqa: N802 (the name that everybody knows)
        """`transpose` without arguments."""
        return self.transpose()

    def reshape(self, *shape: Any) -> Array:
        """A view of another shape, one length of which may be -1.

        Errors: `ValueError` when the elements are not so many, or do not lie so that a view can do it.
        """
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return self._view(reshaped(self._picture(), wanted))

    def broadcast_to(self, shape: Any) -> Array:
        """A view with repeated elements, for reading.  Errors: `ValueError` that names both shapes."""
        return self._view(np.broadcast_to(self._picture(), check_shape(shape)))

    def _picture(self) -> HostArray:
        return picture_of(self.shape, self.strides, self.dtype)

    def _view(self, picture: HostArray) -> Array:
        return self._part(offset_in(picture) if picture.size else 0, picture.shape, picture.strides)

    def _part(self, offset: int, shape: Shape, strides: Shape) -> Array:
        """The view that begins so many bytes after this array's first element."""
        base = self if self.base is None else self.base
        value = self.value  # refuses when closed
        view = Array.__new__(Array)
        view._device = self._device
        view._layout = None
        view.base = base
        view.dtype = self.dtype
        view.shape = shape
        view.strides = strides
        view.offset = self.offset + offset
        Lifetime.__init__(view, value, kind="view", label=self.label, parents=(base,))
        return view

    # Its content.

    def numpy(self) -> HostArray:
        """A fresh copy on the host.  Errors: `ClosedError`, `BrokenError`, `OutOfMemory`."""
        manager = self._manager()
        with self.use("numpy") as key:
            if self.whole:
                out = np.empty(self.shape, self.dtype)
                manager.read(key, out)
                return out
            storage = np.empty(self.storage_nbytes, np.uint8)
            manager.read(key, storage)
        return self.on(storage).copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostArray:
        """What NumPy asks for when it is given the array: a fresh copy on the host.

        Errors: those of `numpy`; `ValueError` for ``copy=False``; `TraceError` while a function is recorded.
        """
        if recording.get():
            raise TraceError(
                f"NumPy would compute with {self!r} once, while the function is traced: use the functions of "
                f"x.__array_namespace__(), or pass the array as an argument; numpy() is a constant if it is meant to be one"
            )
        if copy is False:
            raise ValueError(f"{self!r} is device memory: NumPy gets a copy of it or nothing")
        fresh = self.numpy()
        return fresh if dtype is None else fresh.astype(dtype, copy=False)

    def write(self, source: Any) -> None:
        """Overwrite it from the host; ``source`` is converted to the array's dtype and broadcast to its shape.

        Errors: `ValueError` for a shape that does not fit and for a view that repeats elements, and those of `numpy`.
        """
        manager = self._manager()
        with self.use("write") as key:
            if self.repeats:
                raise ValueError(
                    f"{self!r} repeats elements (strides {self.strides}) and can only be read; write to its base"
                )
            content = np.broadcast_to(np.asarray(source, self.dtype), self.shape)
            if not self.size:
                return
            if not self.whole:
                storage = np.empty(self.storage_nbytes, np.uint8)
                manager.read(key, storage)
                self.on(storage)[...] = content
                content = storage
            manager.write(key, content)

    def evict(self) -> bool:
        """Give the device memory back and keep the content on the host; False while the storage is in use."""
        return self._manager().evict(self.value)

    def to_device(self, device: Device) -> Array:
        """A copy on another device (on the same one, this very array)."""
        if device is self._device:
            return self
        return device.asarray(self, label=self.label)

    def on(self, storage: ByteView) -> HostArray:
        """This array's layout over the bytes of its storage, wherever they are."""
        return np.ndarray(self.shape, self.dtype, buffer=storage.data, offset=self.offset, strides=self.strides)

    def _manager(self) -> Manager:
        self._device.context.check()
        return self._device.manager


def check_arrays(arrays: Any, device: Device) -> None:
    """Errors: `TypeError` for what is no array, `OwnershipError` for one of another device."""
    for array in arrays:
        if not isinstance(array, Array):
            raise TypeError(f"an array of this device is wanted, not {type(array).__name__} (see Device.asarray)")
        if array.device is not device:
            raise OwnershipError(f"{array!r} belongs to {array.device!r}, not to {device!r}; copy it with to_device()")
