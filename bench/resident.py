"""Many small arrays, all on the device."""

from __future__ import annotations

from lifetimes import Device, Manager

__all__ = ["NBYTES", "resident_manager"]

NBYTES = 256


def resident_manager(device: Device, entries: int) -> tuple[Manager, list[int]]:
    """The device's manager with so many arrays of 256 bytes, and their keys, in the order in which they were added."""
    manager = device.manager
    keys = [manager.add(NBYTES) for _ in range(entries)]
    for key in keys:
        with manager.use(key, "w"):
            pass
    return manager, keys
