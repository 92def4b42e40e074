"""Miss counts on whole traces: those that libCacheSim counts for the same algorithm, and live beside it where it is there."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

from lifetimes import policies
from lifetimes.policies import Policy
from lifetimes.policies.s3fifo import S3FIFOPolicy
from lifetimes.replay.simulate import simulate
from tests.unit.policies import golden
from tests.unit.policies.naive import GDSF, MODELS, S3FIFO
from tests.unit.policies.traces import RECORDED, TRACES

COUNTS = golden.read()
CASES = [(trace, int(limit)) for trace, limits in COUNTS.items() for limit in limits]
SMALL = [(trace, limit) for trace, limit in CASES if trace != "recorded"]
NAMES = [name for name in policies.names() if name in MODELS]

with_peer = pytest.mark.skipif(
    find_spec("libcachesim") is None, reason="libcachesim is not installed; the extra 'bench' is"
)


def uses_of(trace: str) -> Any:
    if trace == "recorded" and not RECORDED.exists():
        pytest.skip("bench/data is not in this copy of the source")
    return TRACES[trace]()


def policy_of(name: str, limit: int) -> Policy:
    """Told what libCacheSim is told."""
    return S3FIFOPolicy(limit) if name == "s3fifo" else policies.make(name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("trace", "limit"), CASES)
def test_as_many_misses_as_were_recorded(trace: str, limit: int, name: str) -> None:
    row = COUNTS[trace][str(limit)]
    if name not in row and trace == "recorded":
        pytest.skip("its naive model is too slow for this trace under this limit")
    uses = uses_of(trace)
    counted = simulate(policy_of(name, limit), uses.keys, uses.sizes, limit)
    assert name in row, f"record it: python -m tests.unit.policies.golden; {name} counts {counted.misses}"
    assert counted.misses == row[name]
    assert counted.uses == len(uses.keys)
    assert counted.replaced == 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("trace", "limit"), SMALL)
def test_the_naive_model_counts_the_same(trace: str, limit: int, name: str) -> None:
    assert golden.model_misses(golden.model_of(name, limit)(), uses_of(trace), limit) == COUNTS[trace][str(limit)][name]


@pytest.mark.parametrize(("trace", "limit"), SMALL)
def test_not_knowing_the_capacity_the_small_queue_goes_by_what_is_held(trace: str, limit: int) -> None:
    uses = uses_of(trace)
    counted = simulate(policies.make("s3fifo"), uses.keys, uses.sizes, limit).misses
    assert counted == golden.model_misses(S3FIFO(), uses, limit)
    assert abs(counted - COUNTS[trace][str(limit)]["s3fifo"]) < 0.01 * len(uses.keys)


@pytest.mark.parametrize(("trace", "limit"), SMALL)
def test_the_two_definitions_of_gdsf_differ_in_who_may_be_refused(trace: str, limit: int) -> None:
    row = COUNTS[trace][str(limit)]
    assert golden.model_misses(GDSF(refuses=True), uses_of(trace), limit) == row[golden.REFUSING]


def test_among_many_sizes_nobody_is_refused_and_the_two_definitions_of_gdsf_are_one() -> None:
    uses = uses_of("recorded")
    for limit in uses.limits[:1]:
        counted = simulate(policies.make("gdsf"), uses.keys, uses.sizes, limit).misses
        assert abs(counted - COUNTS["recorded"][str(limit)][golden.REFUSING]) <= 2


@with_peer
@pytest.mark.parametrize("name", [*golden.PEERS, golden.REFUSING])
@pytest.mark.parametrize(("trace", "limit"), [SMALL[0], SMALL[-1], CASES[-1]])
def test_the_library_still_counts_what_was_recorded(trace: str, limit: int, name: str) -> None:
    peer = golden.PEERS.get(name, "GDSF")
    assert golden.peer_misses(peer, uses_of(trace), limit) == COUNTS[trace][str(limit)][name]


@with_peer
@pytest.mark.parametrize(("trace", "limit"), SMALL)
def test_random_misses_about_as_often_as_the_library_does(trace: str, limit: int) -> None:
    uses = uses_of(trace)
    ours = simulate(policies.make("random"), uses.keys, uses.sizes, limit).misses
    assert abs(ours - golden.peer_misses("Random", uses, limit)) < 0.04 * len(uses.keys)


def test_no_policy_misses_less_than_belady_where_all_keys_are_of_one_size() -> None:
    for row in COUNTS["zipf"].values():
        assert min(row, key=row.__getitem__) == "belady"
        assert row["random"] > row["lru"]


@pytest.mark.parametrize(
    "make", [lambda: S3FIFOPolicy(1 << 19), lambda: policies.make("sieve")], ids=["s3fifo", "sieve"]
)
def test_a_planted_difference_is_seen(make: Callable[[], Policy]) -> None:
    """Half the capacity, another policy: the counts tell them apart."""
    uses = uses_of("scans")
    limit = uses.limits[0]
    assert simulate(make(), uses.keys, uses.sizes, limit).misses != COUNTS["scans"][str(limit)]["clock"]
    assert simulate(make(), uses.keys, uses.sizes, 2 * limit).misses != COUNTS["scans"][str(limit)]["s3fifo"]
