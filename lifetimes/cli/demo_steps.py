"""The demo from its options to its outcome: look at the input, open, load, compute, check, find the leak, close."""

from __future__ import annotations

import argparse
import time
from typing import Final

import lifetimes
from lifetimes import Device, policies, registry, tables
from lifetimes.backend import DeviceInfo, SupportsHostCall
from lifetimes.cli.demo_check import compare, reference
from lifetimes.cli.demo_data import FileSource, GeneratedSource, Source, check_content
from lifetimes.cli.demo_leak import find_leaks, forget, preview
from lifetimes.cli.demo_outcome import Outcome
from lifetimes.cli.demo_plan import DEFAULT_LIMIT, Plan, default_limit, plan, size_of_generated
from lifetimes.cli.demo_progress import ProgressBar
from lifetimes.cli.demo_work import Steps, Watch, compute, load
from lifetimes.cli.failing import InputError, bad_input
from lifetimes.cli.parser import nearest
from lifetimes.opening import find_device
from lifetimes.origins import get_stacks, set_stacks
from lifetimes.sizes import format_bytes, parse_limit

__all__ = ["carry_out", "prepare"]

UNKNOWN: Final = 1 << 62
"""Bytes of a device that does not tell."""


def carry_out(arguments: argparse.Namespace) -> Outcome:
    """Everything but the printing.  Errors: `InputError`; what the library raises.  Nothing stays open in any case."""
    source, cut = prepare(arguments)
    alive = {thing.key for thing in lifetimes.live()}
    stacks = get_stacks()
    options = {name: getattr(arguments, name) for name in ("backend", "table", "policy")}
    outcome = Outcome(options, cut, source.what)
    try:
        with ProgressBar(quiet=arguments.quiet) as watch:
            if isinstance(source, FileSource):
                check_content(source, cut, watch.each(cut.starts, "look for NaNs"))
            with open_device(arguments, cut.limit) as device:
                work(device, source, outcome, watch)
    finally:
        forget()
        set_stacks(stacks)
    lifetimes.drain()
    at_the_end = lifetimes.live()
    outcome.alive = len(at_the_end)
    outcome.left = [thing for thing in at_the_end if thing.key not in alive]
    return outcome


def prepare(arguments: argparse.Namespace) -> tuple[Source, Plan]:
    """The data and how they are cut.  Errors: `InputError`, before anything is opened."""
    with bad_input("--table"):
        tables.make(arguments.table)
    with bad_input("--policy"):
        policies.make(arguments.policy)
    info = find_info(arguments.backend, arguments.device)
    arguments.device, total = info.index, info.total_memory
    most = UNKNOWN if total is None else total
    limit = None
    if arguments.limit is not None:
        if total is None and arguments.limit.strip().endswith("%"):
            raise InputError(f"--limit: {arguments.limit!r} of what? The device does not tell its memory; give bytes")
        with bad_input():
            limit = parse_limit(arguments.limit, most, "--limit")
    if arguments.data is None:
        limit = min(DEFAULT_LIMIT, most) if limit is None else limit
        rows, columns = size_of_generated(limit)
        cut = plan(limit, rows, columns, "the generated matrix")
        source: Source = GeneratedSource(columns)
    else:
        source = FileSource(arguments.data)
        limit = min(default_limit(source.rows, source.columns), most) if limit is None else limit
        cut = plan(limit, source.rows, source.columns, repr(arguments.data))
    refuse_too_much(cut)
    return source, cut


def find_info(name: str, wanted: str) -> DeviceInfo:
    """The device of that number, or whose name it occurs in.

    Errors: `InputError` for an unknown back end or device, `BackendError` for an unusable one.
    """
    names = registry.names()
    if name not in names:
        hint = nearest(name, names)
        raise InputError(f"--backend: no back end is called {name!r}{hint}; there are {', '.join(names)}")
    backend = registry.find(name)
    usable = backend.usability()
    if not usable.usable:
        why = f"{usable.reason}. {usable.remedy}".strip(". ")
        raise lifetimes.BackendError(f"--backend: {name!r} cannot be used here: {why}")
    devices = {device.index: device for device in backend.devices()}
    if not wanted.lstrip("-").isdecimal():
        try:
            return devices[find_device(backend, wanted)]
        except lifetimes.BackendError as error:
            raise InputError(f"--device: {error}") from error
    if int(wanted) not in devices:
        there_are = ", ".join(map(str, devices)) or "none"
        raise InputError(f"--device: the back end {name!r} has no device {wanted}; there are: {there_are}")
    return devices[int(wanted)]


def refuse_too_much(cut: Plan) -> None:
    """What is not on the device is on the host.  Errors: `InputError` when it cannot all be there."""
    [host] = registry.find("host").devices()
    wanted = cut.data_bytes + cut.limit
    if host.total_memory is not None and wanted > host.total_memory:
        raise InputError(
            f"the data take {format_bytes(cut.data_bytes)} as float64, and what is not on the device is kept on the host; "
            f"together with the limit of {format_bytes(cut.limit)} that is more than the {format_bytes(host.total_memory)} "
            "that this process should use; give a smaller --limit or a smaller matrix"
        )


def open_device(arguments: argparse.Namespace, limit: int) -> Device:
    """The device.  Errors: `InputError` when it refuses the limit, or when Python functions cannot run on it."""
    try:
        device = lifetimes.open(
            arguments.backend,
            arguments.device,
            memory_limit=limit,
            table=arguments.table,
            policy=arguments.policy,
            stacks="line",
        )
    except ValueError as error:
        raise InputError(str(error)) from error
    if not isinstance(device.driver, SupportsHostCall):
        device.close()
        raise InputError(
            f"--backend: the demo runs Python functions on device memory, which {arguments.backend!r} does not show to the "
            "host; use host"
        )
    return device


def work(device: Device, source: Source, outcome: Outcome, watch: Watch) -> None:
    """Compute, check, and look for the leak; the clock runs for each."""
    started = time.perf_counter()

    def lap(what: str) -> None:
        nonlocal started
        now = time.perf_counter()
        outcome.seconds[what], started = now - started, now

    cut = outcome.plan
    data = load(device, source, cut, watch)
    lap("load")
    steps = Steps(device)
    outcome.why_not_compiled = steps.why
    outcome.results = results = compute(data, steps, watch)
    outcome.statistics = device.statistics()
    outcome.passes = dict(data.passes)
    lap("work")
    outcome.errors = compare(results, reference(source, cut, watch), source.settles)
    lap("check")
    rows = source.read(0, cut.stop(0))
    outcome.leaks = find_leaks(lambda: preview(device, rows))
    forget()
    alive = {thing.key for thing in lifetimes.live()}
    outcome.mended = not any(leak.thing.key in alive for leak in outcome.leaks)
    lap("leak")
