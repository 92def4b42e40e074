"""What the manager's tests are set on: a simulated device with room for a few arrays of one size."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lifetimes._typing import Mode
from lifetimes.manager import Manager
from lifetimes.testing.sim import SimDriver
from lifetimes.timeline import Timeline

SIZE = 1024
LONG = (pytest.mark.stress, pytest.mark.slow, pytest.mark.timeout(4 * 3600))
"""The marks of what runs for minutes or hours, and on purpose: ``make test ARGS="-m stress"``."""


class Scene:
    """A manager whose limit is ``blocks`` arrays of 1 KiB; the device has room for some more."""

    def __init__(
        self, blocks: int = 4, *, manual: bool = False, latency: float = 1.0, total: int = 64 << 10, **options: Any
    ) -> None:
        self.driver = SimDriver(total, manual=manual, latency=latency)
        options.setdefault("collect_garbage", False)
        options.setdefault("pin_timeout", 10.0)
        self.manager = Manager(self.driver, memory_limit=blocks * SIZE, **options)

    def add(self, value: int | None = None, nbytes: int = SIZE, **options: Any) -> int:
        """An array full of ``value``, or of nothing."""
        return self.manager.add(nbytes if value is None else np.full(nbytes, value, np.uint8), **options)

    def adds(self, count: int, first: int = 1) -> list[int]:
        """Arrays full of ``first``, ``first + 1`` and so on."""
        return [self.add(first + number) for number in range(count)]

    def stream(self, **options: Any) -> Timeline:
        """One more stream, as a user has it."""
        return Timeline(self.driver, self.driver.create_stream(), **options)

    def fill(self, address: int, value: int, stream: Timeline | None = None, nbytes: int = SIZE) -> None:
        """Enqueue a kernel that fills device memory."""
        handle = (self.manager.stream if stream is None else stream).handle
        self.driver.call(np.copyto, (self.driver.view(address, nbytes), np.uint8(value)), handle)

    def write(self, key: int, value: int, mode: Mode = "rw", stream: Timeline | None = None) -> None:
        """Use an array and fill it on the device."""
        with self.manager.use(key, mode, stream) as address:
            self.fill(address, value, stream)

    def fail(self, key: int, mode: Mode = "rw", stream: Timeline | None = None) -> None:
        """Use an array for a kernel that fails on the device, fenced as `Device.call` does it."""
        line = self.manager.stream if stream is None else stream
        with self.manager.use(key, mode, line) as address:
            line.fence()
            self.driver.faults.fail("call", at="completion")
            self.fill(address, 99, line)
        line.mark()

    def value(self, key: int) -> int:
        """The value that an array is full of, read through the manager."""
        out = self.manager.read(key, np.empty(self.entry(key).nbytes, np.uint8))
        assert (out == out[0]).all(), f"array #{key} is not full of one value: {out[:16]}"
        return int(out[0])

    def on_device(self, key: int, stream: Timeline | None = None) -> int:
        """The same, seen by the device."""
        line = self.manager.stream if stream is None else stream
        out = np.empty(self.entry(key).nbytes, np.uint8)
        with self.manager.use(key, "r", line) as address:
            self.driver.copy_out(out, address, line.handle)
        self.driver.run_until_idle()
        assert (out == out[0]).all(), f"array #{key} is not full of one value: {out[:16]}"
        return int(out[0])

    def touch(self, *keys: int) -> None:
        """Use arrays, one after the other."""
        for key in keys:
            with self.manager.use(key):
                pass

    def entry(self, key: int) -> Any:
        """The manager's record of an array."""
        return self.manager.entry(key)

    def resident(self, *keys: int) -> list[bool]:
        """Which of them are on the device."""
        return [self.entry(key).block is not None for key in keys]

    def check(self) -> None:
        """Everything that must hold between two calls."""
        self.manager.check_invariants()
        self.driver.check_invariants()
        assert not self.driver.violations, self.driver.violations

    def close(self) -> None:
        """The end: everything is given back."""
        self.driver.manual = False
        self.check()
        self.manager.close()
        assert self.driver.live_blocks == {}
        assert not self.driver.violations, self.driver.violations
        self.driver.close()


class Gate:
    """Where one thread stops until another lets it go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def stop(self) -> None:
        """Run by the thread that stops."""
        self.reached.set()
        assert self.opened.wait(20), "nobody opened the gate"

    def wait(self) -> None:
        """Until the thread has stopped."""
        assert self.reached.wait(20), "nobody came to the gate"

    def open(self) -> None:
        """Let it go on."""
        self.opened.set()


class Thread:
    """A thread whose result or error is asked for."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(function, args), daemon=True)
        self._thread.start()

    def _run(self, function: Callable[..., Any], args: Any) -> None:
        try:
            self.result = function(*args)
        except BaseException as error:
            self.error = error

    def join(self) -> Any:
        """What the function returned, or raised."""
        self._thread.join(30)
        assert not self._thread.is_alive(), "the thread hangs"
        if self.error is not None:
            raise self.error
        return self.result

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._thread.is_alive()
