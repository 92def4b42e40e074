"""Lifetimes, interchangeable memory tables, eviction and leak tracking for GPU runtimes.

>>> import lifetimes, numpy as np
>>> with lifetimes.open("host", memory_limit="64MiB", table="judy") as device:
...     x = device.asarray(np.arange(12.0))
...     _ = x.evict()          # its device memory is free; the content is kept
...     x.numpy().sum()
np.float64(66.0)
"""

from lifetimes.device import Device
from lifetimes.errors import (
    BackendError,
    BrokenError,
    BusyError,
    CleanupWarning,
    ClosedError,
    CompileError,
    InternalError,
    LeakWarning,
    LifetimesError,
    MissingRule,
    OutOfMemory,
    OwnershipError,
    TraceError,
    VerifyError,
)
from lifetimes.leaks import live, report
from lifetimes.lifetime import Lifetime
from lifetimes.manager import Manager
from lifetimes.opening import current_device, open
from lifetimes.origins import set_stacks
from lifetimes.reaper import defer, drain, get_release_mode, set_release_mode
from lifetimes.resources import Array, Context, Event, Kernel, Module, Stream

__version__ = "0.1.0"

__all__ = [
    "Array",
    "BackendError",
    "BrokenError",
    "BusyError",
    "CleanupWarning",
    "ClosedError",
    "CompileError",
    "Context",
    "Device",
    "Event",
    "InternalError",
    "Kernel",
    "LeakWarning",
    "Lifetime",
    "LifetimesError",
    "Manager",
    "MissingRule",
    "Module",
    "OutOfMemory",
    "OwnershipError",
    "Stream",
    "TraceError",
    "VerifyError",
    "current_device",
    "defer",
    "drain",
    "get_release_mode",
    "live",
    "open",
    "report",
    "set_release_mode",
    "set_stacks",
]
