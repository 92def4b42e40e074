"""Work in flight as the ledger tells it: what is enqueued counts, what might be enqueued some day does not."""

from __future__ import annotations

from typing import Any

import lifetimes
from lifetimes import live, snapshot, why
from lifetimes.leaks.settling import finish_pending
from tests.resource_log import Watched, finished, one_of_each, settled
from tests.unit.lifetimes.helpers import Task


def pending(kind: str) -> list[int]:
    """As rows say it; columns say the same."""
    found = [row.pending for row in live(kind=kind)]
    assert [row.pending for row in snapshot() if row.kind == kind] == found
    return found


def test_an_idle_device_has_no_work_in_flight() -> None:
    with lifetimes.open("sim") as device:
        assert pending("device") == [0]
        device.call(lambda a: a.fill(1), device.zeros(3)).wait()
        assert pending("device") == [0]


def test_work_in_flight_counts_until_it_is_known_to_have_finished() -> None:
    watched = Watched(manual=True)
    handles = one_of_each(watched.driver)
    assert (pending("device"), pending("kernel")) == ([1], [1])
    watched.driver.run_until_idle()
    assert (pending("device"), pending("kernel")) == ([1], [1])  # nobody has asked
    finish_pending(0.0)
    assert (pending("device"), pending("kernel")) == ([0], [0])
    handles.clear()
    assert not finished(watched)


def test_a_dropped_device_is_held_by_what_its_streams_still_do() -> None:
    watched = Watched(manual=True)
    handles: dict[str, Any] = one_of_each(watched.driver, "call")
    handles.clear()
    lifetimes.drain()
    (row,) = live(kind="device")
    assert (row.state, row.pending) == ("dropped", 1)
    found = why(row)
    assert (found.reason, found.held_by) == (
        "pending", "work in flight: work on 2 streams, 1 not known to be idle")  # fmt: skip
    settled(watched.driver)
    assert not live(kind="device")
    assert not finished(watched)


def test_a_device_waits_for_its_streams_whatever_else_was_put_after_it() -> None:
    """Finished work is forgotten of a lifetime with many holders, but a device that is idle now may be busy later."""
    watched = Watched(manual=True)
    device = lifetimes.open(watched.driver)
    arrays = [device.zeros(3) for _ in range(10)]
    for _ in range(3):
        device.after(Task(finished=True))
    device.call(lambda view: None, arrays[0])
    busy = [device.create_stream()]
    device.call(lambda view: None, arrays[1], stream=busy[0])
    arrays.clear()
    busy.clear()
    del device
    lifetimes.drain()
    assert watched.closes == 0
    assert not finished(watched)
