"""What happens when memory is short: hooks that free, allocate or promise too much, and closing while others evict."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lifetimes.errors import BusyError, ClosedError, OutOfMemory, OwnershipError
from lifetimes.manager import Manager
from lifetimes.testing.sim import SimDriver

BLOCK = 1024


def test_a_hook_may_free_and_allocate_and_cannot_keep_an_allocation_trying() -> None:
    """rapidsai/rmm#1504: a callback that spills while the allocator holds its lock; without one, races."""
    manager = Manager(SimDriver(8 * BLOCK), memory_limit=4 * BLOCK)
    keys = [manager.add(BLOCK) for _ in range(5)]
    asked: list[str] = []

    with manager.use_many([(key, "w") for key in keys[:3]]):
        with manager.use(keys[3], "w"):
            pass
        spare = [keys[3]]

        def frees(level: str) -> bool:
            asked.append(level)
            if spare:
                manager.release(spare.pop())
                return True
            return False

        def allocates(level: str) -> bool:
            small = manager.add(16)
            manager.release(small)
            return False

        def promises(level: str) -> bool:
            asked.append("promise")
            return True

        for hook in (frees, allocates):
            manager.add_reclaim_hook(hook)
        with manager.use(keys[4], "w"):
            manager.add_reclaim_hook(promises)
            more = manager.add(BLOCK)
            with pytest.raises(OutOfMemory), manager.use(more, "w"):
                pass
    assert asked.count("promise") < 50, "an allocation is retried a bounded number of times"
    manager.check_invariants()
    manager.close()


def test_hooks_run_under_no_lock() -> None:
    """rapidsai/rmm#1504: four threads are short of memory at once, and each hook uses the manager."""
    manager = Manager(SimDriver(8 * BLOCK), memory_limit=4 * BLOCK, pin_timeout=10.0)
    keys = [manager.add(BLOCK) for _ in range(12)]

    def evicts(level: str) -> bool:
        return any(manager.evict(key) for key in keys[:4])

    manager.add_reclaim_hook(evicts)
    start = threading.Barrier(4)

    def work(first: int) -> None:
        start.wait(10)
        for turn in range(30):
            with manager.use(keys[(first * 3 + turn) % 12], "rw"):
                pass

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(work, first) for first in range(4)]:
            each.result(20)
    manager.check_invariants()
    manager.close()


def test_closing_while_others_evict_and_add_does_not_wait_for_them() -> None:
    """NVIDIA/cudf-spark#14201: shutdown locks the store and then each handle, a spilling thread the other way round."""
    for _ in range(200):
        manager = Manager(SimDriver(16 * BLOCK), memory_limit=4 * BLOCK)
        keys = [manager.add(BLOCK) for _ in range(6)]
        start = threading.Barrier(3)

        def evict(manager: Manager = manager, keys: list[int] = keys, start: threading.Barrier = start) -> None:
            start.wait(10)
            for key in keys * 3:
                try:
                    with manager.use(key, "rw"):
                        pass
                    manager.evict(key)
                except (ClosedError, OwnershipError):
                    return

        def come_and_go(manager: Manager = manager, start: threading.Barrier = start) -> None:
            start.wait(10)
            for _ in range(10):
                try:
                    manager.release(manager.add(BLOCK))
                except (ClosedError, OwnershipError):
                    return

        threads = [threading.Thread(target=evict), threading.Thread(target=come_and_go)]
        for thread in threads:
            thread.start()
        start.wait(10)
        try:
            manager.close()
        except BusyError:  # an array was just in use: nothing has changed, and it works when it is not
            for thread in threads:
                thread.join(20)
            manager.close()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        with pytest.raises(ClosedError):
            manager.evict(keys[0])
