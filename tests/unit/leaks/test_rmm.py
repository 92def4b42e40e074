"""The log of allocations: what the driver was asked for, in a form that `replay` reads."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import lifetimes
from lifetimes import instrument
from lifetimes.leaks.rmm import HEADER, AllocationLog
from lifetimes.replay.trace import read_trace


def test_every_allocation_of_the_driver_is_logged_and_freed_once(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    with AllocationLog(path), lifetimes.open("sim", memory_limit="64KiB") as device:
        arrays = [device.asarray(np.zeros(1000 + 100 * n)) for n in range(12)]
        for array in arrays:
            device.call(lambda a: None, array, modes="u")
        drivers = device.driver.upstream.counts["allocate"]  # type: ignore[attr-defined]
        stream = device.stream.timeline.key
        arrays.clear()
    lines = [line.split(",") for line in path.read_text().splitlines()]
    assert ",".join(lines[0]) == HEADER
    live: dict[str, str] = {}
    for thread, clock, action, pointer, size, where in lines[1:]:
        assert thread.isdecimal()
        hours, minutes, seconds = clock.split(":")
        assert (len(hours), len(minutes), len(seconds)) == (2, 2, 9)
        assert re.fullmatch("0x[1-9a-f][0-9a-f]*", pointer)
        assert where == hex(stream) or action == "free"
        if action == "allocate":
            assert pointer not in live
            live[pointer] = size
        else:
            assert live.pop(pointer) == size
    assert live == {}
    assert sum(line[2] == "allocate" for line in lines) == drivers
    trace = read_trace(path)
    assert trace.allocations
    assert len(trace) == len(lines) - 1


def test_rows_of_a_write_that_is_interrupted_are_not_lost(tmp_path: Path) -> None:
    """An event may come from a finalizer that interrupts the writer itself."""
    path = tmp_path / "log.csv"
    interruptions: list[int] = []
    with AllocationLog(path) as log:
        write = log._write

        def interrupted() -> None:
            log._writing.append(0)
            interruptions.append(len(interruptions))
            instrument.emit("free", interruptions[-1], address=1, nbytes=1, stream=0)
            log._writing.clear()
            write()

        log._write = interrupted  # type: ignore[method-assign]
        for number in range(2500):
            instrument.emit("allocate", number, address=number, nbytes=1, stream=0)
    text = path.read_text()
    assert len(interruptions) == 3  # of two writes while it listens, and of the last, when it does no longer
    assert (text.count("allocate"), text.count("free")) == (2500, 2)


def test_it_stops_listening(tmp_path: Path) -> None:
    watchers = list(instrument.watchers)
    with pytest.raises(KeyError), AllocationLog(tmp_path / "log.csv"):
        raise KeyError
    assert instrument.watchers == watchers
