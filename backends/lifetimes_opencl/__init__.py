"""OpenCL devices through PyOpenCL.

Contexts, in-order queues as streams, markers as events, shared virtual memory (buffers where a device has none), programs
in OpenCL C.  Which devices there are is found in a process of its own, since a runtime may end the one that asks (`probe`,
`probing`, `devices`); a driver is made of calls about memory, order, code and host functions, one file each.

Importing this needs nothing; using it needs the extra ``opencl``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lifetimes.backend import Backend, DeviceInfo, Usability
from lifetimes.errors import BackendError
from lifetimes_opencl import probing

if TYPE_CHECKING:
    from lifetimes_opencl.driver import OpenCLDriver

__all__ = ["OpenCLBackend", "adopt", "backend"]


class OpenCLBackend:
    """The devices of all platforms, those that fail a small test left out."""

    name = "opencl"

    def usability(self) -> Usability:
        """Whether a device adds up three numbers here.  Asked once a process; takes a second the first time."""
        return probing.usability()

    def devices(self) -> Sequence[DeviceInfo]:
        """Those that work, in the order of the runtime's platforms."""
        return tuple(found.info(index) for index, found in enumerate(probing.working()))

    def open(self, index: int | str = 0, *, memory: str | None = None, limit: int | None = None) -> OpenCLDriver:
        """A driver with a context of its own.

        ``index`` counts the working devices, or is a pattern: the first device whose names and versions it occurs in, as in
        ``"pocl 3.0"`` or ``"*nvidia*"``, upper and lower case alike.  ``memory`` asks for a kind: ``"fine"``, ``"coarse"`` or
        ``"buffers"`` (None: the best that the device has).  ``limit`` bounds what may be allocated, in bytes.

        Errors: `BackendError` that lists the devices there are, or says why there are none.
        """
        from lifetimes_opencl import devices

        return devices.open_device(probing.choose(index), memory, limit)


backend = OpenCLBackend()
_backend: Backend = backend


def adopt(context: Any, *, memory: str | None = None, limit: int | None = None) -> OpenCLDriver:
    """A driver over a ``pyopencl.Context`` (or over that of a ``CommandQueue``), which stays its owner's.

    With a queue its device is taken, with a context its first.  Closing the driver lets go of the context and frees only
    what was allocated through the driver.  ``lifetimes.open(adopt(context))`` puts a memory manager over it.
    Errors: `TypeError`; those of `OpenCLBackend.open`.
    """
    usable = probing.installed()
    if not usable.usable:
        raise BackendError(f"{usable.reason}. {usable.remedy}")
    from lifetimes_opencl import devices

    return devices.adopt_context(context, memory, limit)
