"""`Device`: what `lifetimes.open` returns; owns the driver, the default stream and the memory manager."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np

from lifetimes._typing import HostArray, Mode
from lifetimes.backend import Driver, SupportsCode, SupportsHostCall, SupportsPromptCall
from lifetimes.cell import Standing, next_key
from lifetimes.errors import BackendError, BrokenError, BusyError, OwnershipError
from lifetimes.lifetime import Lifetime
from lifetimes.manager import Manager, ManagerStatistics
from lifetimes.manager.core import timeline_of
from lifetimes.reaper import safepoint
from lifetimes.resources.array import Array, check_arrays
from lifetimes.resources.context import Context
from lifetimes.resources.guard import GuardedDriver
from lifetimes.resources.identity import IdentityMap
from lifetimes.resources.in_flight import AllStreams
from lifetimes.resources.in_use import ArraysInUse, parse_modes
from lifetimes.resources.layout import check_dtype, check_shape, size_of
from lifetimes.resources.module import Module
from lifetimes.resources.stream import Event, Stream
from lifetimes.size_classes import check_nbytes
from lifetimes.timeline import Ticket, Work

__all__ = ["Device", "entered"]

entered: ContextVar[tuple[Device, ...]] = ContextVar("lifetimes.entered_devices", default=())
"""The devices whose ``with`` blocks this thread (or task) is in, outermost first."""


class Device(Lifetime[Driver]):
    """One opened device.  A lifetime, whose children are its arrays, streams, events and modules, and a context manager.

    ``with lifetimes.open(...) as device:`` makes it the current device for the block and closes it at the end.  A device
    may be entered again inside, or by other threads meanwhile; the end of the last block closes it.  Closing waits for
    pending work and releases everything, children first, the driver last.
    """

    __slots__ = ("_blocks", "_code", "_host_calls", "_known", "context", "manager", "prompt", "stream")

    prompt: SupportsPromptCall | None
    """The driver, once it is known that short machine code may be run at once on its addresses."""

    def __init__(self, driver: Driver, *, label: str | None = None, **options: Any) -> None:
        self.context = context = Context(driver, label=label)
        try:
            self.stream = Stream(context, (context,), label="default")
            self.manager = Manager(context.driver, stream=self.stream.timeline, **options)
            super().__init__(
                context.driver,
                _end,
                self.manager,
                context.guard,
                kind="device",
                label=context.label,
                parents=(context, self.stream),
            )
            # Nobody waits for work when a handle is dropped: the device goes when its streams are idle.
            work = AllStreams(context.streams.made, context.retired, self.manager.own_streams)
            self._cell.holders[next_key()] = Standing(work)
            context.guard.relief.append(partial(_make_room, self.manager))
        except BaseException:
            context.close()
            raise
        # Decided once: isinstance on a protocol costs microseconds.
        self._host_calls = context.driver if isinstance(context.driver, SupportsHostCall) else None
        self._code = context.driver if isinstance(context.driver, SupportsCode) else None
        self.prompt = None
        self._known = IdentityMap()
        self._blocks: list[None] = []  # one for each `with` block that somebody is in

    @property
    def driver(self) -> Driver:
        """The raw operations, in the device's context.  Errors: `ClosedError`."""
        return self.value

    # Arrays.

    def asarray(self, source: Any, dtype: Any = None, *, copy: bool = True, label: str | None = None) -> Array:
        """An array with the content of ``source`` (whatever NumPy makes an array of); uploaded at its first use.

        ``copy=False`` borrows a C-contiguous NumPy array of the right dtype instead of copying it (anything else is
        copied all the same) and marks it read-only for good, since a change would be seen or not as memory moves.
        Errors: `TypeError` for Python objects, `OutOfMemory` for more than the limit, `ClosedError`.
        """
        self._check_open()
        host = np.asarray(source, None if dtype is None else check_dtype(dtype))
        check_dtype(host.dtype)
        if not host.flags.c_contiguous:
            host, copy = np.ascontiguousarray(host), False  # already a copy of our own
        if not copy:
            host.flags.writeable = False
        return Array(self, host, host.shape, host.dtype, copy=copy, label=label)

    def empty(self, shape: Any, dtype: Any = "float64", *, label: str | None = None) -> Array:
        """An array of unspecified content.  Errors: those of `asarray`, and `ValueError` for a negative dimension."""
        self._check_open()
        return Array(self, None, check_shape(shape), check_dtype(dtype), label=label)

    def zeros(self, shape: Any, dtype: Any = "float64", *, label: str | None = None) -> Array:
        """An array of zeros.  Errors: those of `empty`."""
        self._check_open()
        shape, dtype = check_shape(shape), check_dtype(dtype)
        check_nbytes(size_of(shape) * dtype.itemsize, self.manager.memory.limit, "the array")  # before NumPy tries
        return self.asarray(np.zeros(shape, dtype), label=label)

    # Using them.

    def use(  # type: ignore[override]  # the device's memory is what one uses of a device
        self, *, read: Array | Iterable[Array] = (), write: Array | Iterable[Array] = (), stream: Any = None
    ) -> ArraysInUse:
        """``with device.use(read=[x], write=[y]) as (at_x, at_y):`` pins arrays for the user's own work on ``stream``.

        ``write`` promises to overwrite the whole array, unless it stands in ``read`` as well or is a view of a part.  All
        are pinned together or none.  The block gets their device addresses, those of ``read`` first.
        Errors: as `Manager.use_many`; `OwnershipError` for an array or a stream of another device.
        """
        reads = (read,) if isinstance(read, Array) else tuple(read)
        writes = (write,) if isinstance(write, Array) else tuple(write)
        pairs: list[tuple[Array, Mode]] = [(array, "r") for array in reads]
        pairs += [(array, "rw" if any(array is each for each in reads) else "w") for array in writes]
        return self._in_use(pairs, stream)

    def call(
        self,
        function: Callable[..., object],
        *arrays: Array,
        modes: str | Sequence[Mode] | None = None,
        stream: Any = None,
    ) -> Work:
        """Enqueue ``function(*views)`` on a stream, with NumPy views of the arrays' device memory.

        ``modes`` has one letter an array: ``r`` reads (its view is read-only), ``w`` overwrites all of it, ``u`` updates
        (reads and writes); None updates every one.  Returns the work: ``.wait()`` for it, or just read an array, which
        waits by itself.  If the function raises, the arrays it wrote are broken and say so at their next use.

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
        chosen = parse_modes(modes, len(arrays))
        using = self._in_use(list(zip(arrays, chosen, strict=True)), stream)
        timeline = using.timeline
        with using as addresses:
            views = [_view_of(driver, *each) for each in zip(arrays, addresses, chosen, strict=True)]
            timeline.fence()  # behind the uploads, so that only the function's own work fails with it
            unproven = self.manager.unproven(
                [array.key for array, mode in zip(arrays, chosen, strict=True) if mode != "w"]
            )
            driver.call(partial(on_sound_input, unproven, function) if unproven else function, views, timeline.handle)
            if not arrays:  # whose uses would count it
                timeline.tick()
        work = Work(timeline, timeline.issued)
        timeline.mark()  # a failure of the function is told apart from what follows
        return work

    # Streams, events, code.

    def create_stream(self, *, label: str | None = None) -> Stream:
        """A queue of its own.  Errors: `ClosedError`, `BackendError`, `OutOfMemory`."""
        self._check_open()
        safepoint()
        return Stream(self.context, (self,), label=label)

    def create_event(self, *, label: str | None = None) -> Event:
        """An event, not recorded yet, which counts as completed.  Errors: as `create_stream`."""
        self._check_open()
        safepoint()
        return Event(self.context, (self,), label=label)

    def borrow_stream(self, handle: Any, *, owner: object = None) -> Stream:
        """A stream that somebody else owns; never destroyed here.  The same handle gives the same object.

        ``owner`` is kept alive meanwhile.  Errors: `TypeError` for a handle that cannot be hashed, `ClosedError`.
        """
        self._check_open()
        safepoint()
        context = self.context
        context.settle()
        identity = (context.driver.name, context.generation, "stream", handle)
        return self._known.get_or_make(identity, lambda: Stream.borrowed(context, (self,), handle, owner))

    def compile(self, source: str, *, label: str | None = None) -> Module:
        """Compile and load a program in the driver's language (``device.driver.target``).

        Errors: `CompileError` with source and log; `BackendError` where the back end runs no code; `OutOfMemory`.
        """
        self._check_open()
        code = self._code
        if code is None:
            raise BackendError(f"the back end of {self.label!r} compiles no code; use Device.call for Python functions")
        if not isinstance(source, str):
            raise TypeError(
                f"a program is text in the language {code.target!r}, not {type(source).__name__} {source!r}"
            )
        safepoint()
        return Module(self, code, code.compile(source), label=label)

    def lose(self, why: str = "destroyed by somebody else") -> None:
        """Say that the device's context has gone behind our back (a reset, a crash of the driver).

        Its arrays, pool and modules go with it: using them raises `ClosedError`, dropping them makes no driver call.
        """
        self.context.lose(why)
        try:
            self.manager.close()
        except BusyError:  # somebody is in the middle of a use; the manager goes with the device then
            pass

    def statistics(self) -> ManagerStatistics:
        """What the memory manager counts."""
        return self.manager.statistics()

    # Ending and entering.

    def close(self, wait: bool = True) -> None:
        """Wait for pending work and release everything.  Closing twice is fine.

        Errors: `BusyError` while an array is pinned, nothing has changed then; what finalizers raised, as one group.
        """
        if not self.closed:
            self.manager.refuse_pinned()
        self.context.close(wait)  # with all that is below it, this device included

    def __enter__(self) -> Self:
        super().__enter__()
        entered.set((*entered.get(), self))
        self._blocks.append(None)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # By what this very thread has entered: a generator may leave its block after one that began later.
        inside = list(entered.get())
        if self in inside:
            del inside[len(inside) - 1 - inside[::-1].index(self)]
            entered.set(tuple(inside))
        if self._blocks:
            self._blocks.pop()
        if self._blocks:
            return
        try:
            self.close()
        except Exception as failed:
            if error is None:
                raise
            for each in failed.exceptions if isinstance(failed, ExceptionGroup) else (failed,):
                error.add_note(f"while cleaning up: {getattr(each, '__notes__', [each])[-1]}")

    def _in_use(self, pairs: Sequence[tuple[Array, Mode]], stream: Any) -> ArraysInUse:
        self._check_open()
        check_arrays([array for array, _ in pairs], self)
        chosen = self.stream if stream is None else stream
        timeline = timeline_of(chosen)
        if timeline.driver is not self.context.driver:
            raise OwnershipError(f"{chosen!r} belongs to another device than {self!r}; use one of its create_stream()")
        return ArraysInUse(self.manager, pairs, chosen, timeline)

    def _check_open(self) -> None:
        self.context.check()
        if self.closed:
            self._refuse("something was asked of it")


def _view_of(driver: SupportsHostCall, array: Array, address: int, mode: Mode) -> HostArray:
    """The array's memory as NumPy sees it.  Nothing is asked of the driver where there is no memory."""
    nbytes = array.storage_nbytes
    view = array.on(driver.view(address - array.offset, nbytes) if nbytes else np.empty(0, np.uint8))
    if mode == "r":
        view.flags.writeable = False  # what is written to an array that is only read is lost when it is evicted
    return view


def _make_room(manager: Manager) -> None:
    """Give memory back to the driver: what the pool holds, when its work is done, else what one array has."""
    if not _purge(manager) and manager.evictor.evict_some(1):
        _purge(manager)


def _purge(manager: Manager) -> bool:
    wait_for_work = manager.ladder.rungs["in-flight"]
    while not manager.memory.purge():
        if not manager.evictor.wait_oldest() and not wait_for_work(1):
            return False
    return True


def _end(manager: Manager, guard: GuardedDriver) -> None:
    """The device's finalizer.  Memory that somebody still uses by its key is left to them, with the driver it came from."""
    try:
        manager.close()
    except BusyError:
        guard.lose("its memory was in use when the device went")


def on_sound_input(unproven: Sequence[Ticket], function: Callable[..., object], *args: Any) -> object:
    """Run in its turn on the stream: what a failed call should have written must not be taken for data.

    The works that wrote the input were enqueued before, so how they ended is known by now; so failure goes on from
    array to array, as it does on devices whose errors are sticky.
    """
    for timeline, sequence in unproven:
        if timeline.done(sequence):
            reason = timeline.error(sequence)
            if reason is not None:
                raise BrokenError(f"its input is lost: the work that last wrote it failed ({reason})")
    return function(*args)
