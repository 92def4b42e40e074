"""The memory manager, in the order of the data: uses, what they acquire, the memory found for it, what must leave for it.

`use` (pins, the short way) -> `acquire` (a working set, all or nothing) -> `ladder` (where memory comes from) -> `memory`
(pool, driver, limit) and `eviction` (what leaves); `snapshot` counts, `shortage` explains; `core` is the public `Manager`.
"""

from lifetimes.manager.core import Manager
from lifetimes.manager.statistics import ManagerStatistics

__all__ = ["Manager", "ManagerStatistics"]
