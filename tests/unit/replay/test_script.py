"""From a trace to the steps that are timed, and the content that tells arrays apart."""

from __future__ import annotations

from math import inf

import pytest

from lifetimes.replay.content import Content
from lifetimes.replay.script import ADD, FREE, TOO_LARGE, USE, make_script
from lifetimes.replay.trace import Trace


def test_a_key_that_comes_with_another_size_is_another_array() -> None:
    trace = Trace("t", keys=[7, 8, 7, 7, 7], sizes=[64, 32, 16, 16, 64])
    script = make_script(trace, 1024)
    assert script.arrays == [0, 1, 2, 2, 3]
    assert script.release == [-1, -1, 0, -1, 2]
    assert script.sizes == [64, 32, 16, 64]
    assert script.replaced == 2
    assert script.next_uses == [inf, inf, 3, inf, inf]
    assert script.existing() == [0, 1, 2, 3]


def test_what_is_larger_than_the_limit_is_passed_over() -> None:
    trace = Trace("t", keys=[7, 7, 7, 8], sizes=[64, 2048, 64, 4096])
    script = make_script(trace, 1024)
    assert script.steps == [USE, TOO_LARGE, USE, TOO_LARGE]
    assert script.release == [-1, 0, -1, -1], "the array before goes, and the one too large was never there"
    assert (script.too_large, script.replaced) == (2, 2)
    assert script.existing() == [0, 2]


def test_modes_are_those_of_the_trace_or_the_default() -> None:
    assert make_script(Trace("t", keys=[1, 1], sizes=[8, 8]), 64, "rw").modes == ["rw", "rw"]
    assert make_script(Trace("t", keys=[1, 1], sizes=[8, 8], ops=["r", "w"]), 64, "rw").modes == ["r", "w"]


def test_allocations_come_and_go() -> None:
    ops = ["allocate", "allocate", "free", "free", "allocate"]
    trace = Trace("t", True, keys=[0, 1, 0, 1, 2], sizes=[64, 4096, 64, 4096, 64], ops=ops)
    script = make_script(trace, 1024)
    assert script.steps == [ADD, TOO_LARGE, FREE, TOO_LARGE, ADD]
    assert script.sizes == [64, 4096, 64]
    assert script.too_large == 1
    assert script.existing() == []


def test_contents_are_told_apart_and_are_the_same_each_time() -> None:
    one, other = Content(4096), Content(4096)
    views = [one.of(number, 4096) for number in range(300)]
    assert len({bytes(view) for view in views}) == 300
    assert bytes(other.of(7, 4096)) == bytes(views[7])
    with pytest.raises(ValueError, match="read-only"):
        views[0][0] = 1
    assert bytes(one.stamp(258, 64)) == b"\x02\x01" + bytes(6)
    assert bytes(one.stamp(258, 1)) == b"\x02"
    assert one.of(3, 0).nbytes == 0
