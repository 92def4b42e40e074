"""A trace as steps for one manager: which array each use means, and when one has to go because its size changed.

Everything that can be known before is worked out here, so that what is timed is the manager and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, cast

from lifetimes._typing import Mode
from lifetimes.replay.simulate import next_uses
from lifetimes.replay.trace import Trace

__all__ = ["ADD", "FREE", "TOO_LARGE", "USE", "Script", "make_script"]

USE: Final = 0
ADD: Final = 1
FREE: Final = 2
TOO_LARGE: Final = 3


@dataclass(slots=True)
class Script:
    """The steps, as columns.

    Arrays are numbered from 0.  ``steps`` are `USE` of an array that was there before the first step, `ADD` (and use) of a new
    one, `FREE`, or `TOO_LARGE` for the limit; ``release`` is the array that a use replaces, or -1.
    """

    arrays: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    modes: list[Mode] = field(default_factory=list)
    release: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # of each array, in bytes
    next_uses: list[float] = field(default_factory=list)
    replaced: int = 0
    too_large: int = 0

    def existing(self) -> list[int]:
        """The arrays that are there before the first step."""
        return sorted({array for array, step in zip(self.arrays, self.steps, strict=True) if step == USE})


def make_script(trace: Trace, limit: int, default_op: str = "r") -> Script:
    """The steps of a trace under a limit in bytes; ``default_op`` is the mode of uses that say none.

    A key that comes with another size is another array from then on, and the one before it is released.

    >>> trace = Trace("t", keys=[7, 7, 7], sizes=[64, 64, 32])
    >>> script = make_script(trace, 1024)
    >>> script.arrays, script.release, script.sizes, script.replaced
    ([0, 0, 1], [-1, -1, 0], [64, 32], 1)
    """
    script = Script()
    if trace.allocations:
        _allocations(script, trace, limit)
    else:
        _uses(script, trace, limit, default_op)
    return script


def _uses(script: Script, trace: Trace, limit: int, default_op: str) -> None:
    current: dict[int, int] = {}
    script.next_uses = next_uses(trace.keys, trace.sizes)
    for position, (key, nbytes) in enumerate(zip(trace.keys, trace.sizes, strict=True)):
        array = current.get(key, -1)
        replaces = -1
        if array < 0 or script.sizes[array] != nbytes:
            if array >= 0:
                script.replaced += 1
                if script.sizes[array] <= limit:
                    replaces = array
            current[key] = array = len(script.sizes)
            script.sizes.append(nbytes)
        fits = nbytes <= limit
        script.too_large += not fits
        script.arrays.append(array)
        script.steps.append(USE if fits else TOO_LARGE)
        script.modes.append(cast(Mode, trace.ops[position] if trace.ops else default_op))
        script.release.append(replaces)


def _allocations(script: Script, trace: Trace, limit: int) -> None:
    script.arrays = trace.keys
    script.release = [-1] * len(trace)
    script.modes = ["w"] * len(trace)
    script.next_uses = [float("inf")] * len(trace)
    refused: set[int] = set()
    for array, nbytes, op in zip(trace.keys, trace.sizes, trace.ops, strict=True):
        if op == "allocate":
            script.sizes.append(nbytes)
            if nbytes > limit:
                refused.add(array)
                script.too_large += 1
        script.steps.append(TOO_LARGE if array in refused else ADD if op == "allocate" else FREE)
