"""Running a plan on a device: addresses from the memory manager, kernels in the order of the device's stream.

Each step pins what it uses, all together or nothing, so that a working set may be larger than the device as long as each
step's fits.  A short kernel runs on the caller's thread where the stream is idle; a long one is enqueued, and the caller
has its result, which is waited for when it is read.

Note [Held].  What is enqueued holds the code that it runs, and the arrays that it was given: their upload may be in the same
queue, and an array that nobody holds gives its host memory back at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lifetimes.cell import next_key
from lifetimes.compiler import team
from lifetimes.compiler.bound import bits_of
from lifetimes.compiler.launcher import Launch, launchers
from lifetimes.compiler.plan import BRIEF, SHARED, KernelStep, Plan, Step
from lifetimes.errors import BackendError, ClosedError, OwnershipError
from lifetimes.manager.use import UseMany
from lifetimes.resources import Array
from lifetimes.resources.array import check_arrays
from lifetimes.resources.layout import contiguous_strides

if TYPE_CHECKING:
    from lifetimes._typing import HostArray
    from lifetimes.compiler.ir import Shape
    from lifetimes.compiler.passes.views import View
    from lifetimes.compiler.tree import Tree
    from lifetimes.device import Device

__all__ = ["execute", "write"]

INLINE: Final = 1_000_000.0
"""Kernels of more nanoseconds are enqueued; the others run on the caller's thread if the stream is idle."""

_abilities: dict[int, tuple[bool, bool]] = {}
"""For each device by the number of its context: it can run native code, and it knows short calls."""
_launchers: dict[bool, Launch] = {}
"""For brief kernels, and for others."""


def execute(plan: Plan, device: Device, inputs: Sequence[Any], outs: Sequence[Array] | None = None) -> list[Array]:
    """Run ``plan`` on the arrays (and numbers, where a parameter is one) of ``inputs``; returns the results.

    ``outs`` are to be written instead of new arrays; they share memory with no input.
    Errors: `OutOfMemory`, `BrokenError`, `ClosedError`, `BackendError`.
    """
    if outs is None:
        results = [Array(device, None, shape, dtype) for _, shape, dtype in plan.results]
        if plan.sources:
            _run_plain(plan, device, inputs, results)
            return results
    else:
        results = list(outs)
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
            _run(plan, step, device, keys, offsets, inputs, results if outs is not None else None)
    finally:
        for key in temporary:
            try:
                manager.release(key)
            except (ClosedError, OwnershipError):  # it was never added, or went with its manager
                pass
    return results


def _run_plain(plan: Plan, device: Device, inputs: Sequence[Any], results: list[Array]) -> None:
    """A plan of one short kernel without numbers, in as few steps as there can be."""
    ability = _abilities.get(device.context.driver.generation)  # type: ignore[attr-defined]
    if ability is None:
        ability = _examine(device)
    arrays = [inputs[at] if at >= 0 else results[-1 - at] for at in plan.sources]
    timeline = device.stream.timeline
    pairs = [(array.value, mode) for array, mode in zip(arrays, plan.modes)]  # noqa: B905 (it costs, and they are as many)
    with UseMany(device.manager, pairs, timeline) as addresses:
        args: list[Any] = [(plan, inputs), *plan.head]  # Note [Held]
        args += [addresses[at] + arrays[at].offset + offset for at, offset in plan.pointers]
        launch = _launchers[plan.brief]
        if ability[1]:
            device.context.driver.call(launch, args, timeline.handle, short=True)  # type: ignore[attr-defined]
        else:
            device.context.driver.call(launch, args, timeline.handle)  # type: ignore[attr-defined]


def write(plan: Plan, device: Device, inputs: Sequence[Any], outs: Sequence[Any], given: Tree, wanted: Tree) -> None:
    """Run ``plan`` into arrays that are there already.

    Errors: `ValueError` for another structure, shape or dtype than the plan's; those of `execute`.
    """
    if given != wanted:
        raise ValueError("out is packed in another way than the function packs its results")
    check_arrays(outs, device)
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
    execute(plan, device, inputs, fresh)
    for out, made, safe in zip(outs, fresh, direct, strict=True):
        if not safe:
            device.call(np.copyto, out, made, modes="wr" if out.whole else "ur")


def _share(a: Array, b: Array) -> bool:
    """Whether two arrays may have bytes in common."""
    if a.value != b.value or not a.size or not b.size:
        return False
    (low, high), (bottom, top) = _extent(a), _extent(b)
    return low < top and bottom < high


def _extent(array: Array) -> tuple[int, int]:
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
    stream = device.stream
    timeline = stream.timeline
    pairs = [(keys[buffer], mode) for buffer, mode in step.buffers]
    if outs is not None:  # a part of a storage: the rest of it must be there
        whole = {out.value: out.whole for out in outs}
        pairs = [(key, "rw" if mode == "w" and not whole.get(key, True) else mode) for key, mode in pairs]
    call, short = _caller(device, step.nanoseconds / plan.settings.threads < INLINE)
    if not isinstance(step, KernelStep):
        timeline.fence()  # NumPy may raise: its failure is told apart from others
        with device.manager.use_many(pairs, timeline) as addresses:
            places = {
                buffer: address + offsets[buffer] for (buffer, _), address in zip(step.buffers, addresses, strict=True)
            }
            call(partial(_multiply, device, inputs), (step, places), timeline.handle, **short)
        timeline.mark()
        return
    with device.manager.use_many(pairs, timeline) as addresses:
        places_ = [address + offsets[buffer] for (buffer, _), address in zip(step.buffers, addresses, strict=True)]
        launcher = _launchers[step.nanoseconds < BRIEF]
        calls = []
        for launch in step.launches:
            numbers = [
                word if param is None else bits_of(plan.function.params[param].dtype.type(inputs[param]))
                for param, word in launch.numbers
            ]
            pointers = [places_[at] + offset for at, offset in launch.pointers]
            calls.append(
                ((step, inputs), step.kernel.address, launch.address, launch.words, 0, launch.hi, *pointers, *numbers)
            )
        if len(calls) == 1:
            call(launcher, calls[0], timeline.handle, **short)
        else:
            threads = plan.settings.threads if step.nanoseconds >= SHARED else 1
            call(_together, (launcher, calls, threads), timeline.handle, **short)


def _together(launch: Any, calls: list[tuple[Any, ...]], threads: int) -> None:
    team.run_together([(launch, each) for each in calls], threads)


def _caller(device: Device, inline: bool) -> tuple[Any, dict[str, bool]]:
    """How a function is enqueued on the device, and the option that runs it inline.  Errors: `BackendError`."""
    driver: Any = device.context.driver
    ability = _abilities.get(driver.generation) or _examine(device)
    return driver.call, {"short": True} if inline and ability[1] else {}


def _examine(device: Device) -> tuple[bool, bool]:
    """Whether the device can run native code, and knows short calls.  Errors: `BackendError` that says what to do."""
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
    if not _launchers:
        general, brief = launchers()
        _launchers.update({False: general, True: brief})
    if len(_abilities) > 256:  # of devices long closed
        _abilities.clear()
    found = _abilities[driver.generation] = (True, "short" in inspect.signature(driver.call).parameters)
    return found


def _multiply(device: Device, inputs: Sequence[Any], step: Any, places: dict[int, int]) -> None:
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
