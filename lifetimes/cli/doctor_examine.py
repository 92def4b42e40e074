"""Examine one back end: here, or in a process of its own, where a crash of a vendor's library is a result and no crash.

As a program (``python -m lifetimes.cli.doctor_examine NAME``) it writes lines for `examine_apart` to read.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from lifetimes import registry
from lifetimes.cli.doctor_program import try_device, try_driver
from lifetimes.cli.failing import one_line

__all__ = ["BackendReport", "DeviceReport", "Verdict", "examine", "examine_apart"]

Verdict: TypeAlias = Literal["works", "unusable", "fails"]
STEP: Final = "lifetimes-step: "
RESULT: Final = "lifetimes-result: "


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """One device: what the back end says of it, and why it did not pass (empty if it did)."""

    index: int
    name: str
    memory_bytes: int | None = None
    version: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class BackendReport:
    """One back end: the verdict, why, and what would mend it."""

    name: str
    verdict: Verdict
    reason: str = ""
    remedy: str = ""
    devices: tuple[DeviceReport, ...] = ()

    @classmethod
    def from_json(cls, text: str) -> BackendReport:
        """What ``json.dumps(asdict(report))`` came from."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, "devices": tuple(DeviceReport(**device) for device in fields["devices"])})


def examine(name: str, step: Callable[[str], None] = lambda _: None) -> BackendReport:
    """Try every device of a back end in this process.  Whatever it raises is in the report.

    >>> examine("host").verdict
    'works'
    """
    try:
        step("load the back end")
        backend = registry.find(name)
        step("ask whether it is usable")
        usable = backend.usability()
        if not usable.usable:
            return BackendReport(name, "unusable", usable.reason, usable.remedy)
        step("list its devices")
        devices = [DeviceReport(each.index, each.name, each.total_memory, each.version) for each in backend.devices()]
    except Exception as error:
        return BackendReport(name, "fails", one_line(error))
    if not devices:
        return BackendReport(name, "unusable", "it is installed and has no device")
    examined = []
    for device in devices:
        doing = [""]

        def note(what: str, doing: list[str] = doing, device: DeviceReport = device) -> None:
            doing[0] = what
            step(f"{what} (device {device.index})")

        try:
            note("open the driver")
            driver = backend.open(device.index)
            try:
                try_driver(driver, note)
            finally:
                driver.close()
            try_device(backend, device.index, note)
        except Exception as error:
            device = replace(device, problem=f"{doing[0]}: {one_line(error)}" if doing[0] else one_line(error))
        examined.append(device)
    failed = [device for device in examined if device.problem]
    if not failed:
        return BackendReport(name, "works", devices=tuple(examined))
    reason = f"device {failed[0].index}: {failed[0].problem}"
    if len(failed) < len(examined):
        works = ", ".join(str(device.index) for device in examined if not device.problem)
        return BackendReport(name, "works", f"{reason}; the others work", f"use index {works}", tuple(examined))
    return BackendReport(name, "fails", reason, devices=tuple(examined))


def examine_apart(name: str, seconds: float) -> BackendReport:
    """`examine` in a process of its own, ended after ``seconds``.

    A back end that was registered while the program ran is not known there and is examined here.
    """
    with (
        tempfile.TemporaryFile("w+", errors="replace") as said,
        tempfile.TemporaryFile("w+", errors="replace") as cried,
    ):
        # Files and not pipes: what a vendor's library leaves running may hold a pipe open for ever.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, name],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=cried,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(seconds)
        except BaseException as error:  # Ctrl-C does not reach it: it leads a session of its own
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # whatever it started, too
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            status = None
        said.seek(0)
        cried.seek(0)
        lines, errors = said.read().splitlines(), cried.read().split("\n")
    results = [line.removeprefix(RESULT) for line in lines if line.startswith(RESULT)]
    if results and status == 0:
        return BackendReport.from_json(results[-1]) if results[-1] else examine(name)
    steps = [line.removeprefix(STEP) for line in lines if line.startswith(STEP)]
    doing = f" while it tried to {steps[-1]}" if steps else ""
    last = next((line.strip() for line in reversed(errors) if line.strip()), "")
    if status is None:
        how = f"did not answer within {seconds:g} s"
    elif status < 0:
        how = f"crashed the process ({signal.Signals(-status).name})"
    else:
        how = f"ended the process with status {status}"
    return BackendReport(name, "fails", f"{how}{doing}{f': {last}' if last else ''}")


def main(name: str) -> None:
    """The other process."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash here is expected and leaves nothing behind
    out = os.fdopen(os.dup(1), "w")  # whatever a library does to stdout

    def step(what: str) -> None:
        print(f"\n{STEP}{what}" if what else "", file=out, flush=True)

    known = name in registry.names()
    result = json.dumps(asdict(examine(name, step))) if known else ""
    print(f"\n{RESULT}{result}", file=out, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
