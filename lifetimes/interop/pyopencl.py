"""Arrays of PyOpenCL on memory of ours.

``pyopencl.array.Array(queue, shape, dtype, allocator=Allocator(device, queue))`` takes its memory from the device's memory
manager: other arrays are evicted to make room, blocks are used again when the queue is done with them, and what lives
shows in `lifetimes.live`.

Importable without PyOpenCL; using it needs the back end ``opencl`` on a device with shared virtual memory.
"""

from __future__ import annotations

import importlib
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lifetimes.errors import BackendError
from lifetimes.lifetime import Lifetime

if TYPE_CHECKING:
    from lifetimes.device import Device
    from lifetimes.manager import Manager
    from lifetimes.resources.stream import Stream

__all__ = ["Allocator"]


class Allocator:
    """Memory of a device for arrays of PyOpenCL.

    ``queue`` (None: the device's own) is the in-order queue that the arrays are used on; their memory goes to others only
    when it has done what was enqueued until the last reference was dropped.  That is what PyOpenCL's own pools ask for,
    too: what is used on further queues needs an event between them before it is dropped.

    What it returns is a ``pyopencl.Buffer`` over the shared virtual memory; with ``svm`` it is a ``pyopencl.SVM``, which is
    made quicker, and which PyOpenCL cannot copy to or from at an offset.  Both have the attributes ``address`` and
    ``lifetime``, and ``release()``.

    An array's memory stays on the device while the array lives, since PyOpenCL knows its address.  Closing the device
    raises `BusyError` meanwhile.  Zero bytes are None, as PyOpenCL wants it.

    Errors: `BackendError` for a device whose memory has no addresses that PyOpenCL understands, and for a queue that is out
    of order; `OwnershipError` for one of another context.
    Threading: any thread.

    >>> import lifetimes
    >>> with lifetimes.open("host") as device:
    ...     Allocator(device)
    Traceback (most recent call last):
    lifetimes.errors.BackendError: 'host:0' has no shared virtual memory of OpenCL, which arrays of PyOpenCL need here; ...
    """

    def __init__(self, device: Device, queue: Any = None, *, svm: bool = False, label: str | None = None) -> None:
        driver: Any = device.driver
        if not getattr(driver, "shared_virtual_memory", False):
            raise BackendError(
                f"{device.label!r} has no shared virtual memory of OpenCL, which arrays of PyOpenCL need here; "
                "open a device of the back end 'opencl' that has"
            )
        if queue is not None:
            driver.check_stream(queue)
        kind = _kinds()[svm]
        self._make = kind if svm else partial(kind, driver.context)
        self._device = device
        self._stream: Stream = device.stream if queue is None else device.borrow_stream(queue)
        self._label = label

    @property
    def device(self) -> Device:
        """Where the memory comes from."""
        return self._device

    def __call__(self, nbytes: int) -> Any:
        """``nbytes`` of device memory, given back by ``release()`` or with the last reference; None for none.

        Errors: `OutOfMemory`, a ``MemoryError``, when nothing more can be evicted; `ClosedError`.
        Complexity: about 20 us for memory that was used before.
        """
        if not nbytes:
            return None
        manager = self._device.manager
        timeline = self._stream.timeline
        timeline.done(timeline.issued)  # looks at the events of earlier drops, which would pile up on a borrowed queue
        given: list[Any] = []
        lifetime = Lifetime(
            None, _give_back, manager, given,
            kind="pyopencl", nbytes=nbytes, label=self._label, parents=(self._device, self._stream),
        )  # fmt: skip
        try:
            given.append(lifetime.key)
            manager.add(nbytes, label=self._label, key=lifetime.key)
            given.append(manager.use(lifetime.key, "w", self._stream))
            address = given[1].__enter__()
            return self._make(address, np.asarray(_Memory(address, nbytes, lifetime)), lifetime)
        except BaseException:
            lifetime.close()
            raise


class _Memory:
    """What NumPy makes an array of; the array keeps ``owner``, and PyOpenCL keeps the array."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        self.__array_interface__ = {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": (address, False)}
        self.owner = owner


@cache
def _kinds() -> tuple[Any, Any]:
    """The classes of what an allocator returns; made when PyOpenCL is needed."""
    cl: Any = importlib.import_module("pyopencl")

    class HeldBuffer(cl.Buffer):  # type: ignore[misc]
        """A buffer over shared virtual memory that belongs to a lifetime."""

        def __init__(self, context: Any, address: int, array: Any, lifetime: Lifetime[None]) -> None:
            super().__init__(context, cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR, hostbuf=array)
            self.address = address
            self.lifetime = lifetime

        def release(self) -> None:
            """Give the memory back now.  Twice is fine."""
            if not self.lifetime.closed:
                super().release()
                self.lifetime.close()

    class HeldSVM(cl.SVM):  # type: ignore[misc]
        """Shared virtual memory that belongs to a lifetime."""

        def __init__(self, address: int, array: Any, lifetime: Lifetime[None]) -> None:
            super().__init__(array)
            self.address = address
            self.lifetime = lifetime

        def release(self) -> None:
            """Give the memory back now.  Twice is fine."""
            self.lifetime.close()

    return HeldBuffer, HeldSVM


def _give_back(manager: Manager, given: list[Any]) -> None:
    """The finalizer: ``given`` has the key, and the use that pins it, as far as it came."""
    if manager.closed:
        return
    for use in given[1:]:
        use.__exit__(None, None, None)
    for key in given[:1]:
        if manager.table.get(key) is not None:
            manager.release(key)
