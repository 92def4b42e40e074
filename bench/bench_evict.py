"""Eviction and reload, against the two copies that they cannot do without."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import lifetimes
from bench.harness import Compare

NBYTES = 64 << 20


def bench_evict_and_reload(compare: Compare) -> None:
    """A written array of 64 MiB, evicted and reloaded."""
    with lifetimes.open("host", memory_limit=4 * NBYTES) as device:
        array = device.asarray(np.ones(NBYTES, np.uint8))
        manager, key = device.manager, array.key
        on_host, on_device = np.ones(NBYTES, np.uint8), np.ones(NBYTES, np.uint8)
        moved = 0

        def evict_and_reload(rounds: Iterator[None]) -> None:
            nonlocal moved
            for _ in rounds:
                with manager.use(key, "rw"):  # uploads; and since it may write, the eviction has to copy back
                    pass
                assert manager.evict(key)
                moved += 2 * NBYTES

        def two_copies(rounds: Iterator[None]) -> None:
            for _ in rounds:
                np.copyto(on_device, on_host)
                np.copyto(on_host, on_device)

        compare(evict_and_reload, two_copies, bar=0.8, nbytes=2 * NBYTES)
        counts = device.statistics()
        assert counts.upload_bytes + counts.copyback_bytes == moved, "both sides copy the same bytes"
