"""The memory manager, in the order of the data: uses, what they acquire, the memory found for it, what must leave for it.

`use` (the short way) and `pins` -> `acquire` (a working set, all or nothing) -> `ladder` (where memory comes from) ->
`memory` (pool, driver, limit) and `eviction` (what leaves); `moves` are the small steps of an entry, `waiting` is what
threads wait with.  Beside that path: `transfer` (whole arrays from and to the host), `prefetch`, `adoption`, `limits`,
`reclaim`.  `statistics` and `snapshot` count, `shortage` explains, `guarded` and `repair` keep interrupts harmless, `ending`
closes; `core` is the public `Manager`.
"""

from lifetimes.manager.core import Manager
from lifetimes.manager.statistics import ManagerStatistics

__all__ = ["Manager", "ManagerStatistics"]
