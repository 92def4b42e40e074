"""Doing what a trace says, through a manager, on a device: what hits, what moves, and how long it takes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

import numpy as np

from lifetimes import opening, policies
from lifetimes.manager import Manager
from lifetimes.policies.belady import BeladyPolicy
from lifetimes.policies.protocol import Policy
from lifetimes.replay.content import STAMP, Content
from lifetimes.replay.null import NullDriver
from lifetimes.replay.script import ADD, FREE, TOO_LARGE, USE, Script, make_script
from lifetimes.replay.trace import Trace

__all__ = ["Played", "play"]

CHUNK: Final = 8192
"""Steps between two looks at the progress, which are not timed."""


@dataclass(frozen=True, slots=True)
class Played:
    """What one replay came to.  Bytes are those of the arrays; times in seconds."""

    backend: str
    table: str
    policy: str
    limit: int
    uses: int
    hits: int
    misses: int
    evictions: int
    replaced: int
    too_large: int
    uploads: int
    upload_bytes: int
    copybacks: int
    copyback_bytes: int
    peak_bytes: int
    seconds: float
    lookup_seconds: float
    """For one look-up in the table, measured afterwards by the same look-ups in the same order."""
    checked: int
    """Arrays whose content was compared; 0 on a device that moves nothing."""
    wrong: int
    """How many of them did not hold what they should."""

    @property
    def miss_ratio(self) -> float:
        """Misses to uses."""
        return self.misses / self.uses if self.uses else 0.0

    @property
    def seconds_per_use(self) -> float:
        """Of everything that was timed, divided by the steps."""
        return self.seconds / self.uses if self.uses else 0.0

    @property
    def lookup_share(self) -> float:
        """The part of the time that went into look-ups."""
        return self.lookup_seconds / self.seconds_per_use if self.uses else 0.0


def play(
    trace: Trace,
    *,
    backend: str = "host",
    table: Any = "dict",
    policy: Any = "lru",
    limit: int,
    default_op: str = "r",
    check: bool = True,
    progress: Callable[[int], object] | None = None,
    clock: Callable[[], float] = perf_counter,
) -> Played:
    """Replay a trace on a device opened for it, whose memory is limited to ``limit`` bytes.

    Arrays that the trace uses exist on the host when the clock starts, and are brought to the device by their uses; a use
    that writes puts other bytes there.  Allocations are arrays that come, are written, and go.  The clock stops while
    ``progress`` is told how many steps were done, and before the content is compared.  ``clock`` may be
    ``time.process_time``, on a machine that is busy otherwise.

    Errors: those of `lifetimes.open` and of `Manager.use`.

    >>> trace = Trace("t", keys=[1, 2, 3, 1], sizes=[4096] * 4)
    >>> played = play(trace, backend="null", limit=8192)
    >>> played.hits, played.misses, played.evictions
    (0, 4, 2)
    """
    script = make_script(trace, limit, default_op)
    driver: Any = NullDriver() if backend == "null" else backend
    chosen = policies.make(policy)
    with opening.open(driver, memory_limit=limit, table=table, policy=chosen) as device:
        player = _Player(device.manager, script, chosen, clock)
        seconds = player.run(progress)
        counts = device.statistics()
        lookup = player.lookup_seconds()
        checked, wrong = player.check() if check and backend != "null" else (0, 0)
        player.end()
    return Played(
        backend=backend,
        table=str(table),
        policy=str(policy),
        limit=limit,
        uses=len(script.steps),
        hits=counts.hits,
        misses=counts.misses + script.too_large,
        evictions=counts.evictions,
        replaced=script.replaced,
        too_large=script.too_large,
        uploads=counts.uploads,
        upload_bytes=counts.upload_bytes,
        copybacks=counts.copybacks,
        copyback_bytes=counts.copyback_bytes,
        peak_bytes=counts.peak_bytes,
        seconds=seconds,
        lookup_seconds=lookup,
        checked=checked,
        wrong=wrong,
    )


class _Player:
    """The steps of a script, done with one manager."""

    def __init__(self, manager: Manager, script: Script, policy: Policy, clock: Callable[[], float]) -> None:
        self.manager = manager
        self.clock = clock
        self.script = script
        self.belady = policy if isinstance(policy, BeladyPolicy) else None
        self.content = Content(max(script.sizes))
        self.keys = [-1] * len(script.sizes)  # of each array, while it is managed
        self.written: dict[int, int] = {}  # array -> number of the content it was last overwritten with
        self.stamped: dict[int, int] = {}  # array -> stamp since then
        for array in script.existing():
            self.keys[array] = manager.add(self.content.of(array, script.sizes[array]), copy=False)

    def run(self, progress: Callable[[int], object] | None) -> float:
        """Do all steps.  Returns the seconds that they took."""
        script, stream, clock = self.script, self.manager.stream, self.clock
        plain = self.belady is None and set(script.steps) <= {USE, TOO_LARGE} and set(script.modes) == {"r"}
        do = self.read if plain else self.step
        seconds = 0.0
        collecting = gc.isenabled()
        gc.collect()
        gc.disable()  # the steps make no cycles, and a collection would be of what stands around them
        try:
            for start in range(0, len(script.steps), CHUNK):
                positions = range(start, min(start + CHUNK, len(script.steps)))
                began = clock()
                do(positions)
                if positions.stop == len(script.steps):
                    stream.wait(stream.issued)
                seconds += clock() - began
                if progress is not None:
                    progress(positions.stop)
        finally:
            if collecting:
                gc.enable()
        return seconds

    def read(self, positions: range) -> None:
        """Steps that are all uses for reading."""
        script, keys = self.script, self.keys
        use, release = self.manager.use, self.manager.release
        window = slice(positions.start, positions.stop)
        for array, step, replaced in zip(
            script.arrays[window], script.steps[window], script.release[window], strict=True
        ):
            if replaced >= 0:
                release(keys[replaced])
                keys[replaced] = -1
            if step == USE:
                with use(keys[array]):
                    pass

    def step(self, positions: Iterable[int]) -> None:
        """Any steps."""
        script, keys, manager = self.script, self.keys, self.manager
        for position in positions:
            step = script.steps[position]
            array = script.arrays[position]
            if self.belady is not None:
                self.belady.next_use = script.next_uses[position]
            replaced = script.release[position]
            if replaced >= 0:
                manager.release(keys[replaced])
                keys[replaced] = -1
            if step == TOO_LARGE:
                continue
            if step == FREE:
                manager.release(keys[array])
                keys[array] = -1
                continue
            if step == ADD:
                keys[array] = manager.add(script.sizes[array])
            mode = script.modes[position]
            with manager.use(keys[array], mode) as address:
                if mode != "r":
                    self.write(array, address, position, whole=mode == "w")

    def write(self, array: int, address: int, number: int, whole: bool) -> None:
        """In a use: overwrite all of the array with the content of that number, or its front with a stamp."""
        nbytes = self.script.sizes[array]
        if not nbytes:
            return
        if whole:
            source = self.content.of(number, nbytes)
            self.written[array] = number
            self.stamped.pop(array, None)
        else:
            source = self.content.stamp(number, nbytes)
            self.stamped[array] = number
        self.manager.driver.copy_in(address, source, self.manager.stream.handle)

    def lookup_seconds(self) -> float:
        """Of one look-up in the table, on average over the steps."""
        get, clock = self.manager.table.get, self.clock
        keys = [self.keys[array] for array in self.script.arrays if self.keys[array] >= 0]
        if not keys:
            return 0.0
        least = float("inf")
        for _ in range(3):  # others may have the core meanwhile
            began = clock()
            for key in keys:
                get(key)
            looked = clock()
            for _ in keys:
                pass
            least = min(least, (looked - began) - (clock() - looked))
        return max(0.0, least) / len(keys)

    def check(self) -> tuple[int, int]:
        """Compare what is on the device, and what was written, with what it should be.  Returns how many, and how many not."""
        checked = wrong = 0
        stream = self.manager.stream
        for array, key in enumerate(self.keys):
            if key < 0:
                continue
            entry = self.manager.table.get(key)
            if entry is None or (entry.block is None and array not in self.written and array not in self.stamped):
                continue  # it never left the host, or was dropped without a change
            nbytes = self.script.sizes[array]
            found = np.empty(nbytes, np.uint8)
            if nbytes:
                with self.manager.use(key) as address:
                    self.manager.driver.copy_out(found, address, stream.handle)
                stream.wait(stream.issued)
            expected = self.content.of(self.written.get(array, array), nbytes).copy()
            if array in self.stamped:
                expected[:STAMP] = self.content.stamp(self.stamped[array], nbytes)
            checked += 1
            wrong += not np.array_equal(found, expected)
        return checked, wrong

    def end(self) -> None:
        """Release what is left."""
        for key in self.keys:
            if key >= 0:
                self.manager.release(key)
