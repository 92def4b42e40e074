"""Running a plan on a device: addresses from the memory manager, kernels in the order of the device's stream.

Each step pins what it uses, all together or nothing, so that a working set may be larger than the device as long as each
step's fits.  A short kernel runs on the caller's thread where the stream is idle; a long one is enqueued, and the caller
has its result, which is waited for when it is read.

Note [Held].  What is enqueued holds the code that it runs, and the arrays that it was given: their upload may be in the same
queue, and an array that nobody holds gives its host memory back at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lifetimes.backend import SupportsPromptCall
from lifetimes.cell import next_key
from lifetimes.compiler import team
from lifetimes.compiler.bound import bits_of
from lifetimes.compiler.launcher import Launch, launchers
from lifetimes.compiler.plan import BRIEF, SHARED, KernelStep, MatmulStep, Plan, Step
from lifetimes.compiler.problems import RangeProblem
from lifetimes.device import on_sound_input
from lifetimes.errors import BackendError
from lifetimes.manager.letting_go import let_go
from lifetimes.resources import Array
from lifetimes.resources.array import check_arrays
from lifetimes.resources.layout import contiguous_strides
from lifetimes.resources.short import Form, Number, ShortWork, asked, make_results, proven

if TYPE_CHECKING:
    from lifetimes._typing import HostArray
    from lifetimes.compiler.ir import Shape
    from lifetimes.compiler.passes.views import View
    from lifetimes.device import Device

__all__ = ["Runner", "extent"]

INLINE: Final = 10_000_000.0
"""Kernels of more nanoseconds are enqueued; the others run on the caller's thread if the stream is idle.

To wake the stream's thread and be woken by it costs tens of microseconds, and ten times that on a busy machine, where it also
empties caches; what the caller could do meanwhile, the next launch, is worth as much.
"""

_abilities: dict[int, bool] = {}
"""For each device by the number of its context, if it can run native code: whether it knows short calls."""
_launchers: dict[bool, Launch] = {}
"""For brief kernels, and for others."""


class Runner:
    """A plan, and what its runs have in common on all devices."""

    __slots__ = ("forms", "plan", "short")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.forms = tuple([Form(shape, dtype) for _, shape, dtype in plan.results])
        self.short = _short_work(plan, self.forms)
        """For a plan of one brief kernel: the way to launch it that `lifetimes.resources.short` tells of."""

    def run(self, device: Device, inputs: Sequence[Any]) -> Sequence[Array]:
        """Run the plan on arrays (and numbers, where a parameter is one); returns the results.

        Errors: `OutOfMemory`, `BrokenError`, `ClosedError`, `BackendError`.
        """
        short = self.short
        if short is not None:
            results = short.run(device, inputs)
            if results is None and asked(device, self.forms):
                results = short.run(device, inputs)
            if results is not None:
                return results
        made = make_results(device, self.forms)
        _execute(self.plan, device, inputs, made, None)
        return made

    def write(self, device: Device, inputs: Sequence[Any], outs: Sequence[Any]) -> None:
        """Run the plan into arrays that are there already.

        Errors: `ValueError` for another shape or dtype than the plan's, `TypeError`, `OwnershipError`; those of `run`.
        """
        short, out = self.short, outs[0] if len(outs) == 1 else None
        if short is not None and out.__class__ is Array and out._device is device:
            key = out._value
            whole = out.base is None and (out._layout or out.layout) is short.forms[0].layout
            if whole and key not in [value._value for value in inputs if value.__class__ is Array]:
                done = short.run(device, inputs, outs)
                if done is None and asked(device):
                    done = short.run(device, inputs, outs)
                if done is not None:
                    return
        check_arrays(outs, device)
        _write(self.plan, device, inputs, outs)


def _short_work(plan: Plan, forms: Sequence[Form]) -> ShortWork | None:
    if len(plan.steps) != 1 or not isinstance(plan.steps[0], KernelStep):
        return None
    step = plan.steps[0]
    results = [buffer for buffer, _, _ in plan.results]
    buffers = [buffer for buffer, _ in step.buffers]
    reads = [buffer for buffer in buffers if buffer not in results]
    params = plan.function.params
    if (
        len(step.launches) != 1
        or step.nanoseconds >= BRIEF
        or len(set(results)) != len(results)
        or not set(results) <= set(buffers)
        or not all(at < len(params) and params[at].size for at in reads)
        or not all(form.nbytes for form in forms)
    ):
        return None
    launch = step.launches[0]
    place = {buffer: at for at, buffer in enumerate([*reads, *results])}
    pointers = [(place[buffers[at]], offset) for at, offset in launch.pointers]
    numbers: list[Number] = [
        word if param is None else (param, partial(_word, params[param].dtype)) for param, word in launch.numbers
    ]
    head = (step, step.kernel.address, launch.address, launch.words, 0, launch.hi)  # Note [Held]
    return ShortWork(_launch(brief=True), head, reads, forms, pointers, numbers)


def _execute(
    plan: Plan, device: Device, inputs: Sequence[Any], results: Sequence[Array], outs: Sequence[Array] | None
) -> None:
    """The long way.  ``outs`` are results that may be parts of storages, and are not new; they share memory with no input."""
    manager = device.manager
    keys: dict[int, int] = {}
    offsets: dict[int, int] = {}
    for at, value in enumerate(inputs):
        if isinstance(value, Array):
            keys[at] = value.value
            offsets[at] = value.offset
    for (buffer, _, _), out in zip(plan.results, results, strict=True):
        keys[buffer] = out.value
        offsets[buffer] = out.offset
    temporary: list[int] = []
    try:
        for buffer, nbytes in plan.temporary:
            key = next_key()
            temporary.append(key)
            manager.add(nbytes, key=key)
            keys[buffer] = key
            offsets[buffer] = 0
        for step in plan.steps:
            _run(plan, step, device, keys, offsets, inputs, outs)
    finally:
        for key in temporary:
            let_go(manager, key)


def _write(plan: Plan, device: Device, inputs: Sequence[Any], outs: Sequence[Array]) -> None:
    for at, ((_, shape, dtype), out) in enumerate(zip(plan.results, outs, strict=True)):
        if out.shape != shape or out.dtype != dtype:
            raise ValueError(f"out {at} is {out.dtype} {out.shape}, but the result is {dtype} {shape}")
        if out.repeats:
            raise ValueError(f"{out!r} repeats elements and can only be read")
    others = [(at, value) for at, value in enumerate(inputs) if isinstance(value, Array)]
    direct = [
        out.strides == contiguous_strides(out.shape, out.dtype.itemsize)
        and all(not _share(out, each) or (_equal(out, each) and _in_place(plan, param, at)) for param, each in others)
        and not any(_share(out, each) for each in (*outs[:at], *outs[at + 1 :]))
        for at, out in enumerate(outs)
    ]
    fresh = [out if safe else Array(device, None, out.shape, out.dtype) for out, safe in zip(outs, direct, strict=True)]
    _execute(plan, device, inputs, fresh, fresh)
    for out, made, safe in zip(outs, fresh, direct, strict=True):
        if not safe:
            device.call(np.copyto, out, made, modes="wr" if out.whole else "ur")


def _share(a: Array, b: Array) -> bool:
    """Whether two arrays may have bytes in common."""
    if a.value != b.value or not a.size or not b.size:
        return False
    (low, high), (bottom, top) = extent(a), extent(b)
    return low < top and bottom < high


def extent(array: Array) -> tuple[int, int]:
    """The bytes of the storage that the array reaches over, from and to."""
    steps = [(length - 1) * stride for length, stride in zip(array.shape, array.strides, strict=True)]
    low = array.offset + sum(step for step in steps if step < 0)
    return low, array.offset + sum(step for step in steps if step > 0) + array.dtype.itemsize


def _equal(a: Array, b: Array) -> bool:
    return (a.offset, a.shape, a.strides, a.dtype) == (b.offset, b.shape, b.strides, b.dtype)


def _in_place(plan: Plan, param: int, result: int) -> bool:
    """Whether the plan reads an element of a parameter only where, and before, it writes that of the result."""
    if len(plan.steps) != 1 or not isinstance(plan.steps[0], KernelStep):
        return False
    bound = plan.steps[0].bound
    if bound.nest.reductions or any(value.op == "scan" for value in bound.nest.values):
        return False
    out = plan.results[result][0]
    places = {
        (bound.pointers[at][1], bound.strides[at])
        for at, (buffer, _) in enumerate(bound.pointers)
        if buffer in (param, out)
    }
    return len(places) == 1 and not any(access.jump for access in bound.nest.accesses)


def _run(
    plan: Plan,
    step: Step,
    device: Device,
    keys: dict[int, int],
    offsets: dict[int, int],
    inputs: Sequence[Any],
    outs: Sequence[Array] | None,
) -> None:
    pairs = [(keys[buffer], mode) for buffer, mode in step.buffers]
    if outs is not None:  # a part of a storage: the rest of it must be there
        whole = {out.value: out.whole for out in outs}
        pairs = [(key, "rw" if mode == "w" and not whole.get(key, True) else mode) for key, mode in pairs]
    timeline = device.stream.timeline
    call, short = _caller(device, step.nanoseconds / plan.settings.threads < INLINE)
    sound = proven(device)  # which says nothing of other streams
    unproven = device.manager.unproven([key for key, mode in pairs if mode != "w"])
    if sound:
        unproven = [write for write in unproven if write[0] is not timeline]
    # NumPy may raise, and what reads the result of something that failed fails: told apart from what comes before and after.
    fails = bool(unproven) or not isinstance(step, KernelStep)
    with device.manager.use_many(pairs, timeline) as addresses:
        places = {
            buffer: address + offsets[buffer] for (buffer, _), address in zip(step.buffers, addresses, strict=True)
        }
        if isinstance(step, KernelStep):
            function, args = _kernel_call(plan, step, places, inputs)
        else:
            function, args = _multiply, (device, step, places, inputs)
        if fails:
            timeline.fence()
            function = partial(on_sound_input, unproven, function)
        call(function, args, timeline.handle, **short)
    if fails:
        timeline.mark()


def _kernel_call(
    plan: Plan, step: KernelStep, places: dict[int, int], inputs: Sequence[Any]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function and its arguments: all launches of a step, by several threads where it is worth it."""
    launch = _launch(brief=step.nanoseconds < BRIEF)
    starts = [places[buffer] for buffer, _ in step.buffers]
    calls = []
    for each in step.launches:
        numbers = [
            word if param is None else _word(plan.function.params[param].dtype, inputs[param])
            for param, word in each.numbers
        ]
        pointers = [starts[at] + offset for at, offset in each.pointers]
        # Note [Held]
        calls.append(((step, inputs), step.kernel.address, each.address, each.words, 0, each.hi, *pointers, *numbers))
    if len(calls) == 1:
        return launch, calls[0]
    return _together, (launch, calls, plan.settings.threads if step.nanoseconds >= SHARED else 1)


def _word(dtype: np.dtype[Any], number: Any) -> int:
    try:
        return bits_of(dtype.type(number))
    except OverflowError:
        raise RangeProblem(
            f"the Python integer {number} is out of the bounds of {dtype}, which it is passed as; "
            "make it a float or a NumPy number, or name the argument in static=(...)"
        ) from None


def _together(launch: Any, calls: list[tuple[Any, ...]], threads: int) -> None:
    team.run_together([(launch, each) for each in calls], threads)


def _launch(brief: bool) -> Launch:
    if not _launchers:
        general, briefly = launchers()
        _launchers.update({False: general, True: briefly})
    return _launchers[brief]


def _caller(device: Device, inline: bool) -> tuple[Any, dict[str, bool]]:
    """How a function is enqueued on the device, and the option that runs it inline.  Errors: `BackendError`."""
    driver: Any = device.context.driver
    short = _abilities.get(driver.generation)
    if short is None:
        short = _examine(device)
    return driver.call, {"short": True} if inline and short else {}


def _examine(device: Device) -> bool:
    """Whether the device knows short calls.  Errors: `BackendError` for one that cannot run native code: what to do."""
    driver: Any = device.context.driver
    if device._host_calls is None:
        raise BackendError(
            f"{device.label!r} cannot run compiled functions: its memory cannot be seen by the processor; "
            "copy the arrays to a host device with to_device()"
        )
    address = driver.allocate(256)
    try:
        real = driver.view(address, 256).__array_interface__["data"][0] == address
    finally:
        driver.free(address)
    if not real:
        raise BackendError(
            f"{device.label!r} cannot run compiled functions: its addresses are no addresses of this process; "
            "copy the arrays to a host device with to_device()"
        )
    if len(_abilities) > 256:  # of devices long closed
        _abilities.clear()
    found = _abilities[driver.generation] = "short" in inspect.signature(driver.call).parameters
    device.prompt = driver if isinstance(driver, SupportsPromptCall) else None
    return found


def _multiply(device: Device, step: MatmulStep, places: dict[int, int], inputs: Sequence[Any]) -> None:
    left, right = (_view(device, view, shape, step.dtype, places) for view, shape in step.operands)
    with np.errstate(all="ignore"):  # infinities and NaN are results like any other
        np.matmul(left, right, out=_view(device, step.result[0], step.result[1], step.dtype, places))


def _view(device: Device, view: View, shape: Shape, dtype: np.dtype[Any], places: dict[int, int]) -> HostArray:
    """Elements of a buffer as a NumPy array over the device's memory."""
    if 0 in shape:
        return np.empty(shape, dtype)
    steps = [(length - 1) * stride for length, stride in zip(shape, view.strides, strict=True)]
    low = view.offset + sum(step for step in steps if step < 0)
    high = view.offset + sum(step for step in steps if step > 0)
    start = places[view.buffer] + low * dtype.itemsize
    memory = device._host_calls.view(start, (high - low + 1) * dtype.itemsize)  # type: ignore[union-attr]
    strides = tuple([stride * dtype.itemsize for stride in view.strides])
    return np.ndarray(shape, dtype, memory.data, (view.offset - low) * dtype.itemsize, strides)
