"""The states of an entry: one table says which may follow which, and the books follow every move."""

from __future__ import annotations

from itertools import pairwise, product
from types import SimpleNamespace
from typing import Any

import pytest

from lifetimes import entry as module
from lifetimes.entry import MOVES, STATE_NAMES, Entry
from lifetimes.errors import InternalError
from lifetimes.manager.statistics import Counters

NAMES = """UNINIT HOST UPLOADING CLEAN DIRTY EVICTING BROKEN RELEASED UNMANAGED SPILLING DISK LOADING"""
STATES = {name: getattr(module, name) for name in NAMES.split()}


def make(state: int, nbytes: int = 10) -> tuple[Entry, Counters]:
    counters = Counters()
    counters.counts[state], counters.sums[state] = 1, nbytes
    home: Any = SimpleNamespace(counters=counters)
    return Entry(home, 7, nbytes, "x", state), counters


def test_every_state_has_a_name_and_a_row() -> None:
    assert sorted(STATES.values()) == list(range(len(STATE_NAMES))) == sorted(MOVES)


@pytest.mark.parametrize(("old", "new"), list(product(STATES, STATES)))
def test_a_move_is_in_the_table_or_is_refused_and_changes_nothing(old: str, new: str) -> None:
    entry, counters = make(STATES[old])
    if STATES[new] in MOVES[STATES[old]]:
        entry.become(STATES[new])
        assert entry.state == STATES[new]
    else:
        with pytest.raises(InternalError, match="report"):
            entry.become(STATES[new])
        assert entry.state == STATES[old]
    assert counters.counts[entry.state] == sum(counters.counts) == 1
    assert counters.sums[entry.state] == sum(counters.sums) == 10


PATHS = [
    "UNINIT DIRTY EVICTING HOST UPLOADING CLEAN HOST",
    "HOST DIRTY EVICTING CLEAN DIRTY EVICTING DIRTY",
    "HOST SPILLING DISK LOADING HOST",
    "HOST SPILLING HOST",
    "DISK LOADING DISK DIRTY",
    "HOST UPLOADING HOST",
    "CLEAN EVICTING HOST",
    "CLEAN DISK",
    "UNMANAGED BROKEN UNMANAGED RELEASED",
]


@pytest.mark.parametrize("path", PATHS)
def test_the_lives_that_an_array_can_have(path: str) -> None:
    states = path.split()
    entry, counters = make(STATES[states[0]])
    for _, state in pairwise(states):
        entry.become(STATES[state])
        assert counters.peaks[STATES[state]] == 10


def test_released_is_the_end_and_everything_that_has_content_can_break() -> None:
    assert not MOVES[STATES["RELEASED"]]
    for name, state in STATES.items():
        if name not in ("RELEASED", "BROKEN"):
            assert STATES["BROKEN"] in MOVES[state], name
        if name != "RELEASED":
            assert STATES["RELEASED"] in MOVES[state], name
