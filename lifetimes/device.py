"""`Device`: what `lifetimes.open` returns; owns the driver, the default stream and the memory manager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Self

import numpy as np

from lifetimes._typing import Mode
from lifetimes.backend import Driver, SupportsCode, SupportsHostCall
from lifetimes.errors import BackendError
from lifetimes.lifetime import Lifetime
from lifetimes.manager import Manager, ManagerStatistics
from lifetimes.manager.core import timeline_of
from lifetimes.resources.array import Array, check_arrays, check_dtype, check_shape
from lifetimes.resources.context import Context
from lifetimes.resources.identity import IdentityMap
from lifetimes.resources.in_use import ArraysInUse, parse_modes
from lifetimes.resources.module import Module
from lifetimes.resources.stream import Event, Stream
from lifetimes.timeline import Work

__all__ = ["Device", "current"]

current: ContextVar[Device | None] = ContextVar("lifetimes.current_device", default=None)

class Device(Lifetime[Driver]):
    """One opened device.  A lifetime, whose children are its arrays, streams, events and modules, and a context manager.

    ``with lifetimes.open(...) as device:`` makes it the current device for the block and closes it at the end.  Closing
    waits for pending work and releases everything, children first, the driver last.
    """

    __slots__ = ("_code", "_host_calls", "_known", "_tokens", "context", "manager", "stream")

    def __init__(self, driver: Driver, *, label: str | None = None, **options: Any) -> None:
        self.context = context = Context(driver, label=label)
        try:
            self.stream = Stream(context, (context,), label="default")
            self.manager = Manager(context.driver, stream=self.stream.timeline, **options)
            super().__init__(
                context.driver, self.manager.close, kind="device", label=context.label, parents=(context, self.stream)
            )
        except BaseException:
            context.close()
            raise
        # Decided once: isinstance on a protocol costs microseconds.
        self._host_calls = context.driver if isinstance(context.driver, SupportsHostCall) else None
        self._code = context.driver if isinstance(context.driver, SupportsCode) else None
        self._known = IdentityMap()
        self._tokens: list[Token[Device | None]] = []

    @property
    def driver(self) -> Driver:
        """The raw operations, in the device's context.  Errors: `ClosedError`."""
        return self.value

    # Arrays.

    def asarray(self, source: Any, dtype: Any = None, *, copy: bool = True, label: str | None = None) -> Array:
        """An array with the content of ``source`` (whatever NumPy makes an array of); uploaded at its first use.

        ``copy=False`` borrows a C-contiguous NumPy array of the right dtype instead of copying it, and marks it
        read-only, since a change would be seen or not as memory moves.
        Errors: `TypeError` for Python objects, `OutOfMemory` for more than the limit, `ClosedError`.
        """
        self._check_open()
        host = np.asarray(source) if dtype is None else np.asarray(source, check_dtype(dtype))
        check_dtype(host.dtype)
        if not host.flags.c_contiguous:
            host, copy = np.ascontiguousarray(host), copy and host.ndim == 0
        if not copy and host.flags.owndata:
            host.flags.writeable = False
        return Array(self, host, host.shape, host.dtype, copy=copy, label=label)

    def empty(self, shape: Any, dtype: Any = "float64", *, label: str | None = None) -> Array:
        """An array of unspecified content.  Errors: those of `asarray`, and `ValueError` for a negative dimension."""
        self._check_open()
        return Array(self, None, check_shape(shape), check_dtype(dtype), label=label)

    def zeros(self, shape: Any, dtype: Any = "float64", *, label: str | None = None) -> Array:
        """An array of zeros."""
        return self.asarray(np.zeros(check_shape(shape), check_dtype(dtype)), label=label)

    # Using them.

    def use(self, *, read: Sequence[Array] = (), write: Sequence[Array] = (), stream: Any = None) -> ArraysInUse:
        """``with device.use(read=[x], write=[y]) as (at_x, at_y):`` pins arrays for the user's own work on ``stream``.

        ``write`` promises to overwrite the whole array, unless it stands in ``read`` as well or is a view of a part.  All
        are pinned together or none.  The block gets their device addresses, those of ``read`` first.
        Errors: as `Manager.use_many`; `OwnershipError` for an array of another device.
        """
        pairs: list[tuple[Array, Mode]] = [(array, "r") for array in read]
        pairs += [(array, "rw" if any(array is each for each in read) else "w") for array in write]
        return self._in_use(pairs, stream)

    def call(
        self,
        function: Callable[..., object],
        *arrays: Array,
        modes: str | Sequence[Mode] | None = None,
        stream: Any = None,
    ) -> Work:
        """Enqueue ``function(*views)`` on a stream, with NumPy views of the arrays' device memory.

        ``modes`` has one letter an array: ``r`` reads, ``w`` overwrites all of it, ``u`` updates (reads and writes); None
        updates every one.  Returns the work: ``.wait()`` for it, or just read an array, which waits by itself.  If the
        function raises, the arrays it wrote are broken and say so at their next use.

        Errors: `BackendError` where the host cannot see device memory; those of `use`.

        >>> import lifetimes, numpy as np
        >>> with lifetimes.open("host") as device:
        ...     x, y = device.asarray(np.arange(3.0)), device.empty(3)
        ...     _ = device.call(lambda a, b: np.multiply(a, 2, out=b), x, y, modes="rw")
        ...     y.numpy()
        array([0., 2., 4.])
        """
        driver = self._host_calls
        if driver is None:
            raise BackendError(
                f"the memory of {self.label!r} cannot be seen by Python functions; compile and launch a kernel instead"
            )
        using = self._in_use(list(zip(arrays, parse_modes(modes, len(arrays)), strict=True)), stream)
        timeline = using.timeline
        timeline.fence()
        with using as addresses:
            views = [
                array.on(driver.view(address - array.offset, array.storage_nbytes))
                for array, address in zip(arrays, addresses, strict=True)
            ]
            driver.call(function, views, timeline.handle)
        work = Work(timeline, timeline.issued)
        timeline.mark()  # a failure of the function is told apart from what follows
        return work

    # Streams, events, code.

    def create_stream(self, *, label: str | None = None) -> Stream:
        """A queue of its own.  Errors: `ClosedError`, `BackendError`."""
        self._check_open()
        return Stream(self.context, (self,), label=label)

    def create_event(self, *, label: str | None = None) -> Event:
        """An event, not recorded yet, which counts as completed."""
        self._check_open()
        return Event(self.context, (self,), label=label)

    def borrow_stream(self, handle: Any, *, owner: object = None) -> Stream:
        """A stream that somebody else owns; never destroyed here.  The same handle gives the same object.

        ``owner`` is kept alive meanwhile.
        """
        self._check_open()
        context = self.context
        identity = (context.driver.name, context.generation, "stream", handle)
        return self._known.get_or_make(identity, lambda: Stream.borrowed(context, (self,), handle, owner))

    def compile(self, source: str, *, label: str | None = None) -> Module:
        """Compile and load a program in the driver's language (``device.driver.target``).

        Errors: `CompileError` with source and log; `BackendError` where the back end runs no code.
        """
        self._check_open()
        code = self._code
        if code is None:
            raise BackendError(f"the back end of {self.label!r} compiles no code; use Device.call for Python functions")
        return Module(self, code, code.compile(source), label=label)

    def lose(self, why: str = "destroyed by somebody else") -> None:
        """Say that the device's context has gone behind our back (a reset, a crash of the driver).

        Its arrays, pool and modules go with it: using them raises `ClosedError`, dropping them makes no driver call.
        """
        self.context.lose(why)
        self.manager.close()

    def statistics(self) -> ManagerStatistics:
        """What the memory manager counts."""
        return self.manager.statistics()

    # Ending and entering.

    def close(self, wait: bool = True) -> None:
        """Wait for pending work and release everything.  Errors: `BusyError` while an array is pinned."""
        if not self.closed:
            self.manager.refuse_pinned()
        self.context.close(wait)  # with all that is below it, this device included

    def __enter__(self) -> Self:
        super().__enter__()
        self._tokens.append(current.set(self))
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        current.reset(self._tokens.pop())
        super().__exit__(exc_type, error, traceback)

    def _in_use(self, pairs: Sequence[tuple[Array, Mode]], stream: Any) -> ArraysInUse:
        self._check_open()
        check_arrays([array for array, _ in pairs], self)
        return ArraysInUse(self.manager, pairs, self.stream.timeline if stream is None else timeline_of(stream))

    def _check_open(self) -> None:
        self.context.check()
        if self.closed:
            self._refuse("something was asked of it")
