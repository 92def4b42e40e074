"""The host as a device: the embedded default back end, and the model for others.

Memory of this process under a byte limit (`memory`, `limits`), streams that are queues with a worker thread (`lanes`,
`marks`, `streams`, `failure`), and the driver that joins them (`driver`).  Needs NumPy and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lifetimes.backend import Backend, DeviceInfo, Usability
from lifetimes.errors import BackendError
from lifetimes_host.driver import HostDriver
from lifetimes_host.limits import cpu_name, default_limit

__all__ = ["HostBackend", "HostDriver", "backend"]


class HostBackend:
    """One device, named after the processor.

    >>> backend.usability().usable, len(backend.devices())
    (True, 1)
    """

    name = "host"

    def usability(self) -> Usability:
        return Usability(True)

    def devices(self) -> Sequence[DeviceInfo]:
        return (DeviceInfo(0, cpu_name(), default_limit(), f"NumPy {np.__version__}"),)

    def open(self, index: int = 0, *, limit: int | None = None) -> HostDriver:
        """A driver of its own for each call, with ``limit`` bytes (None: 75 % of physical memory)."""
        if index != 0:
            raise BackendError(f"the host has no device {index!r}; there is only device 0")
        return HostDriver(limit)


backend: Backend = HostBackend()
