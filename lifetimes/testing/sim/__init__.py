"""A simulated device for tests: bounded memory, virtual time, planned faults, and a record of every broken rule.

>>> from lifetimes.testing.sim import SimDriver
>>> driver = SimDriver(1 << 20, manual=True)
>>> driver.faults.fail("allocate", 2)  # doctest: +ELLIPSIS
<lifetimes.testing.faults.FaultPlan object at ...>
>>> address = driver.allocate(100)
>>> driver.allocate(100)
Traceback (most recent call last):
lifetimes.errors.OutOfMemory: planned fault in allocate call 2
>>> driver.live_blocks == {address: 100}, driver.counts["allocate"], driver.violations
(True, 2, [])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lifetimes.backend import Backend, DeviceInfo, Usability
from lifetimes.errors import BackendError
from lifetimes.testing.faults import FaultPlan
from lifetimes.testing.sim.context import ContextSimDriver, current_context
from lifetimes.testing.sim.driver import SimDriver
from lifetimes.testing.sim.memory import FREED, IN_FLIGHT
from lifetimes.testing.sim.order import Latency
from lifetimes.testing.sim.timeline import WouldBlock

__all__ = [
    "FREED",
    "IN_FLIGHT",
    "ContextSimDriver",
    "FaultPlan",
    "Latency",
    "SimBackend",
    "SimDriver",
    "WouldBlock",
    "backend",
    "current_context",
]


class SimBackend:
    """``devices`` simulated devices; ``options`` are those of `SimDriver`, for every driver it opens.

    >>> SimBackend(2, total=4096).open(1).memory_info().total
    4096
    """

    name = "sim"

    def __init__(self, devices: int = 2, **options: Any) -> None:
        self._devices = devices
        self._options = options

    def usability(self) -> Usability:
        return Usability(True)

    def devices(self) -> Sequence[DeviceInfo]:
        total = self._options.get("total", 64 << 20)
        return tuple(DeviceInfo(index, f"simulated device {index}", total) for index in range(self._devices))

    def open(self, index: int = 0, **options: Any) -> SimDriver:
        """A driver of its own for each call; ``options`` add to those of the back end."""
        if index not in range(self._devices):
            raise BackendError(f"there is no simulated device {index!r}; there are 0 to {self._devices - 1}")
        return SimDriver(**{**self._options, **options})


backend: Backend = SimBackend()
