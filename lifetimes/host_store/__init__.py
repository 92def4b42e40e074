"""Host memory for copies of device arrays, and below it files, in the order of the data.

`store` hands out buffers under a limit and takes them back; `room` makes room when they run short; `spill` moves a copy
between memory and `files`, which lie in a `directory` that only its owner sees.
"""

from lifetimes.host_store.store import HostStatistics, HostStore

__all__ = ["HostStatistics", "HostStore"]
