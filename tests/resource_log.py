"""What was released in which order: by the library's own events, and by the log of a simulated driver."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np

import lifetimes
from lifetimes import instrument
from lifetimes.testing.sim import SimDriver, current_context

SOURCE = """
def double(source, target):
    target.view('f8')[:] = 2 * source.view('f8')[: target.size // 8]

def nothing():
    pass
"""
KINDS = ("context", "stream", "event", "module", "kernel", "array", "view")
PAIRS = {"create_stream": "destroy_stream", "create_event": "destroy_event", "load": "unload", "allocate": "free"}


class ReleaseLog:
    """Hears what is made and released while it listens.

    >>> log = ReleaseLog()
    >>> with log:
    ...     parent = lifetimes.Lifetime("p"); child = lifetimes.Lifetime("c", parents=[parent])
    ...     del parent, child
    >>> len(log.released), log.problems()
    (2, [])
    """

    def __init__(self) -> None:
        self.parents: dict[int, tuple[int, ...]] = {}
        self.kinds: dict[int, str] = {}
        self.released: list[int] = []

    def __call__(self, name: str, key: int, details: dict[str, Any]) -> None:
        if name == "create":
            cell = details["cell"]
            self.parents[key] = tuple(parent.key for parent in cell.parents)
            self.kinds[key] = cell.kind
        elif name == "release" and key in self.parents:
            self.released.append(key)

    def __enter__(self) -> ReleaseLog:
        instrument.subscribe(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        instrument.unsubscribe(self)

    def problems(self) -> list[str]:
        """What is not a reverse topological order of everything that was made, each once."""
        at = {key: place for place, key in enumerate(self.released)}
        found = [f"{self.kinds[key]} #{key} was never released" for key in self.parents if key not in at]
        if len(at) != len(self.released):
            found.append(f"released twice: {sorted(key for key in at if self.released.count(key) > 1)}")
        for key, parents in self.parents.items():
            for parent in parents:
                if key in at and parent in at and at[parent] < at[key]:
                    found.append(f"{self.kinds[parent]} #{parent} went before its child {self.kinds[key]} #{key}")
        return found


class Watched:
    """A simulated driver, and what was still there when it was closed."""

    def __init__(self, **options: Any) -> None:
        driver = SimDriver(**options)
        self.driver: Any = driver  # with contexts it has more than a SimDriver
        self.closes = 0
        self.left: list[object] = []
        self.shared = False  # true: others destroy streams of their own meanwhile
        close = driver.close

        def closing() -> None:
            self.closes += 1
            if not driver._closed:
                there = (driver.live_modules, list(driver.live_blocks), driver.live_streams, driver.live_events)
                self.left += [handle for handles in there for handle in handles]
            close()

        driver.close = closing  # type: ignore[method-assign]

    def problems(self) -> list[str]:
        """Broken rules of the protocol, handles that were not given back once and in time, contexts not restored."""
        found = list(self.driver.violations)
        if self.closes != 1:
            found.append(f"the driver was closed {self.closes} times")
        if self.left:
            found.append(f"given back by nobody before the driver was closed: {self.left}")
        if current_context():
            found.append(f"the context {current_context():#x} was left current")
        live: set[tuple[str, object]] = set()
        last_use = first_end = None
        for place, (kind, detail) in enumerate(self.driver.log):
            if kind in PAIRS:
                handle = detail[0] if isinstance(detail, tuple) else detail
                live.add((PAIRS[kind], handle))
            elif kind in PAIRS.values():
                if (kind, detail) not in live:
                    found.append(f"{kind} of {detail!r}, which there is not")
                live.discard((kind, detail))
            if kind in ("unload", "free"):
                last_use = place
            if kind == "destroy_stream" and first_end is None:
                first_end = place
        if live:
            found.append(f"never given back: {sorted(map(str, live))}")
        if not self.shared and last_use is not None and first_end is not None and first_end < last_use:
            found.append("a stream was destroyed before the last memory and code")
        return found


def one_of_each(driver: Any, work: str = "launch", **options: Any) -> dict[str, Any]:
    """A device and one resource of each kind.  ``work``: what is in flight on the stream; "launch", "call" or "nothing"."""
    device = lifetimes.open(driver, **options)
    stream = device.create_stream()
    array = device.asarray(np.arange(8.0))
    view = array[1:5]
    module = device.compile(SOURCE)
    kernel = module["double"]
    if work == "launch":
        kernel.launch(view, array[4:], size=4, modes="rw", stream=stream)
    if work == "call":
        device.call(lambda seen: None, array, modes="r", stream=stream)
    event = stream.record()
    return {"context": device, "stream": stream, "event": event, "module": module, "kernel": kernel, "array": array,
            "view": view}  # fmt: skip


def settled(driver: Any, collect: bool = False) -> None:
    """Finish all work, then release whatever is ready."""
    if not driver._closed:
        driver.run_until_idle()
    if collect:
        gc.collect()
    lifetimes.drain()


def finished(watched: Watched) -> list[str]:
    """The problems of a driver that everybody is done with; a collection, which is slow, only if it is needed."""
    settled(watched.driver)
    if watched.problems():
        settled(watched.driver, collect=True)
    return watched.problems()


def content(driver: Any, array: Any) -> Any:
    """What is in an array of a driver that otherwise never waits."""
    manual, driver.manual = driver.manual, False
    try:
        return array.numpy()
    finally:
        driver.manual = manual


def interrupt_outside() -> None:
    """Ctrl-C, unless it would strike inside the driver or a container, which are in C where it matters.

    Nor at the very entry of an ``__exit__`` that is written in Python, where nothing can catch it, nor in the constructor
    of a lifetime, which has tests of its own.
    """
    frame: Any = sys._getframe(2)
    if frame.f_code.co_name == "__exit__" and frame.f_lasti < 8:
        return
    while frame is not None:
        if frame.f_code is lifetimes.Lifetime.__init__.__code__:
            return
        if any(part in frame.f_code.co_filename for part in ("testing/sim", "testing/faults", "sortedcontainers")):
            return
        frame = frame.f_back
    raise KeyboardInterrupt
