"""Planned faults: counted, drawn, at the call, at completion, and actions that stage a race."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from lifetimes.errors import BackendError, OutOfMemory
from lifetimes.testing.faults import COMPLETION_KINDS, KINDS, FaultPlan
from lifetimes.testing.sim import IN_FLIGHT, SimDriver

SECONDS = 20.0
DATA = np.ones(8, np.uint8)


def outcomes(plan: FaultPlan, kind: str, calls: int) -> str:
    """One letter for each call: "." or "x"."""
    letters = ""
    for _ in range(calls):
        try:
            plan.call(kind)
            letters += "."
        except (BackendError, OutOfMemory):
            letters += "x"
    return letters


def test_the_kth_call_fails_and_no_other() -> None:
    plan = FaultPlan().fail("record", 3)
    assert outcomes(plan, "record", 6) == "..x..."
    assert outcomes(FaultPlan().fail("record", 3), "wait", 6) == "......"


def test_calls_are_counted_from_when_the_fault_is_planned() -> None:
    plan = FaultPlan()
    assert outcomes(plan, "free", 4) == "...."
    plan.fail("free", 2)
    assert outcomes(plan, "free", 4) == ".x.."


def test_a_fault_may_strike_several_times_or_for_ever() -> None:
    assert outcomes(FaultPlan().fail("free", 2, times=3), "free", 7) == ".xxx..."
    assert outcomes(FaultPlan().fail("free", 2, times=None), "free", 7) == ".xxxxxx"
    assert outcomes(FaultPlan().fail("free", 1).fail("free", 4), "free", 5) == "x..x."


def test_the_same_seed_draws_the_same_faults() -> None:
    runs = [outcomes(FaultPlan(seed).sometimes("free", 0.3), "free", 200) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    assert 30 < runs[0].count("x") < 90


def test_errors_are_what_a_driver_would_raise_unless_said_otherwise() -> None:
    plan = FaultPlan().fail("allocate").fail("free").fail("copy", error=KeyboardInterrupt)
    ready = ValueError("made before")
    plan.fail("wait", error=ready)
    with pytest.raises(OutOfMemory, match="allocate call 1"):
        plan.call("allocate")
    with pytest.raises(BackendError, match="free call 1"):
        plan.call("free")
    with pytest.raises(KeyboardInterrupt):
        plan.call("copy")
    with pytest.raises(ValueError, match="made before") as caught:
        plan.call("wait")
    assert caught.value is ready


def test_what_has_not_struck_can_be_asked() -> None:
    plan = FaultPlan().fail("free", 2).fail("copy", 1)
    assert len(plan.waiting) == 2
    outcomes(plan, "copy", 1)
    assert [fault.kind for fault in plan.waiting] == ["free"]
    assert plan.strikes == 1
    plan.clear()
    assert outcomes(plan, "free", 5) == "....."


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (("alloc",), {}),
        (("allocate", 0), {}),
        (("allocate", 1), {"times": 0}),
        (("allocate",), {"at": "completion"}),
        (("copy",), {"at": "later"}),
    ],
)
def test_a_plan_that_means_nothing_is_refused(arguments: Any, options: Any) -> None:
    with pytest.raises(ValueError):
        FaultPlan().fail(*arguments, **options)
    with pytest.raises(ValueError, match="rate"):
        FaultPlan().sometimes("free", 1.5)
    with pytest.raises(ValueError, match="0"):
        FaultPlan().before("free", 0, int)


def call(driver: SimDriver, kind: str) -> object:
    """One call of each kind, with everything it needs made beforehand by ``prepare``."""
    address, stream, event, module, kernel, binary = driver.__dict__["prepared"]
    calls = {
        "allocate": lambda: driver.allocate(8),
        "free": lambda: driver.free(address),
        "memory_info": driver.memory_info,
        "copy_in": lambda: driver.copy_in(address, DATA, stream),
        "copy_out": lambda: driver.copy_out(np.zeros(8, np.uint8), address, stream),
        "copy": lambda: driver.copy(address, address + 8, 8, stream),
        "create_stream": driver.create_stream,
        "destroy_stream": lambda: driver.destroy_stream(stream),
        "create_event": driver.create_event,
        "destroy_event": lambda: driver.destroy_event(event),
        "record": lambda: driver.record(event, stream),
        "completed": lambda: driver.completed(event),
        "wait": lambda: driver.wait(event),
        "stream_wait": lambda: driver.stream_wait(stream, event),
        "synchronize": lambda: driver.synchronize(stream),
        "compile": lambda: driver.compile("def kernel(x): pass"),
        "load": lambda: driver.load(binary),
        "unload": lambda: driver.unload(module),
        "function": lambda: driver.function(module, "kernel"),
        "launch": lambda: driver.launch(kernel, (1,), (address,), stream),
        "view": lambda: driver.view(address, 8),
        "call": lambda: driver.call(int, (), stream),
        "make_current": driver.make_current,  # type: ignore[attr-defined]
        "restore": lambda: driver.restore(0),  # type: ignore[attr-defined]
    }
    return calls[kind]()


def prepare(faults: FaultPlan) -> SimDriver:
    driver = SimDriver(4096, contexts=True, faults=faults)
    driver.make_current()  # type: ignore[attr-defined]
    address, stream, event = driver.allocate(16), driver.create_stream(), driver.create_event()
    binary = driver.compile("def kernel(x): x[:8] = 7")
    module = driver.load(binary)
    driver.__dict__["prepared"] = (address, stream, event, module, driver.function(module, "kernel"), binary)
    return driver


def state(driver: SimDriver) -> object:
    return (
        driver.live_blocks,
        driver.live_streams,
        driver.live_events,
        driver.live_modules,
        driver.pending,
        driver.now,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_the_call_has_no_effect_and_the_next_call_works(kind: str) -> None:
    driver = prepare(FaultPlan())
    before, count = state(driver), driver.counts[kind]
    driver.faults.fail(kind)
    with pytest.raises((OutOfMemory, BackendError), match=f"planned fault in {kind}"):
        call(driver, kind)
    assert state(driver) == before
    assert driver.counts[kind] == count + 1
    if kind not in ("make_current", "restore"):
        assert driver.log[-1] == ("fault", kind)
    call(driver, kind)
    assert driver.counts[kind] == count + 2
    assert driver.violations == []
    assert driver.faults.waiting == []
    driver.restore(0)  # type: ignore[attr-defined]
    driver.close()


@pytest.mark.parametrize("kind", COMPLETION_KINDS)
def test_a_fault_at_completion_is_told_by_the_next_event(kind: str) -> None:
    driver = prepare(FaultPlan())
    address, stream, event, *_ = driver.__dict__["prepared"]
    driver.view(address, 16)[:] = 5
    driver.faults.fail(kind, at="completion")
    call(driver, kind)
    driver.record(event, stream)
    with pytest.raises(BackendError, match=f"completion of {kind}"):
        driver.wait(event)
    content = driver.view(address, 8).tolist()
    assert content == [IN_FLIGHT if kind in ("copy_in", "copy") else 5] * 8, "the work had no effect"
    driver.record(event, stream)
    driver.wait(event)
    driver.restore(0)  # type: ignore[attr-defined]
    driver.close()


def test_an_action_runs_before_its_call_on_its_thread() -> None:
    driver, seen = SimDriver(4096), list[object]()
    driver.faults.before("allocate", 2, lambda: seen.append((threading.get_ident(), dict(driver.live_blocks))))
    first = driver.allocate(8)
    assert seen == []
    driver.allocate(8)
    assert seen == [(threading.get_ident(), {first: 8})]


def test_an_action_may_call_the_driver_and_comes_before_a_fault() -> None:
    driver = SimDriver(100)
    held = driver.allocate(100)
    driver.faults.before("allocate", 1, lambda: driver.free(held)).fail("allocate", 2)
    assert driver.allocate(100) == held or driver.in_use == 100
    with pytest.raises(OutOfMemory, match="planned"):
        driver.allocate(1)
    seen = list[str]()
    driver.faults.fail("free").before("free", 1, lambda: seen.append("before"))
    with pytest.raises(BackendError, match="planned"):
        driver.free(held)
    assert seen == ["before"]


def test_an_action_stages_a_race_between_two_threads() -> None:
    """One thread stands inside its call while another passes, every time."""
    driver = SimDriver(100)
    inside, passed = threading.Event(), threading.Event()
    won = list[str]()

    def stand() -> None:
        inside.set()
        assert passed.wait(SECONDS)

    driver.faults.before("allocate", 1, stand)

    def first() -> None:
        try:
            driver.allocate(100)
        except OutOfMemory:
            won.append("second")

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(SECONDS)
    driver.allocate(100)
    passed.set()
    thread.join(SECONDS)
    assert won == ["second"]
