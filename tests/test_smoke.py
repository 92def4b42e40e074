"""What the library does, from front to back, on a machine with nothing but a processor.  Read it as an introduction."""

from __future__ import annotations

import numpy as np
import pytest

import lifetimes


def test_a_working_set_larger_than_the_device() -> None:
    with lifetimes.open("host", memory_limit="1MiB", table="judy", policy="lru") as device:
        arrays = [device.asarray(np.full(50_000, float(i)), label=f"chunk {i}") for i in range(16)]
        assert sum(array.nbytes for array in arrays) > 6 * device.statistics().limit

        for array in arrays:  # each comes to the device when it is used, and another one leaves for it
            device.call(lambda a: np.add(a, 1.0, out=a), array, modes="u")
        for i, array in enumerate(arrays):
            assert (array.numpy() == i + 1.0).all()

        statistics = device.statistics()
        assert statistics.evictions >= 10
        assert statistics.peak_bytes <= statistics.limit


def test_pinned_arrays_stay_where_they_are() -> None:
    with lifetimes.open("host", memory_limit="1MiB") as device:
        x, y = device.asarray(np.arange(4.0)), device.empty(4)
        with device.use(read=[x], write=[y]) as (at_x, at_y):
            assert device.manager.owner_of(at_x + 8) == (x.key, 8)
            assert device.manager.owner_of(at_y) == (y.key, 0)
            assert not x.evict()
            with pytest.raises(lifetimes.BusyError, match="in use"):
                device.close()
        assert x.evict()


def test_a_lifetime_of_ones_own() -> None:
    log: list[str] = []
    context = lifetimes.Lifetime(0x1, log.append, "context destroyed", kind="context")
    buffer = lifetimes.Lifetime(0x1000, log.append, "buffer freed", kind="buffer", nbytes=4096, parents=[context])

    del context  # the buffer still needs it
    assert log == []
    with buffer.use() as address:
        assert address == 0x1000
        with pytest.raises(lifetimes.BusyError):
            buffer.close()
    buffer.close()
    assert log == ["buffer freed", "context destroyed"]
    with pytest.raises(lifetimes.ClosedError):
        buffer.use()


def test_who_holds_what() -> None:
    before = {thing.key for thing in lifetimes.live()}
    try:
        with lifetimes.open("host", stacks="line") as device:
            x = device.zeros(1000, label="x")
            (row,) = [thing for thing in lifetimes.live() if thing.label == "x"]
            assert (row.kind, row.nbytes) == ("array", 8000)
            assert row.origin is not None
            assert "test_smoke.py" in row.origin
            assert "test_smoke.py" in lifetimes.report()
            assert x.key == row.key
    finally:
        lifetimes.set_stacks("off")
    assert {thing.key for thing in lifetimes.live()} == before


def test_the_same_program_on_another_back_end() -> None:
    for name in ("host", "sim"):
        with lifetimes.open(name, memory_limit="64KiB") as device:
            x = device.asarray(np.arange(6.0).reshape(2, 3))
            device.call(lambda a: np.negative(a, out=a), x, modes="u")
            assert x[1].numpy().tolist() == [-3.0, -4.0, -5.0]
