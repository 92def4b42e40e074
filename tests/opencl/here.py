"""Which OpenCL device the tests run on: PoCL from the package index, and every other PoCL that is installed."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from textwrap import dedent
from typing import Any

import pytest

from lifetimes_opencl import backend, probing

__all__ = ["PIP_POCL", "expected_here", "hold_back", "open_driver", "pocls", "require", "run_python", "wait_for"]

PIP_POCL = "PoCL 3.0"
"""The version that the package index has.  A PoCL of the system has another, and may come first."""


def expected_here() -> bool:
    """Whether PoCL from the package index must work on this machine: it is published for it, and there is a linker."""
    return sys.platform == "linux" and platform.machine() == "x86_64" and shutil.which("ld") is not None


def pocls() -> list[int]:
    """The indices of the PoCL devices, that of the package index first."""
    found = [
        (PIP_POCL not in each.platform_version, index)
        for index, each in enumerate(probing.working())
        if "PoCL" in each.platform_version
    ]
    return [index for _, index in sorted(found)]


def require() -> int:
    """The index of a PoCL device; or skip in words."""
    found = pocls()
    if found:
        return found[0]
    usability = backend.usability()
    why = f"{usability.reason}; {usability.remedy}" if not usability.usable else "PoCL is not among the devices"
    pytest.skip(f"no PoCL here: {why}")


@contextmanager
def open_driver(**options: Any) -> Iterator[Any]:
    """A driver on PoCL, checked and closed afterwards."""
    driver = backend.open(require(), **options)
    try:
        yield driver
        driver.check_invariants()
    finally:
        driver.close()


def hold_back(driver: Any, stream: Any) -> Callable[..., None]:
    """Keep a stream busy until the result is called: a barrier in its queue that waits for us.

    Called with a negative code, the result fails the barrier instead.
    """
    from lifetimes_opencl.runtime import COMPLETE, cl, raw

    gate = cl.UserEvent(driver.context)
    # Held on to: PoCL 3.0 ends the process when a command fails whose event nobody holds.
    barrier = raw._enqueue_barrier_with_wait_list(getattr(stream, "queue", stream), [gate])
    opened: list[Any] = []

    def release(status: int = COMPLETE) -> None:
        if not opened:
            opened.append(barrier)
            gate.set_status(status)

    return release


def wait_for(driver: Any, stream: Any) -> None:
    """Wait through an event, which tells failures."""
    event = driver.create_event()
    try:
        driver.record(event, stream)
        driver.wait(event)
    finally:
        driver.destroy_event(event)


def run_python(script: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script as a process of its own, everything that it could complain about turned on."""
    import os

    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", *options, "-c", dedent(script)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, **environment},
    )
