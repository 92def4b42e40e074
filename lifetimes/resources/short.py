"""Short work: functions of microseconds on arrays that are on the device already, their results included.

Using arrays, allocating another, enqueueing and releasing cost more than such a function itself.  `ShortWork` does all of it
in one locked region, and refuses where there is more to do: an upload, memory to be found, other work to wait for.
Whoever is refused takes the long way, which does everything.

Note [No pins].  The function runs under the library's lock.  It is machine code that keeps the interpreter, does not wait and
cannot fail, so other threads do not wait longer for it than they would anyway; and since nothing moves while the lock is
held, no array needs a pin.

Note [Proven].  What earlier work has written is only built upon when it is known not to have failed: the stream has
nothing left to do, and neither the driver nor an event has a failure to tell.

Note [Interrupts].  A result is a lifetime that knows the key of its storage before there is one, and an entry says where its
block is before anybody can find it.  So whatever is torn, `Manager.repair` finds what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lifetimes import instrument
from lifetimes.cell import LIVE, Cell, enqueue, live, next_key
from lifetimes.entry import CLEAN, DIRTY, Entry
from lifetimes.locks import held_here, lock
from lifetimes.manager.letting_go import let_go
from lifetimes.reaper import safepoint
from lifetimes.resources.array import Array
from lifetimes.resources.layout import Layout, contiguous_strides, layout_of, size_of
from lifetimes.size_classes import round_up
from lifetimes.timeline import told

if TYPE_CHECKING:
    import numpy as np

    from lifetimes._typing import Shape
    from lifetimes.device import Device
    from lifetimes.timeline import Ticket

__all__ = ["Form", "Number", "ShortWork", "asked", "make_results", "proven"]

Number: TypeAlias = "int | tuple[int, Callable[[Any], int]]"
"""A word; or of which input to make one, and how."""

_new: Final = Array.__new__


class Form:
    """What a result is: its layout, and the class of the block that it is put into."""

    __slots__ = ("capacity", "dtype", "layout", "nbytes", "shape", "strides")

    def __init__(self, shape: Shape, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self.shape = shape
        self.strides = contiguous_strides(shape, dtype.itemsize)
        self.layout: Layout = layout_of(dtype, shape, self.strides)
        self.nbytes = size_of(shape) * dtype.itemsize
        self.capacity = round_up(self.nbytes, 1 << 62)


class ShortWork:
    """``function(*head, *addresses, *numbers)``: the addresses of those inputs that are read (``reads``), then of results.

    ``pointers`` are the addresses: (place among these, bytes to add).  No array has zero bytes.
    """

    __slots__ = ("forms", "function", "head", "numbers", "pointers", "reads")

    def __init__(
        self,
        function: Callable[..., object],
        head: Sequence[Any],
        reads: Sequence[int],
        forms: Sequence[Form],
        pointers: Sequence[tuple[int, int]],
        numbers: Sequence[Number] = (),
    ) -> None:
        self.function = function
        self.head = tuple(head)
        self.reads = tuple(reads)
        self.forms = tuple(forms)
        self.numbers = tuple(numbers)
        # Empty for the addresses themselves, which is how it mostly is.
        plain = [(at, 0) for at in range(len(self.reads) + len(self.forms))]
        self.pointers = () if list(pointers) == plain else tuple(pointers)

    def run(self, device: Device, inputs: Sequence[Any], outs: Sequence[Array] = ()) -> Sequence[Array] | None:
        """The results, new arrays or ``outs``; None when it cannot be done this way, and nothing was done.

        ``outs`` cover their storages, have the results' forms, and share memory with no input and with each other.
        Errors: `ClosedError` when the device's context is gone.  Locks: the library's.
        """
        # Note [Speed] in lifetime.py: no helper calls; this is the path of a launch, and its length is what it costs.
        driver, stream = device.prompt, device.stream
        if driver is None or instrument.watchers or device._cell.state or stream._cell.state or held_here():
            return None
        safepoint()
        manager, timeline = device.manager, stream._value
        places: list[int] = []
        results: Sequence[Array] = outs
        try:
            with lock:
                if timeline._marks or manager.waiting.line:  # Note [Proven]; and others wait for memory
                    return None
                get, count = manager.get, told.count
                timeline.issued = sequence = timeline.issued + 1  # one that stands for nothing does no harm
                for at in self.reads:
                    array = inputs[at]
                    key = array._value
                    entry = get(key)
                    if entry is None or entry.checked != count or entry.owner or array._cell.state:
                        return None
                    if entry.state != DIRTY and entry.state != CLEAN:
                        return None
                    write = entry.last_write
                    if write is not None and write[0] is not timeline and write[1] > write[0].reached:
                        return None
                    if entry.earlier is not None:  # done, since this stream waited for them; but perhaps not told
                        for other, written in entry.earlier:
                            if other is not timeline and written > other.reached:
                                return None
                    entry.reads[timeline] = sequence
                    if entry.kept:
                        manager.touch(key)
                    places.append(entry.block.address + array.offset)  # type: ignore[union-attr]  # it is resident
                ticket = (timeline, sequence)
                if outs:
                    for array in outs:
                        key = array._value
                        entry = get(key)
                        if entry is None or entry.checked != count or entry.owner or array._cell.state:
                            return None
                        if entry.state != DIRTY:
                            return None
                        for other, read in entry.reads.items():
                            if other is not timeline and read > other.reached:
                                return None
                        write = entry.last_write
                        if write is not None and write[0] is not timeline and write[1] > write[0].reached:
                            return None
                        entry.last_write = ticket
                        entry.earlier = None
                        entry.reads = {}
                        if entry.kept:
                            manager.touch(key)
                        places.append(entry.block.address)  # type: ignore[union-attr]
                else:
                    results = made = []
                    for form in self.forms:
                        array_ = _make(device, form, ticket, places)
                        if array_ is None:
                            return None
                        made.append(array_)
                args = [*self.head, *places]
                if self.pointers:
                    args = [*self.head, *[places[at] + more for at, more in self.pointers]]
                for number in self.numbers:
                    args.append(number if number.__class__ is int else number[1](inputs[number[0]]))  # type: ignore[index]
                if not driver.call_now(self.function, args, timeline.handle):
                    return None
                counters = manager.counters
                counters.hits += len(self.reads) + len(outs)
                counters.misses += len(results) - len(outs)
                return results
        except BaseException as error:
            if not isinstance(error, Exception):
                manager.repair()
            raise


def make_results(device: Device, forms: Sequence[Form]) -> list[Array]:
    """New arrays that work on the device's stream is to overwrite: out of the pool, else as `Device.empty` makes them.

    Errors: those of `Device.empty`.
    """
    results: list[Array] = []
    stream, manager = device.stream, device.manager
    if not (instrument.watchers or device._cell.state or stream._cell.state or held_here()):
        safepoint()
        timeline = stream._value
        try:
            with lock:
                if not manager.waiting.line:
                    timeline.issued = sequence = timeline.issued + 1
                    for form in forms:
                        array = _make(device, form, (timeline, sequence), [])
                        if array is None:
                            break
                        results.append(array)
        except BaseException as error:
            if not isinstance(error, Exception):
                manager.repair()
            raise
    return results + [Array(device, None, form.shape, form.dtype) for form in forms[len(results) :]]


def _make(device: Device, form: Form, ticket: Ticket, places: list[int]) -> Array | None:
    """Under the lock: a new array in a block of the pool, whose content is that of the work ``ticket``; None without one.

    The work comes after whatever used the block before: on its stream, or known to be done.
    """
    manager = device.manager
    block = manager.memory.pool.reuse(form.capacity, ticket[0])
    if block is None:
        return None
    nbytes = form.nbytes
    key = next_key()
    array = _new(Array)
    array._device = device
    array._layout = form.layout
    array._value = key
    array.base = None
    array.dtype = form.dtype
    array.offset = 0
    array.shape = form.shape
    array.strides = form.strides
    # As `Lifetime.__init__` does.
    parent = device._cell
    array._cell = cell = Cell(array, enqueue)
    cell.key = key
    cell.kind = "array"
    cell.nbytes = nbytes
    cell.label = None
    cell.deferred = False
    cell.finalizer = let_go
    cell.args = (manager, key)
    cell.added = None
    cell.holders = {}
    cell.parents = (parent,)
    cell.state = LIVE
    live[key] = cell
    parent.holders[key] = cell
    # As the manager does for what is added, found a block and written.
    entry = Entry(manager, key, nbytes, None, DIRTY)
    entry.checked = told.count
    entry.last_write = ticket
    entry.block = block
    block.owner = key
    manager.enter(entry)
    counters, rungs = manager.counters, manager.counters.rungs
    counters.resident += 1
    counters.resident_bytes += nbytes
    rungs["pool"] = rungs.get("pool", 0) + 1
    manager.policy.add(key, nbytes)
    entry.kept = True
    places.append(block.address)
    return array


def proven(device: Device) -> bool:
    """Whether all work on the device's stream is done, and known not to have failed (Note [Proven]).  Never blocks."""
    driver, timeline = device.prompt, device.stream.timeline
    if timeline._marks:
        timeline.done(timeline.issued)  # events that nobody has asked yet
    return driver is not None and not timeline._marks and driver.call_now(_nothing, (), timeline.handle)


def asked(device: Device, forms: Sequence[Form] = ()) -> bool:
    """Learn which work is done, where nobody has asked: whether the short way, which was refused, is worth a second try."""
    if held_here() or not proven(device):
        return False
    pool, timeline = device.manager.memory.pool, device.stream.timeline
    try:
        for form in forms:
            block = pool.find(form.capacity, timeline)
            if block is None:
                return False
            pool.give(block, block.tickets)
    except BaseException:  # an interrupt, perhaps with a block in hand
        device.manager.repair()
        raise
    return True


def _nothing() -> None:
    """Called by a driver that has nothing else to do."""
