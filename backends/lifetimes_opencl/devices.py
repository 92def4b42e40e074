"""From a found device, or somebody's context, to a driver."""

from __future__ import annotations

import os
from typing import Any

from lifetimes.errors import BackendError
from lifetimes_opencl.base import COARSE, FINE
from lifetimes_opencl.driver import HostVisibleDriver, OpenCLDriver
from lifetimes_opencl.failures import translate
from lifetimes_opencl.probing import Found
from lifetimes_opencl.runtime import PROCESS, cl

__all__ = ["adopt_context", "open_device"]

KINDS = ("fine", "coarse", "buffers")


def open_device(found: Found, memory: str | None, limit: int | None) -> OpenCLDriver:
    """A driver with a context of its own.  Errors: `BackendError`."""
    try:
        device = cl.get_platforms()[found.platform_index].get_devices()[found.device_index]
        name = device.name.strip()
    except (cl.Error, IndexError) as error:
        raise BackendError(f"the device {found.device!r} has gone: {error}") from error
    if name != found.device:
        raise BackendError(f"the device {found.device!r} has gone; {name!r} is in its place")
    try:
        return make_driver(device, cl.Context([device]), memory, limit)
    except cl.Error as error:
        raise translate(error, f"opening {name!r}") from error


def adopt_context(owner: Any, memory: str | None, limit: int | None) -> OpenCLDriver:
    """A driver over somebody's context or queue."""
    try:
        if isinstance(owner, cl.CommandQueue):
            return make_driver(owner.device, owner.context, memory, limit)
        if isinstance(owner, cl.Context):
            return make_driver(owner.devices[0], owner, memory, limit)
    except cl.Error as error:
        raise translate(error, f"adopting {owner!r}") from error
    raise TypeError(f"a pyopencl.Context or CommandQueue can be adopted, not {type(owner).__name__}")


def make_driver(device: Any, context: Any, memory: str | None, limit: int | None) -> OpenCLDriver:
    """The right class for the memory that the device has, or that is asked for."""
    if os.getpid() != PROCESS:
        raise BackendError(
            f"OpenCL was in use in process {PROCESS} when this one was forked from it, and its threads are not here; "
            'use it first in the child, or start processes with multiprocessing.get_context("spawn")'
        )
    can = memory_kinds(device)
    kind = can[0] if memory is None else memory
    if kind not in can:
        raise BackendError(
            f"{device.name.strip()!r} has no memory of the kind {memory!r}; it has {', '.join(can)}"
            + ("" if memory in KINDS else f" (the kinds are {', '.join(KINDS)})")
        )
    return (HostVisibleDriver if kind == "fine" else OpenCLDriver)(device, context, kind, limit)


def memory_kinds(device: Any) -> list[str]:
    """What a device can be asked for, best first.  Note [Fine and coarse] in ``blocks.py``."""
    try:
        shared = int(device.svm_capabilities)
    except cl.Error:  # older than OpenCL 2
        shared = 0
    kinds = ["coarse"] if shared & COARSE else []
    if shared & FINE and device.type & cl.device_type.CPU:
        kinds.insert(0, "fine")
    return [*kinds, "buffers"]
