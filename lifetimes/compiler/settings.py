"""What compiled code is made for, apart from what it computes: the target, and how many threads share a long kernel.

Settings are part of the key of what is compiled, by identity: going back to earlier settings finds what was made for
them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lifetimes.compiler import target as targets
from lifetimes.compiler.target import Target

__all__ = ["Settings", "now", "set_threads", "using"]


@dataclass(frozen=True, slots=True, eq=False)
class Settings:
    """``name`` is a target's name; None is the best of this machine."""

    name: str | None
    threads: int

    @property
    def target(self) -> Target:
        """The target itself.  Errors: `BackendError` for one that this machine does not run, or without llvmlite."""
        return targets.best() if self.name is None else targets.named(self.name)


def _processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


now = Settings(None, _processors())


def set_threads(count: int) -> None:
    """Share long kernels among so many threads from now on; 1 is the caller's alone.  Errors: `ValueError` below 1."""
    global now
    if count < 1:
        raise ValueError(f"a kernel needs at least one thread, not {count!r}")
    now = Settings(now.name, count)


@contextmanager
def using(name: str | None = None, *, threads: int | None = None) -> Iterator[Settings]:
    """Compile for another target of this machine, or another number of threads, in the whole process for the block.

    For tests and measurements.  Errors: `BackendError` that lists what this machine runs.
    """
    global now
    before = now
    now = inside = Settings(before.name if name is None else targets.named(name).name, threads or before.threads)
    try:
        yield inside
    finally:
        now = before
