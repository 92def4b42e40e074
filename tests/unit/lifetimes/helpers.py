"""What the tests of lifetimes share: a runtime that counts, strikes at every step, scripts in processes of their own."""

from __future__ import annotations

import dis
import gc
import os
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import lifetimes
from lifetimes import Lifetime, locks, reaper
from lifetimes.cell import live
from lifetimes.testing.disturb import lets_others_in

ROOT = Path(lifetimes.__file__).parent
PACKAGE = str(ROOT) + os.sep


class Runtime:
    """Hands out numbered handles and takes them back; the log says in which order."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.made: list[int] = []
        self.task = Task()

    def create(self, *args: Any) -> int:
        handle = 1000 + len(self.made)
        self.made.append(handle)
        return handle

    def free(self, handle: Any) -> None:
        self.log.append(handle)

    def check(self) -> None:
        """Everything that was created is free, each once."""
        freed = Counter(self.log)
        twice = [handle for handle, count in freed.items() if count > 1]
        assert not twice, f"freed twice: {twice}"
        lost = [handle for handle in self.made if handle not in freed]
        assert not lost, f"lost: {lost}"


class Task:
    """Work in flight: a test says when it has finished, or failed."""

    def __init__(self, finished: bool = False, error: BaseException | None = None) -> None:
        self.finished = finished
        self.error = error
        self.asked = 0

    def completed(self) -> bool:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.finished


class Ticket(Task):
    """Work of one stream, which completes in order."""

    def __init__(self, stream: int, sequence: int) -> None:
        super().__init__()
        self.stream_key = stream
        self.sequence = sequence


def check_quiet() -> None:
    """Nothing is torn: every rule of the registry holds, locks are free, and the next drop releases at once."""
    lifetimes.drain()
    reaper.check_invariants()
    assert not locks.held_here()
    log: list[int] = []
    probe = Lifetime(1, log.append, 1)
    del probe
    assert log == [1], f"a drop is not released at once: busy {locks.busy}, collecting {locks.collecting}"


@contextmanager
def unraisable() -> Iterator[list[Any]]:
    """What would have gone to ``sys.unraisablehook`` meanwhile: the exceptions, without the frames that they hold."""
    found: list[Any] = []
    previous = sys.unraisablehook

    def hook(info: Any) -> None:
        error = info.exc_value
        while error is not None:
            error.__traceback__ = None
            error = error.__cause__ or error.__context__
        found.append(info.exc_value)

    sys.unraisablehook = hook
    try:
        yield found
    finally:
        sys.unraisablehook = previous


@contextmanager
def no_collector() -> Iterator[None]:
    """No collection happens by itself."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Strike:
    """Calls ``act`` once, at event number ``step`` of those that happen inside the package.

    An event is a line or a bytecode about to run, or a function entered or left.  With ``signals`` only those count where
    CPython looks for signals: after the entry into a function, a call or a jump back.  ``also`` adds the entry into
    functions elsewhere, which is where a signal strikes a finalizer before its first instruction.
    """

    def __init__(
        self, step: int, act: Callable[[], object], *, also: tuple[Callable[..., Any], ...] = (), signals: bool = False
    ) -> None:
        self.left = step
        self.act = act
        self.codes = {function.__code__ for function in also}
        self.signals = signals
        self.package = PACKAGE
        self.where: tuple[str, int, str] | None = None
        self.last: dict[int, str] = {}  # by id: a frame that is held holds what it held

    def trace(self, frame: FrameType, event: str, arg: object) -> Any:
        inside = frame.f_code.co_filename.startswith(self.package)
        if not inside and (frame.f_code not in self.codes or event != "call"):
            return None
        frame.f_trace_opcodes = inside
        if self.where is None and self.counts(frame, event):
            self.left -= 1
            if self.left < 0:
                self.where = (frame.f_code.co_name, frame.f_lineno, event)
                self.act()
        return self.trace if inside else None

    def counts(self, frame: FrameType, event: str) -> bool:
        if self.signals:
            before = self.last.pop(id(frame), "")
            if event in ("call", "opcode"):
                self.last[id(frame)] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            return event == "opcode" and lets_others_in(before)
        # Where CPython cleans up after a handled exception there is no line.  An exception raised there leaves that one
        # behind as if it were still being handled, with all the frames in its traceback.
        return event != "exception" and frame.f_lineno is not None

    def run(self, function: Callable[..., object], *args: Any) -> None:
        previous = sys.gettrace()
        sys.settrace(self.trace)
        try:
            function(*args)
        finally:
            sys.settrace(previous)


def interrupt() -> None:
    """What Ctrl-C does."""
    raise KeyboardInterrupt


def registered() -> set[int]:
    """The keys of all live cells."""
    return set(live)


PRELUDE = """
import gc, os, sys, threading, time, warnings
import lifetimes
from lifetimes import Lifetime

LOG = os.environ.get("LOG")
def free(*names):
    # Appends to a file, one line each: it is complete however the process ends.
    line = " ".join(map(str, names)) + "\\n"
    if LOG:
        handle = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, line.encode())
        os.close(handle)
def own(name, *parents, **options):
    return Lifetime(name, free, name, label=name, parents=parents, **options)
"""


class Ended:
    """How a script ended: its exit code, what it wrote, and the names that were freed, in order."""

    def __init__(self, code: int, out: str, err: str, freed: list[str]) -> None:
        self.code = code
        self.out = out
        self.err = err
        self.freed = freed

    def __repr__(self) -> str:
        return f"<exit code {self.code}, freed {self.freed}, out {self.out!r}, err {self.err!r}>"


def run_script(
    script: str, folder: Path, *, python: str = sys.executable, timeout: float = 60.0, options: tuple[str, ...] = ()
) -> Ended:
    """Run a script in a process of its own, after `PRELUDE`."""
    path = folder / "script.py"
    path.write_text(PRELUDE + textwrap.dedent(script))
    log = folder / "freed.txt"
    log.write_text("")
    packages = os.pathsep.join([str(ROOT.parent), str(ROOT.parent / "backends")])
    environment = {**os.environ, "LOG": str(log), "PYTHONPATH": packages, "PYTHONFAULTHANDLER": "1"}
    done = subprocess.run(
        [python, *options, str(path)], capture_output=True, text=True, timeout=timeout, env=environment, cwd=folder
    )
    return Ended(done.returncode, done.stdout, done.stderr, log.read_text().split("\n")[:-1])
