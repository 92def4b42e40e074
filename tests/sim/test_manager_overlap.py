"""An array set larger than the device: copies run beside the work, in virtual time, where nothing else plays a part."""

from __future__ import annotations

import numpy as np
import pytest

from lifetimes.manager import Manager
from lifetimes.testing.sim import SimDriver

NBYTES, ARRAYS, PASSES = 1024, 16, 3


class Run:
    """A kernel over all arrays, one after the other, a few times; each writes its array."""

    def __init__(self, kernel: float, copy: float, blocks: int, *, prefetch: bool) -> None:
        times = {"call": kernel, "copy_in": copy, "copy_out": copy}
        driver = SimDriver(1 << 20, latency=lambda kind, nbytes: times.get(kind, 0.0))
        manager = Manager(driver, memory_limit=blocks * NBYTES, collect_garbage=False)
        keys = [manager.add(np.zeros(NBYTES, np.uint8)) for _ in range(ARRAYS)]
        stream = manager.stream
        for turn in range(PASSES):
            for at, key in enumerate(keys):
                with manager.use(key, "rw") as address:
                    driver.call(np.add, (view := driver.view(address, NBYTES), np.uint8(1), view), stream.handle)
                if prefetch and (turn < PASSES - 1 or at < ARRAYS - 1):
                    manager.prefetch(keys[(at + 1) % ARRAYS])
        stream.wait(stream.issued)
        self.time = driver.now
        statistics = manager.statistics()
        self.uploads, self.copybacks = statistics.uploads, statistics.copybacks
        self.least = max(PASSES * ARRAYS * kernel, self.uploads * copy, self.copybacks * copy)
        for key in keys:
            assert (manager.read(key, np.empty(NBYTES, np.uint8)) == PASSES).all()
        manager.close()
        driver.close()


@pytest.mark.parametrize("blocks", [3, 4, 8])
@pytest.mark.parametrize(("kernel", "copy"), [(10.0, 1.0), (10.0, 4.0), (4.0, 4.0), (2.0, 5.0)])
def test_with_prefetching_it_takes_as_long_as_the_longer_of_work_and_copies(
    kernel: float, copy: float, blocks: int
) -> None:
    """A copy-back waits for the kernel that wrote its array and not for those enqueued since, nor does who gets its block."""
    run = Run(kernel, copy, blocks, prefetch=True)
    assert run.uploads == PASSES * ARRAYS, "nothing is brought for nothing"
    assert run.time <= 1.05 * run.least, f"{run.time} for what could be done in {run.least}"


def test_without_prefetching_copies_back_run_beside_the_work_still() -> None:
    run = Run(10.0, 4.0, 4, prefetch=False)
    assert run.time <= PASSES * ARRAYS * (10.0 + 4.0)
