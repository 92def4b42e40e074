"""`open`: from a back end's name and a few choices to a `Device`."""

from __future__ import annotations

import threading
from typing import Any

from lifetimes import registry
from lifetimes.backend import Driver
from lifetimes.device import Device, current
from lifetimes.errors import BackendError
from lifetimes.origins import Level, set_stacks
from lifetimes.reaper import safepoint

__all__ = ["current_device", "open"]

_shared_lock = threading.Lock()
_shared: list[Device] = []


def open(
    backend: Any = "host",
    index: int = 0,
    *,
    memory_limit: int | str | None = None,
    table: Any = "dict",
    address_table: Any = None,
    policy: Any = "lru",
    stacks: Level | None = None,
) -> Device:
    """Open a device and put a memory manager over it.

    ``backend`` is a name (`lifetimes.registry.names` tells which), a back end object, or a driver that is open already.
    ``memory_limit`` bounds what arrays and held blocks may take of the device: bytes, ``"64MiB"``, ``"90%"``, or None for all
    of it.  ``table``, ``address_table`` (ordered) and ``policy`` are names, import paths ``"package.module:Name"`` or objects.
    ``stacks`` ("off", "line", "full") says what is remembered of where things are made; None leaves it as it is.

    Errors: `BackendError` for an unknown or unusable back end or index, `ValueError` and `TypeError` for the rest, each with
    what there is instead; nothing is left open.

    >>> import lifetimes
    >>> with lifetimes.open("host", memory_limit="64MiB", table="judy", policy="lru") as device:
    ...     device.statistics().limit
    67108864
    """
    safepoint()
    if stacks is not None:
        set_stacks(stacks)
    if isinstance(backend, Driver):
        driver, label = backend, backend.name
    else:
        found = registry.find(backend) if isinstance(backend, str) else backend
        usable = found.usability()
        if not usable.usable:
            raise BackendError(f"the back end {found.name!r} cannot be used here: {usable.reason}. {usable.remedy}".rstrip())
        driver, label = found.open(index), f"{found.name}:{index}"
    return Device(
        driver, label=label, memory_limit=memory_limit, table=table, address_table=address_table, policy=policy
    )


def current_device() -> Device:
    """The device of the innermost ``with lifetimes.open(...)`` block; without one, a shared host device."""
    device = current.get()
    if device is not None and not device.closed:
        return device
    with _shared_lock:
        if not _shared or _shared[0].closed:
            _shared[:] = [open("host")]
        return _shared[0]
