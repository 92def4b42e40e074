"""Drivers made of drivers, and of functions: each adds one thing and leaves the rest to its ``upstream``.

`Limited` bounds the memory, `Counted` counts calls and bytes, `Logged` writes a line for each call; `simple_driver` makes
a driver of four functions.  They compose: ``Manager(Logged(Limited(driver, "1GiB")))``.
"""

from lifetimes.adaptors.counted import Counted, DriverStatistics
from lifetimes.adaptors.limited import Limited
from lifetimes.adaptors.logged import Logged
from lifetimes.adaptors.simple import SimpleDriver, simple_driver

__all__ = ["Counted", "DriverStatistics", "Limited", "Logged", "SimpleDriver", "simple_driver"]
