"""What a call costs, counted instead of timed: the same on any machine, however busy it is."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

__all__ = ["CountedKey", "Operations", "count_operations"]


@dataclass(frozen=True, slots=True)
class Operations:
    """``steps`` are bytecodes, and hashes and comparisons of `CountedKey`; ``nbytes`` is the most allocated at once."""

    steps: int
    nbytes: int


class CountedKey(int):
    """An integer whose hashing and comparing are steps, so that what is built in C cannot go through many unseen."""

    __slots__ = ()
    steps = 0

    def __hash__(self) -> int:
        CountedKey.steps += 1
        return int.__hash__(self)

    def __eq__(self, other: object) -> bool:
        CountedKey.steps += 1
        return int.__eq__(self, other) is True

    def __lt__(self, other: int) -> bool:
        CountedKey.steps += 1
        return int.__lt__(self, other)


def count_operations(fn: Callable[..., object], *args: Any) -> Operations:
    """Call ``fn(*args)`` and count what it does.

    A copy made in C takes no steps, and shows in the bytes.  The collector is off meanwhile.  Errors: what ``fn`` raises.
    Threads: only the calling one is watched.

    >>> def search(keys, key): return key in keys
    >>> def steps(count): return count_operations(search, list(map(CountedKey, range(count))), CountedKey(-1)).steps
    >>> steps(2000) - steps(1000)
    1000
    """
    steps = 0
    own = (CountedKey.__hash__.__code__, CountedKey.__eq__.__code__, CountedKey.__lt__.__code__)

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal steps
        if frame.f_code in own:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        steps += event == "opcode"
        return trace

    previous, collecting = sys.gettrace(), gc.isenabled()
    gc.disable()
    started = not tracemalloc.is_tracing()
    if started:
        tracemalloc.start()
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    counted = CountedKey.steps
    sys.settrace(trace)
    try:
        fn(*args)
    finally:
        sys.settrace(previous)
        _, peak = tracemalloc.get_traced_memory()
        if started:
            tracemalloc.stop()
        if collecting:
            gc.enable()
    return Operations(steps + CountedKey.steps - counted, peak - before)
