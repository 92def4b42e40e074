"""Planned faults: which call of which kind fails, how, and when.

A plan is an object that a driver asks at each call, so a test says beforehand what will go wrong and patches nothing.
The same plan with the same seed strikes at the same calls.  It also stages races: an action planned for a call runs
right before that call takes effect, on its thread.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lifetimes.errors import BackendError, OutOfMemory

__all__ = ["COMPLETION_KINDS", "KINDS", "Fault", "FaultPlan"]

At: TypeAlias = Literal["call", "completion"]

KINDS = (
    "allocate",
    "free",
    "memory_info",
    "copy_in",
    "copy_out",
    "copy",
    "create_stream",
    "destroy_stream",
    "create_event",
    "destroy_event",
    "record",
    "completed",
    "wait",
    "stream_wait",
    "synchronize",
    "compile",
    "load",
    "unload",
    "function",
    "launch",
    "view",
    "call",
    "make_current",
    "restore",
)
"""Every kind of call that can be made to fail: the members of the driver protocols."""

COMPLETION_KINDS = ("copy_in", "copy_out", "copy", "launch", "call")
"""The kinds that are work on a device, which can also fail after the call has returned."""


@dataclass(slots=True)
class Fault:
    """One planned fault or action.  ``strikes`` counts how often it struck, ``left`` how often it may still."""

    kind: str
    at: At
    error: BaseException | type[BaseException] | None = None
    action: Callable[[], object] | None = None
    """Run instead of a failure."""
    first: int = 0
    """Number of the first call it strikes, counted from the making of the plan; 0 when ``rate`` decides."""
    rate: float = 0.0
    left: int | None = 1
    """None: no end."""
    strikes: int = 0

    def due(self, number: int, dice: random.Random) -> bool:
        """Whether it strikes call ``number`` of its kind."""
        if self.left == 0:
            return False
        return dice.random() < self.rate if self.rate else number >= self.first

    def make(self, number: int) -> BaseException:
        """The error to raise, a new one unless the plan was given a ready-made object."""
        where = "planned fault at completion of" if self.at == "completion" else "planned fault in"
        message = f"{where} {self.kind} call {number}"
        if self.error is None:
            return OutOfMemory(message) if self.kind == "allocate" else BackendError(message)
        return self.error(message) if isinstance(self.error, type) else self.error


class FaultPlan:
    """Which calls fail.  Add faults before or while the driver runs; each counts calls from the moment it is added.

    Errors: `ValueError` for an unknown kind, a count below 1, or a kind that cannot fail at completion.

    Locks: one, held for counting only.

    >>> plan = FaultPlan().fail("allocate", 2)
    >>> plan.call("allocate")
    >>> plan.call("allocate")
    Traceback (most recent call last):
    lifetimes.errors.OutOfMemory: planned fault in allocate call 2
    >>> plan.call("allocate"), plan.waiting
    (None, [])
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.calls: Counter[str] = Counter()
        """Calls seen so far, by kind, failed ones included."""
        self.faults: list[Fault] = []
        self._dice = random.Random(seed)
        self._lock = threading.RLock()

    def fail(
        self,
        kind: str,
        k: int = 1,
        error: BaseException | type[BaseException] | None = None,
        *,
        times: int | None = 1,
        at: At = "call",
    ) -> FaultPlan:
        """The ``k``-th call of ``kind`` from now fails, and the ``times - 1`` after it (None: every one after it).

        ``at="completion"`` lets the call succeed and the work fail on the device: it has no effect and the stream's
        next event tells.  ``error`` is raised as it is, or made with a message if it is a class; by default
        `OutOfMemory` for ``allocate`` and `BackendError` for the rest.
        """
        self._check(kind, at)
        if k < 1 or (times is not None and times < 1):
            raise ValueError(f"calls are counted from 1, not k={k}, times={times}")
        with self._lock:
            self.faults.append(Fault(kind, at, error, first=self.calls[kind] + k, left=times))
        return self

    def sometimes(
        self,
        kind: str,
        rate: float,
        error: BaseException | type[BaseException] | None = None,
        *,
        times: int | None = None,
        at: At = "call",
    ) -> FaultPlan:
        """Each call of ``kind`` from now on fails with probability ``rate``, drawn from the plan's seed."""
        self._check(kind, at)
        if not 0.0 < rate <= 1.0:
            raise ValueError(f"a rate lies above 0 and up to 1, not {rate}")
        with self._lock:
            self.faults.append(Fault(kind, at, error, rate=rate, left=times))
        return self

    def before(self, kind: str, k: int, action: Callable[[], object], *, times: int | None = 1) -> FaultPlan:
        """Run ``action()`` right before the ``k``-th call of ``kind`` from now takes effect.

        It runs on the calling thread with no lock of the driver held, so it may call the driver, wait for a gate that
        another thread opens, drop the last reference to something or raise.
        """
        self._check(kind, "call")
        if k < 1 or (times is not None and times < 1):
            raise ValueError(f"calls are counted from 1, not k={k}, times={times}")
        with self._lock:
            self.faults.append(Fault(kind, "call", action=action, first=self.calls[kind] + k, left=times))
        return self

    def _check(self, kind: str, at: At) -> None:
        if kind not in KINDS:
            raise ValueError(f"no kind of call is named {kind!r}; there are {', '.join(KINDS)}")
        if at not in ("call", "completion"):
            raise ValueError(f"a fault strikes at 'call' or 'completion', not {at!r}")
        if at == "completion" and kind not in COMPLETION_KINDS:
            raise ValueError(f"{kind} is done when it returns; only {', '.join(COMPLETION_KINDS)} fail at completion")

    def call(self, kind: str) -> BaseException | None:
        """For drivers, with no lock held: count one call and let happen what is planned for it.

        Raises the fault that is due, or returns the one that is due at completion.
        """
        with self._lock:
            self.calls[kind] += 1
            number = self.calls[kind]
            due = [fault for fault in self.faults if fault.kind == kind and fault.due(number, self._dice)]
            for fault in due:
                fault.strikes += 1
                if fault.left is not None:
                    fault.left -= 1
        late: BaseException | None = None
        for fault in sorted(due, key=lambda fault: fault.action is None):  # actions first: a fault ends the call
            if fault.action is not None:
                fault.action()
            elif fault.at == "call":
                raise fault.make(number)
            else:
                late = fault.make(number)
        return late

    @property
    def waiting(self) -> list[Fault]:
        """The counted faults that have not struck yet.  A test ends with none, or it has not tested what it says."""
        return [fault for fault in self.faults if not fault.strikes and not fault.rate]

    @property
    def strikes(self) -> int:
        """How many calls have been made to fail."""
        return sum(fault.strikes for fault in self.faults)

    def clear(self) -> None:
        """Forget all faults; the counts stay."""
        with self._lock:
            self.faults.clear()
