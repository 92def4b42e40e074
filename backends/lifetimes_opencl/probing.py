"""Which devices work here, asked of a process of its own: some runtimes end the process that uses them.

PoCL does so when it finds no linker, in the middle of the first launch.  The answer is kept for the life of this process.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from lifetimes.backend import DeviceInfo, Usability
from lifetimes.errors import BackendError

__all__ = ["Found", "choose", "installed", "survey", "usability", "working"]

SECONDS: Final = 60.0
"""How long a device may take to add up three numbers; the first compilation on a slow machine takes seconds."""
DEVICES_AT_MOST: Final = 64

INSTALL: Final = "pip install 'device-lifetimes[opencl]'"
GET_A_RUNTIME: Final = (
    "Install the OpenCL driver of your device's vendor, or a processor's: pip install pocl-binary-distribution "
    "(Linux on x86-64), or your system's package pocl-opencl-icd"
)
GET_A_LINKER: Final = "PoCL links kernels with the program ld: install binutils, and have it on the PATH"
GET_A_CACHE: Final = "PoCL needs a folder to write to: set POCL_CACHE_DIR, XDG_CACHE_HOME or HOME to one"


@dataclass(frozen=True, slots=True)
class Found:
    """One device, where it is in the runtime's lists, and what is wrong with it (nothing: an empty string)."""

    platform_index: int
    device_index: int
    platform: str
    platform_version: str
    device: str
    driver_version: str
    total_memory: int
    problem: str = ""

    @property
    def versions(self) -> str:
        """Of platform and driver, as short as can be."""
        return f"{self.platform_version.partition('  ')[0]}, driver {self.driver_version}"

    def info(self, index: int) -> DeviceInfo:
        """What the back end tells of it."""
        return DeviceInfo(index, f"{self.device} ({self.platform})", self.total_memory, self.versions)


@dataclass(frozen=True, slots=True)
class Survey:
    """What the probe found.  ``failure`` is why there are no devices at all."""

    platforms: tuple[str, ...] = ()
    devices: tuple[Found, ...] = ()
    failure: str = ""


def installed() -> Usability:
    """Whether PyOpenCL can be imported, without importing it."""
    if find_spec("pyopencl") is None:
        return Usability(False, "PyOpenCL is not installed", INSTALL)
    return Usability(True)


@functools.cache
def survey() -> Survey:
    """All devices, tried.  Complexity: a Python process, half a second or two; once."""
    if not sys.executable:
        return Survey(failure="this Python does not know its own executable, so nothing can be tried safely")
    platforms: tuple[str, ...] = ()
    devices: list[Found] = []
    while len(devices) < DEVICES_AT_MOST:
        rows, ending = _run(len(devices))
        begun: dict[str, Any] | None = None
        for row in rows:
            if "failure" in row:
                return Survey(platforms, tuple(devices), row["failure"])
            if "platforms" in row:
                platforms = tuple(f"{name} ({version.partition('  ')[0]})" for name, version in row["platforms"])
            elif "begin" in row:
                begun = {name: value for name, value in row.items() if name != "begin"}
            elif "problem" in row and begun is not None:
                devices.append(Found(**begun, problem=row["problem"]))
                begun = None
            elif "end" in row:
                return Survey(platforms, tuple(devices))
        if begun is None:
            return Survey(platforms, tuple(devices), ending)
        devices.append(Found(**begun, problem=ending))
    return Survey(platforms, tuple(devices))


def _run(passed_over: int) -> tuple[list[dict[str, Any]], str]:
    """The rows that the probe told, and how it ended."""
    probe = str(Path(__file__).with_name("probe.py"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment.pop("PYTHONWARNINGS", None)
    try:
        result = subprocess.run(
            [sys.executable, "-P", "-W", "ignore", probe, str(passed_over)],
            capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False, env=environment,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        told, errors, status = result.stdout, result.stderr, result.returncode
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
    except subprocess.TimeoutExpired as late:
        told, errors, how = _text(late.stdout), _text(late.stderr), f"had not answered after {SECONDS:g} s"
    except OSError as error:
        return [], f"no process could be started to try the devices: {error}"
    rows = []
    for line in told.splitlines():
        if line.startswith("{"):
            try:
                rows.append(json.loads(line))
            except ValueError:  # what a runtime prints
                pass
    last = "; ".join(errors.strip().splitlines()[:3])
    return rows, f"the process that tried it {how}" + (f": {last}" if last else "")


def _text(told: object) -> str:
    return told.decode(errors="replace") if isinstance(told, bytes) else str(told or "")


def working() -> Sequence[Found]:
    """The devices that passed, in the runtime's order."""
    return [] if find_spec("pyopencl") is None else [found for found in survey().devices if not found.problem]


def usability() -> Usability:
    """In words."""
    there = installed()
    if not there.usable:
        return there
    found = survey()
    broken = [each for each in found.devices if each.problem]
    reason = "; ".join(f"{each.device} ({each.platform}) fails: {each.problem}" for each in broken)
    if len(broken) < len(found.devices):
        return Usability(True, reason, _remedy(reason) if reason else "")
    if reason:
        return Usability(False, reason, _remedy(reason))
    if found.failure:
        return Usability(False, f"PyOpenCL does not work: {found.failure}", _remedy(found.failure))
    if found.platforms:
        names = ", ".join(found.platforms)
        is_pocl = "PoCL" in names
        return Usability(False, f"no platform has a device: {names}", GET_A_CACHE if is_pocl else GET_A_RUNTIME)
    return Usability(False, "no OpenCL platform is installed", GET_A_RUNTIME)


def _remedy(problem: str) -> str:
    if '"ld"' in problem or "linker" in problem:
        return GET_A_LINKER
    if "Error: [Errno" in problem:  # PyOpenCL keeps a cache, too
        return GET_A_CACHE
    return GET_A_RUNTIME


def choose(wanted: int | str) -> Found:
    """The device of that index or pattern.  Errors: `BackendError` that lists those there are."""
    devices = working()
    if isinstance(wanted, str):
        for index, found in enumerate(devices):
            if found.info(index).matches(wanted):
                return found
        what = f"no OpenCL device matches {wanted!r}"
    else:
        if not isinstance(wanted, bool) and wanted in range(len(devices)):
            return devices[wanted]
        what = f"there is no OpenCL device {wanted!r}"
    if not devices:
        why = usability()
        raise BackendError(f"{what}: {why.reason}. {why.remedy}")
    listed = "; ".join(
        f"{index}: {each.device} ({each.platform}, {each.versions})" for index, each in enumerate(devices)
    )
    raise BackendError(f"{what}; there are {listed}")
