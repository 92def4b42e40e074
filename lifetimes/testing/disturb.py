"""Run a call and let something happen at one chosen step of it: an interrupt, a finalizer, another thread's work.

A signal handler, a finalizer or a profiler may run Python code in the middle of any other Python code.  Trying every
step in turn, with no luck and no waiting involved, shows what a call leaves behind when that happens.
"""

from __future__ import annotations

import dis
import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["interrupt", "run_disturbed"]


def run_disturbed(
    fn: Callable[..., object], *args: Any, step: int, act: Callable[[], object], after_calls: bool = False
) -> bool:
    """Call ``fn(*args)`` and ``act()`` once, before the bytecode number ``step`` of all that run inside the call.

    With ``after_calls`` only those bytecodes count at which CPython lets a signal handler or, since 3.12, the collector
    in: the start of a function, after a call, after a jump back.  What is built in C is one step.

    Returns whether there were so many steps: a loop over ``step`` ends at the first False.  The collector is off
    during the call, so that a number means the same step each time.  Errors: what ``fn`` and ``act`` raise.  Threads:
    only the calling one is watched.

    >>> def add(numbers): numbers.append(1); numbers.append(2)
    >>> left = []
    >>> for step in range(100):
    ...     numbers = []
    ...     try:
    ...         if not run_disturbed(add, numbers, step=step, act=interrupt, after_calls=True): break
    ...     except KeyboardInterrupt:
    ...         left.append(len(numbers))
    >>> left, numbers
    ([0, 1, 2], [1, 2])
    """
    acted = False
    left = step
    last: dict[FrameType, str] = {}

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal acted, left
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and not acted:
            before = last.get(frame, "RESUME")  # which has no event of its own where it starts the function
            last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if not after_calls or lets_others_in(before):
                if not left:
                    acted = True
                    act()
                left -= 1
        return trace

    previous, collecting = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(trace)
    try:
        fn(*args)
    finally:
        sys.settrace(previous)
        if collecting:
            gc.enable()
    return acted


def lets_others_in(opcode: str) -> bool:
    """Whether CPython looks for pending signals after this bytecode."""
    return opcode in ("RESUME", "JUMP_BACKWARD") or (opcode.startswith("CALL") and "INTRINSIC" not in opcode)


def interrupt() -> None:
    """What Ctrl-C does."""
    raise KeyboardInterrupt
