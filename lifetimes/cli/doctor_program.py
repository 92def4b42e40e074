"""The small programs that `lifetimes doctor` tries: three elements through every ability that a back end must have.

Each takes `step`, a function that hears what is about to be tried, so that a crash can be told by the step it came in.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import numpy as np

import lifetimes
from lifetimes.backend import Backend, Driver, SupportsContext, SupportsHostCall
from lifetimes.errors import BackendError

__all__ = ["try_device", "try_driver"]

CONTENT: Final = (1.0, 2.0, 4.0)


def try_driver(driver: Driver, step: Callable[[str], None]) -> None:
    """Memory and order, call by call: host to device, on the device, and back.  Everything made is given back.

    Errors: what the driver raises; `BackendError` when a call does something else than it should.

    >>> from lifetimes import registry
    >>> steps = []
    >>> driver = registry.find("host").open()
    >>> try_driver(driver, steps.append)
    >>> steps[:2], driver.memory_info().free == driver.memory_info().total
    (['create a stream', 'allocate'], True)
    >>> driver.close()
    """
    with ExitStack() as undo:
        if isinstance(driver, SupportsContext):
            step("make the context current")
            undo.callback(driver.restore, driver.make_current())
        step("create a stream")
        stream = driver.create_stream()
        undo.callback(driver.destroy_stream, stream)
        step("allocate")
        source, result = np.array(CONTENT), np.zeros(3)
        addresses = [driver.allocate(source.nbytes) for _ in range(2)]
        for address in addresses:
            undo.callback(driver.free, address)
        expect(0 not in addresses and len(set(addresses)) == 2, "two allocations are apart", addresses)
        step("create and record an event")
        event = driver.create_event()
        undo.callback(driver.destroy_event, event)
        undo.callback(driver.synchronize, stream)  # before anything that it uses is given back
        step("copy in")
        driver.copy_in(addresses[0], source, stream)
        driver.record(event, stream)
        step("let a stream wait for an event")
        driver.stream_wait(stream, event)
        step("copy on the device")
        driver.copy(addresses[1], addresses[0], source.nbytes, stream)
        step("copy out")
        driver.copy_out(result, addresses[1], stream)
        driver.record(event, stream)
        step("wait for an event")
        driver.wait(event)
        expect(driver.completed(event), "an event that was waited for is completed", False)
        expect(bool((result == source).all()), f"{source.tolist()} comes back", result.tolist())
        step("ask for free memory")
        driver.memory_info()
        step("synchronize")
    step("")


def try_device(backend: Backend, index: int, step: Callable[[str], None]) -> None:
    """The same through `lifetimes.open`: an array that is evicted and reloaded, computed with where the host can.

    Errors: as `try_driver`.
    """
    step("open the device")
    with lifetimes.open(backend, index) as device:
        step("evict and reload an array")
        x = device.asarray(CONTENT)
        with device.use(read=[x]):
            pass
        expect(x.evict(), "an array that nobody uses can be evicted", False)
        expect(x.numpy().tolist() == list(CONTENT), f"{list(CONTENT)} comes back", x.numpy().tolist())
        if isinstance(device.driver, SupportsHostCall):
            step("compute")
            y = device.empty(3)
            device.call(double, x, y, modes="rw").wait()
            expect(y.numpy().tolist() == [2.0, 4.0, 8.0], "[2.0, 4.0, 8.0] is computed", y.numpy().tolist())
        step("close the device")
    step("")


def double(x: Any, y: Any) -> None:
    """The computation."""
    np.multiply(x, 2.0, out=y)


def expect(held: bool, what: str, found: object) -> None:
    """Errors: `BackendError` when it does not hold."""
    if not held:
        raise BackendError(f"{what}: expected, but found {found}")
