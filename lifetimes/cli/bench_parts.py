"""What `lifetimes bench` measures: each part is a function that yields figures, and a row in `PARTS`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import cycle, islice
from random import Random
from time import perf_counter
from typing import Any, Final, Protocol

import numpy as np

import lifetimes
from lifetimes import Device, policies, tables
from lifetimes.backend import SupportsHostCall
from lifetimes.cli.bench_measure import Figure, measure
from lifetimes.pool import Pool
from lifetimes.replay.null import NullDriver
from lifetimes.tables.protocol import OrderedTable, Table
from lifetimes.timeline import Timeline

__all__ = ["PARTS", "Choices"]

ARRAY: Final = 4 << 20
BLOCK: Final = 64 << 10


class Choices(Protocol):
    """The options that parts look at."""

    backend: str
    keys: int
    seconds: float


def bench_tables(choices: Choices) -> Iterator[Figure]:
    """Each table, filled with so many random keys: every operation on all of them, in another order."""
    random = Random(1)
    keys = [random.getrandbits(64) for _ in range(choices.keys)]
    order = random.sample(keys, len(keys))
    for name in tables.names():
        try:
            tables.make(name)
        except ValueError:  # it needs an extra
            continue
        yield from bench_table(name, keys, order, choices.seconds)


def bench_table(name: str, keys: list[int], order: list[int], seconds: float) -> Iterator[Figure]:
    """One table."""

    def fill() -> Table[Any]:
        return filled(name, keys)

    def list_all(rounds: Iterator[None]) -> None:
        for _ in rounds:
            consume(full.snapshot())

    figure = partial(Figure, "tables", name)
    yield figure("insert", of_each(keys, lambda: tables.make(name), lambda table: table.insert, seconds, "value"))
    yield figure("get", of_each(order, fill, lambda table: table.get, seconds))
    yield figure("pop", of_each(order, fill, lambda table: table.pop, seconds))
    full = fill()
    if isinstance(full, OrderedTable):
        yield figure("floor", of_each(order, lambda: full, lambda table: table.floor, seconds))
    yield figure("list", measure(list_all, seconds / 2) / len(keys))


def bench_eviction(choices: Choices) -> Iterator[Figure]:
    """What a policy costs at each use and at each miss, and how fast an array goes to the host and comes back."""
    keys = list(range(10_000))
    for name in policies.names():
        policy = policies.make(name)
        for key in keys:
            policy.add(key, 256)
        touch, ring = policy.touch, cycle(Random(1).sample(keys, len(keys)))

        def touch_one(
            rounds: Iterator[None], touch: Callable[[int], object] = touch, ring: Iterator[int] = ring
        ) -> None:
            for _, key in zip(rounds, ring, strict=False):
                touch(key)

        def replace_one(rounds: Iterator[None], policy: Any = policy) -> None:
            for _ in rounds:
                key = next(policy.candidates())
                policy.remove(key)
                policy.add(key, 256)

        yield Figure("policies", name, "touch", measure(touch_one, choices.seconds / 2))
        yield Figure("policies", name, "replace", measure(replace_one, choices.seconds / 2))
    yield from bench_misses(choices)
    with open_device(choices) as device:
        array = device.asarray(np.ones(ARRAY, np.uint8))
        manager, key = device.manager, array.key

        def there_and_back(rounds: Iterator[None]) -> None:
            for _ in rounds:
                with manager.use(key, "rw"):
                    pass
                manager.evict(key)

        yield Figure(
            "eviction", choices.backend, "evict and reload", measure(there_and_back, choices.seconds), 2 * ARRAY
        )


def bench_misses(choices: Choices) -> Iterator[Figure]:
    """The manager's own part of a hit, and of a miss that evicts, on a device that moves nothing."""
    with lifetimes.open(NullDriver(), memory_limit=1000 * 256) as device:
        manager = device.manager
        few, many = [manager.add(256) for _ in range(1000)], [manager.add(256) for _ in range(3000)]
        for operation, keys in (("use, a hit", few), ("use, a miss", many)):
            for key in keys:
                with manager.use(key, "w"):
                    pass
            for key in keys:
                manager.evict(key)  # it has content on the host from now on
            ring = cycle(keys)

            def use_one(rounds: Iterator[None], ring: Iterator[int] = ring) -> None:
                for _, key in zip(rounds, ring, strict=False):
                    with manager.use(key):
                        pass

            yield Figure("eviction", "null", operation, measure(use_one, choices.seconds))
        for key in (*few, *many):
            manager.release(key)


def bench_pool(choices: Choices) -> Iterator[Figure]:
    """A block from the pool and back, beside the driver's own allocation."""
    with open_device(choices) as device:
        driver = device.driver
        stream = Timeline(driver, driver.create_stream())
        pool = Pool(driver)

        def take_and_give(rounds: Iterator[None]) -> None:
            for _ in rounds:
                block = pool.take(BLOCK, stream)
                pool.give(block, ((stream, stream.tick()),))

        def allocate_and_free(rounds: Iterator[None]) -> None:
            for _ in rounds:
                driver.free(driver.allocate(BLOCK))

        yield Figure("pool", choices.backend, "take and give", measure(take_and_give, choices.seconds))
        yield Figure("pool", choices.backend, "driver: allocate and free", measure(allocate_and_free, choices.seconds))
        driver.synchronize(stream.handle)
        pool.purge()
        stream.close()
        driver.destroy_stream(stream.handle)


def bench_launch(choices: Choices) -> Iterator[Figure]:
    """A Python function enqueued on the device; nothing where the device's memory cannot be seen by one."""
    with open_device(choices) as device:
        if not isinstance(device.driver, SupportsHostCall):
            return
        x, y = device.asarray(np.ones(3)), device.empty(3)

        def enqueue(rounds: Iterator[None]) -> None:
            for _ in rounds:
                device.call(nothing, x, y, modes="rw")
            device.stream.synchronize()

        def round_trip(rounds: Iterator[None]) -> None:
            for _ in rounds:
                device.call(nothing, x, y, modes="rw").wait()

        yield Figure("launch", choices.backend, "call", measure(enqueue, choices.seconds))
        yield Figure("launch", choices.backend, "call and wait", measure(round_trip, choices.seconds))


PARTS: Final[dict[str, Callable[[Choices], Iterable[Figure]]]] = {
    "tables": bench_tables,
    "eviction": bench_eviction,
    "pool": bench_pool,
    "launch": bench_launch,
}


def open_device(choices: Choices) -> Device:
    """The device that was chosen."""
    return lifetimes.open(NullDriver() if choices.backend == "null" else choices.backend)


def filled(name: str, keys: Iterable[int]) -> Table[Any]:
    """A table of these keys."""
    table = tables.make(name)
    for key in keys:
        table.insert(key, "value")
    return table


def of_each(
    keys: list[int],
    make: Callable[[], Any],
    member: Callable[[Any], Callable[..., object]],
    seconds: float,
    *args: object,
) -> float:
    """Seconds of one call, from passes over all keys: the least, since a pass is too long for a median to help."""
    least, spent = float("inf"), 0.0
    while spent < seconds:
        call = member(make())
        began = perf_counter()
        if args:
            for key in keys:
                call(key, *args)
        else:
            for key in keys:
                call(key)
        took = perf_counter() - began
        spent += took
        least = min(least, took)
    return least / len(keys)


def consume(items: Iterable[object]) -> None:
    """Go through all of it."""
    for _ in islice(items, None):
        pass


def nothing(x: object, y: object) -> None:
    """What is launched."""
