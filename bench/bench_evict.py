"""Eviction and reload, against the two copies that they cannot do without."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import lifetimes
from bench.harness import Compare


def compare_with_copies(compare: Compare, size: int, *, bar: float | None = None, nbytes: int = 0) -> None:
    """Both sides copy as many bytes to a place and back, between memory that is warm."""
    with lifetimes.open("host", memory_limit=4 * size) as device:
        array = device.asarray(np.ones(size, np.uint8))
        manager, key = device.manager, array.key
        on_host, on_device = np.ones(size, np.uint8), np.ones(size, np.uint8)
        moved = 0

        def evict_and_reload(rounds: Iterator[None]) -> None:
            nonlocal moved
            for _ in rounds:
                with manager.use(key, "rw"):  # uploads; and since it may write, the eviction has to copy back
                    pass
                assert manager.evict(key)
                moved += 2 * size

        def two_copies(rounds: Iterator[None]) -> None:
            for _ in rounds:
                np.copyto(on_device, on_host)
                np.copyto(on_host, on_device)

        compare(evict_and_reload, two_copies, bar=bar, nbytes=nbytes)
        counts = device.statistics()
        assert counts.upload_bytes + counts.copyback_bytes == moved, "both sides copy the same bytes"


def bench_64_MiB(compare: Compare) -> None:  # noqa: N802
    """evict and reload, 64 MiB, written"""
    compare_with_copies(compare, 64 << 20, bar=0.8, nbytes=2 * 64 << 20)


def bench_4_KiB(compare: Compare) -> None:  # noqa: N802
    """evict and reload, 4 KiB, written"""  # where nothing but our own work shows
    compare_with_copies(compare, 4 << 10)
