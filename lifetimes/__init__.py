"""Lifetimes, interchangeable memory tables, eviction and leak tracking for GPU runtimes.

>>> import lifetimes, numpy as np
>>> with lifetimes.open("host", memory_limit="64MiB", table="judy") as device:
...     x = device.asarray(np.arange(12.0))
...     _ = x.evict()          # its device memory is free; the content is kept
...     x.numpy().sum()
np.float64(66.0)
"""

from typing import TYPE_CHECKING, Any

from lifetimes.adaptors import simple_driver
from lifetimes.deferring import defer
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
from lifetimes.leaks import diff, live, report, snapshot, why
from lifetimes.leaks.environment import obey as _obey_environment
from lifetimes.lifetime import Lifetime
from lifetimes.manager import Manager
from lifetimes.opening import current_device, open
from lifetimes.origins import scope, set_stacks
from lifetimes.reaper import drain, get_release_mode, set_release_mode
from lifetimes.resources import Array, Context, Event, Kernel, Module, Stream

if TYPE_CHECKING:
    from lifetimes.compiler.jit import jit
    from lifetimes.compiler.spec import spec

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
    "diff",
    "drain",
    "get_release_mode",
    "jit",
    "live",
    "open",
    "report",
    "scope",
    "set_release_mode",
    "set_stacks",
    "simple_driver",
    "snapshot",
    "spec",
    "why",
]

_LATE = {"jit": "lifetimes.compiler.jit", "spec": "lifetimes.compiler.spec"}
"""Imported when first asked for: a program that only manages memory needs no compiler."""


def __getattr__(name: str) -> Any:
    module = _LATE.get(name)
    if module is None:
        raise AttributeError(f"module 'lifetimes' has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(module), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE})


_obey_environment()
