"""The simulated driver: a strict device that does exactly what it is told, when it is told."""

from __future__ import annotations

from typing import Any, ClassVar

from lifetimes.backend import Driver, SupportsCode, SupportsHostCall
from lifetimes.testing.faults import FaultPlan
from lifetimes.testing.sim.launches import CodeCalls
from lifetimes.testing.sim.order import Latency

__all__ = ["SimDriver"]


class SimDriver(CodeCalls):
    """``total`` bytes of memory, virtual time, and no patience.

    - Work completes when somebody waits for it (time passes until then), steps, or, with ``latency=0``, at once where
      nothing is before it.  With ``manual`` a wait for what is not done raises `WouldBlock` instead.
    - A copy reads its source when it completes.  Until then its destination, device or host, shows 0xCD; freed memory
      shows 0xDD and is given out again at once (``reuse_addresses``), like handles (``reuse_handles``).
    - A caller who breaks a rule of the protocol (frees memory in flight, frees twice, uses a destroyed handle, ...)
      gets a `BackendError`, and ``violations`` keeps the sentence even if the error is swallowed.
    - With ``contexts`` the driver demands its context (see `SupportsContext`) on the calling thread at each call.

    Locks: see `Accounts`.

    >>> import numpy as np
    >>> driver = SimDriver(4096, manual=True)
    >>> address, stream, event = driver.allocate(3), driver.create_stream(), driver.create_event()
    >>> driver.copy_in(address, np.array([1, 2, 3], np.uint8), stream)
    >>> driver.record(event, stream)
    >>> driver.completed(event), driver.view(address, 3)
    (False, array([205, 205, 205], dtype=uint8))
    >>> driver.step(), driver.now, driver.completed(event), driver.view(address, 3)
    (1, 1.0, True, array([1, 2, 3], dtype=uint8))
    >>> driver.free(address)
    >>> driver.violations, driver.log[-1] == ("free", address)
    ([], True)
    """

    name = "sim"
    out_of_memory_codes: frozenset[object] = frozenset({"OUT_OF_MEMORY"})
    _with_contexts: ClassVar[type[SimDriver] | None] = None

    def __init_subclass__(cls, *, contexts: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        if contexts:
            SimDriver._with_contexts = cls

    def __new__(cls, *args: Any, contexts: bool = False, **options: Any) -> SimDriver:
        # A driver without contexts must lack their methods: abilities are decided by what an object has.
        return super().__new__(cls._with_contexts if contexts and cls._with_contexts is not None else cls)

    def __init__(
        self,
        total: int = 64 << 20,
        *,
        latency: Latency = 1.0,
        manual: bool = False,
        faults: FaultPlan | None = None,
        contexts: bool = False,
        reuse_addresses: bool = True,
        reuse_handles: bool = True,
    ) -> None:
        super().__init__(
            total,
            faults,
            latency=latency,
            manual=manual,
            reuse_addresses=reuse_addresses,
            reuse_handles=reuse_handles,
        )
        self.max_allocation = total

    def close(self) -> None:
        """Complete what is in flight (in manual mode: a violation, the work is dropped) and take everything back."""
        if self._closed:
            return
        if not self.manual:
            self.run_until_idle()
        self._closed = True
        self._drop_all("the driver was closed")

    def _drop_all(self, why: str) -> None:
        with self._lock:
            left = len(self._time.pending())
            if left:
                self.violations.append(f"{why} with {left} commands in flight")
            self._time.clear()
            self._memory.clear()
            for table in (self._kernels, self._modules, self._events, self._streams):
                table.clear()

    def check_invariants(self) -> None:
        """Recount everything; meant for the invariant step of tests."""
        with self._lock:
            self._memory.check_invariants()
            self._time.check_invariants()
            for table in (self._streams, self._events, self._modules, self._kernels):
                table.check_invariants()
            live = {id(stream) for stream in self._streams.live().values()}
            timed = {id(stream) for stream in self._time.streams}
            assert live == timed, f"{len(live)} streams have handles and {len(timed)} are in the timeline"
            using = {id(block) for command in self._time.pending() for block in command.blocks}
            for block in self._memory.blocks():
                busy = block.pending > 0
                assert busy == (id(block) in using), f"{block.address:#x}: {block.pending} booked in flight"

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} at time {self.now:g}: {self.in_use:,} of {self._memory.total:,} bytes in use, "
            f"{self.pending} commands in flight, {len(self.violations)} violations>"
        )


_driver: type[Driver] = SimDriver
_code: type[SupportsCode] = SimDriver
_calls: type[SupportsHostCall] = SimDriver
