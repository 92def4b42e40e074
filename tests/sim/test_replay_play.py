"""A replay through the manager: what it counts, what it moves, and that it would notice content gone wrong."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import lifetimes
from lifetimes import OutOfMemory, opening, policies, tables
from lifetimes.replay import play as play_module
from lifetimes.replay.null import NullDriver
from lifetimes.replay.play import play
from lifetimes.replay.simulate import simulate
from lifetimes.replay.trace import Trace
from lifetimes.testing.sim import SimDriver

LIMIT = 1 << 16


def uses(count: int, seed: int = 1, *, ops: bool = False, changes: bool = False) -> Trace:
    random = Random(seed)
    keys = [int(random.triangular(0, 60, 0)) for _ in range(count)]
    size = {key: 1024 << random.randrange(3) for key in range(61)}
    sizes = [size[key] << (changes and random.random() < 0.1) for key in keys]
    return Trace("made", keys=keys, sizes=sizes, ops=random.choices(["r", "w", "rw"], k=count) if ops else [])


def allocations(count: int) -> Trace:
    random = Random(3)
    trace = Trace("made", allocations=True)
    live: list[tuple[int, int]] = []
    for key in range(count):
        live.append((key, 512 << random.randrange(5)))
        trace.keys.append(key)
        trace.sizes.append(live[-1][1])
        trace.ops.append("allocate")
        while len(live) > 40:
            gone, nbytes = live.pop(random.randrange(len(live)))
            trace.keys.append(gone)
            trace.sizes.append(nbytes)
            trace.ops.append("free")
    return trace


@pytest.mark.parametrize("name", policies.names())
def test_the_manager_misses_what_the_policy_alone_misses(name: str) -> None:
    """The sizes are those of the pool's classes, and no work is in flight, so both have the same room."""
    trace = uses(2000)
    played = play(trace, backend="null", policy=name, limit=LIMIT)
    alone = simulate(policies.make(name), trace.keys, trace.sizes, LIMIT)
    assert played.hits + played.misses == played.uses == 2000
    assert played.evictions > 100
    assert abs(played.misses - alone.misses) <= 2000 // 50
    assert played.peak_bytes <= LIMIT


@pytest.mark.parametrize("table", tables.names())
@pytest.mark.parametrize("changes", [False, True])
def test_what_is_written_comes_back(table: str, changes: bool) -> None:
    try:
        tables.make(table)
    except ValueError as error:
        pytest.skip(str(error))
    played = play(uses(1500, ops=True, changes=changes), backend="sim", table=table, limit=LIMIT)
    assert played.copybacks > 100
    assert played.copyback_bytes
    assert bool(played.replaced) is changes
    assert played.checked >= 50
    assert not played.wrong


def test_allocations_are_written_evicted_and_freed() -> None:
    played = play(allocations(500), backend="sim", limit=LIMIT)
    assert played.evictions > 50
    assert played.copybacks > 50
    assert played.checked == 40
    assert not played.wrong


def test_the_default_op_decides_about_copy_backs() -> None:
    assert play(uses(500), backend="sim", limit=LIMIT).copybacks == 0
    assert play(uses(500), backend="sim", limit=LIMIT, default_op="rw").copybacks > 50


def test_what_is_larger_than_the_limit_is_counted() -> None:
    trace = Trace("made", keys=[1, 2, 1, 2], sizes=[1024, 2 * LIMIT, 1024, 2 * LIMIT])
    played = play(trace, backend="sim", limit=LIMIT)
    assert (played.uses, played.hits, played.misses, played.too_large) == (4, 1, 3, 2)


def test_arrays_of_no_size_are_used_too() -> None:
    played = play(Trace("made", keys=[1, 1], sizes=[0, 0], ops=["r", "w"]), backend="sim", limit=LIMIT)
    assert (played.uses, played.wrong) == (2, 0)


class Forgets(SimDriver):
    """Loses every tenth upload."""

    def copy_in(self, address: int, source: Any, stream: Any) -> None:
        self.copies = getattr(self, "copies", 0) + 1
        if self.copies % 10:
            super().copy_in(address, source, stream)


class Lands(SimDriver):
    """Copies back to one byte too few."""

    def copy_out(self, destination: Any, address: int, stream: Any) -> None:
        super().copy_out(destination[1:], address + 1, stream)


@pytest.mark.parametrize("driver", [Forgets, Lands])
def test_wrong_content_is_noticed(driver: Callable[[], SimDriver], monkeypatch: pytest.MonkeyPatch) -> None:
    real = lifetimes.open
    monkeypatch.setattr(opening, "open", lambda backend, **options: real(driver(), **options))
    played = play(uses(500, ops=True), backend="sim", limit=LIMIT)
    assert 0 < played.wrong <= played.checked


def test_the_clock_stops_while_progress_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play_module, "CHUNK", 100)
    now = 0.0
    told = []

    def progress(done: int) -> None:
        nonlocal now
        now += 100.0
        told.append(done)

    played = play(uses(350), backend="null", limit=LIMIT, progress=progress, clock=lambda: now)
    assert told == [100, 200, 300, 350]
    assert played.seconds == 0.0


def test_on_the_null_device_nothing_is_checked() -> None:
    played = play(uses(500, ops=True, changes=True), backend="null", limit=LIMIT)
    assert (played.checked, played.wrong) == (0, 0)
    assert played.copybacks
    assert played.replaced


@pytest.mark.parametrize("name", policies.names())
def test_when_everything_is_pinned_no_policy_names_a_victim(name: str) -> None:
    """And each is as it was when the pins are gone."""
    with lifetimes.open(NullDriver(), memory_limit=4 * 4096, policy=name) as device:
        manager = device.manager
        keys = [manager.add(4096) for _ in range(5)]
        with manager.use_many([(key, "w") for key in keys[:4]]):
            for _ in range(2):
                with pytest.raises(OutOfMemory, match="pinned=4"), manager.use(keys[4], "w"):
                    pass
            assert list(manager.policy.candidates()) == []
        manager.check_invariants()
        assert sorted(manager.policy.candidates()) == sorted(keys[:4])
        with manager.use(keys[4], "w"):
            pass
        manager.check_invariants()
        assert device.statistics().evictions == 1
