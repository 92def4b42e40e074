"""`open`: from a back end's name and a few choices to a `Device`."""

from __future__ import annotations

import operator
import os
from typing import Any

from lifetimes import registry
from lifetimes.backend import Backend, Driver
from lifetimes.device import Device, entered
from lifetimes.errors import BackendError
from lifetimes.locks import lock
from lifetimes.origins import Level, get_stacks, set_stacks
from lifetimes.reaper import safepoint
from lifetimes.resources.layout import is_integer

__all__ = ["current_device", "find_device", "open"]

_shared: dict[str, Device] = {}  # changes under the library's lock


def open(
    backend: Any = "host",
    index: int | str = 0,
    *,
    memory_limit: int | str | None = None,
    soft_limit: int | str | None = None,
    host_limit: int | str | None = None,
    spill_dir: str | os.PathLike[str] | None = None,
    pool_bytes: int | str | None = None,
    pool_age: float | None = None,
    table: Any = "dict",
    address_table: Any = None,
    policy: Any = "lru",
    stacks: Level | None = None,
) -> Device:
    """Open a device and put a memory manager over it.

    ``backend`` is a name (`lifetimes.registry.names` tells which), a back end object, or a driver that is open already and
    is the device's from here on: closed with it, and closed when it cannot be opened.
    ``index`` counts its devices, or is a pattern: the first device in whose name and version it occurs, as in ``"*nvidia*"``
    or ``"pocl 3"``, upper and lower case alike.
    ``memory_limit`` bounds what arrays and held blocks may take of the device: bytes, ``"64MiB"``, ``"90%"``, or None for all
    of it; ``soft_limit`` is aimed at.  ``host_limit`` bounds the copies of arrays in host memory, and what is beyond it goes
    to files in ``spill_dir`` (None: there are none).  ``pool_bytes`` and ``pool_age`` (seconds) cap what is held for reuse.
    ``table``, ``address_table`` (ordered) and ``policy`` are names, import paths ``"package.module:Name"`` or objects.
    ``stacks`` ("off", "line", "full") says what is remembered of where things are made; None leaves it as it is.

    Errors: `BackendError` for an unknown or unusable back end or index, `ValueError` and `TypeError` for the rest, each with
    what there is instead; nothing is left open.

    >>> import lifetimes
    >>> with lifetimes.open("host", memory_limit="64MiB", table="judy", policy="lru") as device:
    ...     device.statistics().limit
    67108864
    """
    safepoint()
    if not is_integer(index) and (not isinstance(index, str) or not index.strip("0123456789 ")):
        raise TypeError(
            f"index counts devices from 0, or is a pattern of a device's name; it is {index!r}, a {type(index).__name__}"
        )
    before = get_stacks()
    if stacks is not None and stacks != "off":
        set_stacks(stacks)  # now, so that the device's own origin is known
    try:
        driver, label = _driver_of(backend, index)
        device = Device(
            driver,
            label=label,
            memory_limit=memory_limit,
            soft_limit=soft_limit,
            host_limit=host_limit,
            spill_dir=spill_dir,
            pool_bytes=pool_bytes,
            pool_age=pool_age,
            table=table,
            address_table=address_table,
            policy=policy,
        )
    except BaseException:
        if get_stacks() != before:
            set_stacks(before)
        raise
    if stacks == "off":
        set_stacks(stacks)
    return device


def _driver_of(backend: Any, index: int | str) -> tuple[Driver, str]:
    if isinstance(backend, Driver):
        return backend, backend.name
    found = registry.find(backend) if isinstance(backend, str) else backend
    if not callable(getattr(found, "open", None)) or not callable(getattr(found, "usability", None)):
        raise TypeError(
            f"{backend!r} is no back end; give a name ({', '.join(map(repr, registry.names()))}), a back end object or "
            "an open driver"
        )
    usable = found.usability()
    if not usable.usable:
        raise BackendError(
            f"the back end {found.name!r} cannot be used here: {usable.reason}. {usable.remedy}".rstrip()
        )
    number = find_device(found, index) if isinstance(index, str) else operator.index(index)
    return found.open(number), f"{found.name}:{number}"


def find_device(backend: Backend, pattern: str) -> int:
    """The index of the first device that the pattern occurs in.  Errors: `BackendError` that lists those there are."""
    devices = backend.devices()
    for device in devices:
        if device.matches(pattern):
            return device.index
    there_are = "; ".join(f"{device.index}: {device.name} {device.version}".rstrip() for device in devices)
    raise BackendError(
        f"no device of the back end {backend.name!r} matches {pattern!r}; there are {there_are or 'none'}"
    )


def current_device() -> Device:
    """The device of the innermost ``with lifetimes.open(...)`` block; without one, a shared host device.

    Threading: blocks count for the thread (or task) that is in them.
    """
    for device in reversed(entered.get()):
        if not device.closed:
            return device
    known = _shared.get("host")
    while known is None or known.closed:
        opened = open("host")
        with lock:
            if _shared.get("host") is known:
                _shared["host"] = opened
                return opened
            known = _shared["host"]
        opened.close()  # another thread was first
    return known
