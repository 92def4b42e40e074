"""What it costs to know where things were made: off, a line, sixteen calls; and how long snapshots and pages take."""

from __future__ import annotations

import inspect
import shutil
import subprocess
import textwrap
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.harness import Compare
from bench.measure import Loop
from lifetimes import Lifetime, instrument, reaper, set_stacks, snapshot
from lifetimes.leaks import History, Report, collect
from lifetimes.leaks.page import as_html
from lifetimes.origins import Level

HANDLE = 4096
DEPTH = 16
"""Calls of a stack; the loops below run that deep, so that there are as many."""
MANY = 1_000_000
EVENTS = 100_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def release(handle: int) -> None:
    pass


def unrecorded(rounds: Iterator[None]) -> None:
    for _ in rounds:
        Lifetime(HANDLE, release, HANDLE)


def deep(function: Callable[[Iterator[None]], object], depth: int = DEPTH) -> Loop:
    """The loop below so many calls."""

    def call(rounds: Iterator[None], left: int = depth) -> object:
        return call(rounds, left - 1) if left else function(rounds)

    call.__name__ = function.__name__
    return call


def recording(level: Level, name: str) -> Loop:
    """The loop with something recorded."""

    def loop(rounds: Iterator[None]) -> None:
        set_stacks(level, DEPTH)
        try:
            for _ in rounds:
                Lifetime(HANDLE, release, HANDLE)
        finally:
            set_stacks("off")

    loop.__name__ = name
    return loop


def without_question(function: Any) -> str:
    """The source of a function without its question whether somebody watches, and what it does then."""
    lines = textwrap.dedent(inspect.getsource(function)).splitlines()
    at = next(number for number, line in enumerate(lines) if line.strip().startswith("if instrument."))
    return "\n".join(lines[:at] + lines[at + 2 :])


def copy_of_lifetime(asks: bool) -> Any:
    """A class like `Lifetime`, with code of its own that asks whether somebody watches, or never does.

    Copied are the constructor, the drop and the release with whatever is between them.
    """
    drops = dict(vars(reaper))
    for name, value in vars(reaper).items():
        if inspect.isfunction(value) and value.__module__ == reaper.__name__:
            source = (
                without_question(value) if name == "release" and not asks else textwrap.dedent(inspect.getsource(value))
            )
            exec(compile("from __future__ import annotations\n" + source, "copy", "exec"), drops)
    makes = dict(vars(inspect.getmodule(Lifetime)))
    source = without_question(Lifetime.__init__) if not asks else textwrap.dedent(inspect.getsource(Lifetime.__init__))
    exec(compile("from __future__ import annotations\n" + source, "copy", "exec"), makes)
    slots = {*Lifetime.__slots__, "__dict__"}
    members = {name: value for name, value in vars(Lifetime).items() if name not in slots}
    members |= {"__init__": makes["__init__"], "__del__": drops["drop"]}
    makes["Lifetime"] = made = type("Lifetime", Lifetime.__bases__, members)
    return made


def bench_off(compare: Compare) -> None:
    """Lifetime with nobody watching, against one that never asks"""
    asks, never_asks = copy_of_lifetime(True), copy_of_lifetime(False)

    def nobody_watches(rounds: Iterator[None]) -> None:
        for _ in rounds:
            asks(HANDLE, release, HANDLE)

    def without_the_question(rounds: Iterator[None]) -> None:
        for _ in rounds:
            never_asks(HANDLE, release, HANDLE)

    assert not instrument.watchers
    compare(nobody_watches, without_the_question, bar=1.03)


def bench_line(compare: Compare) -> None:
    """Lifetime with its line recorded"""
    compare(deep(recording("line", "line")), deep(unrecorded), bar=1.5)


def bench_stack(compare: Compare) -> None:
    """Lifetime with 16 calls recorded"""
    compare(deep(recording("full", "sixteen_calls")), deep(unrecorded), bar=5.0)


def bench_stack_and_tracemalloc(compare: Compare) -> None:
    """Lifetime with 16 calls recorded, against tracemalloc with 16"""

    def tracemalloc_16(rounds: Iterator[None]) -> None:
        tracemalloc.start(DEPTH)
        try:
            for _ in rounds:
                Lifetime(HANDLE, release, HANDLE)
        finally:
            tracemalloc.stop()

    compare(deep(recording("full", "sixteen_calls")), deep(tracemalloc_16), bar=1.0)


def bench_history(compare: Compare) -> None:
    """Lifetime with bytes over time recorded"""

    def history(rounds: Iterator[None]) -> None:
        with History():
            for _ in rounds:
                Lifetime(HANDLE, release, HANDLE)

    compare(history, unrecorded)


def bench_snapshot(compare: Compare) -> None:
    """a snapshot of 1,000,000 live things, with lines"""
    set_stacks("line")
    try:
        kept = [Lifetime(number, kind="buffer", nbytes=64, label="x") for number in range(MANY)]

        def snapshots(rounds: Iterator[None]) -> None:
            for _ in rounds:
                snapshot()

        compare(snapshots, limit=2.0)
        del kept
    finally:
        set_stacks("off")


def report_of_events() -> Report:
    """What a program has left that made and released things of some kinds, sizes and labels from some lines."""
    set_stacks("full")
    try:
        with History() as history:
            kept = [
                Lifetime(number, kind=f"kind {number % 5}", nbytes=number % 97 * 64, label=f"chunk {number % 300}")
                for number in range(100)
            ]
            for number in range(EVENTS // 2):
                at = number * 31 % len(kept)
                kept[at] = Lifetime(number, kind=f"kind {at % 5}", nbytes=at % 97 * 64, label=f"chunk {at % 300}")
        return collect([], history=history)
    finally:
        set_stacks("off")


def bench_page(compare: Compare) -> None:
    """a page of 100,000 events, under 3 MB, made"""
    report = report_of_events()
    assert report.recording is not None
    assert len(report.recording.events) >= EVENTS

    def pages(rounds: Iterator[None]) -> None:
        for _ in rounds:
            assert len(as_html(report).encode()) < 3_000_000

    compare(pages, limit=2.0)


def bench_page_opens(compare: Compare, tmp_path: Path) -> None:
    """a page of 100,000 events opened by a browser that is started for it"""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("there is no Chromium on the PATH")
    large, empty = tmp_path / "large.html", tmp_path / "empty.html"
    large.write_text(as_html(report_of_events()), encoding="utf-8")
    empty.write_text("<!doctype html><title>empty</title>", encoding="utf-8")

    def show(page: Path) -> None:
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
        subprocess.run([browser, *options, "--dump-dom", page.as_uri()], capture_output=True, timeout=60, check=True)

    def opens(rounds: Iterator[None]) -> None:
        for _ in rounds:
            show(large)

    def empty_page(rounds: Iterator[None]) -> None:
        for _ in rounds:
            show(empty)

    compare(opens, empty_page, limit=2.0)
