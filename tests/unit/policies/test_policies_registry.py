"""How a policy is said, and what a wrong one is told.  What is shared with tables is tested there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lifetimes import policies
from lifetimes.policies.lru import LRUPolicy

DOCS = Path(__file__).parents[3] / "docs"
OURS = policies.names()  # before any test registers another


def test_a_policy_is_said_by_name_path_class_or_object() -> None:
    mine = LRUPolicy()
    for spec in ("lru", "lifetimes.policies.lru:LRUPolicy", LRUPolicy, lambda: LRUPolicy()):
        assert type(policies.make(spec)) is LRUPolicy
    assert policies.make(mine) is mine


def test_an_unknown_name_is_told_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"unknown policy 'rlu': there are lru, clock, .*; any other is given"):
        policies.make("rlu")


@pytest.mark.parametrize("spec", [{}, 5, None, set])
def test_what_is_no_policy_is_told_what_it_lacks(spec: Any) -> None:
    with pytest.raises(TypeError, match=r"is no policy: .* lacks .*candidates.*touch"):
        policies.make(spec)


def test_a_policy_in_use_is_refused() -> None:
    policy = LRUPolicy()
    policy.add(1, 256)
    with pytest.raises(ValueError, match="holds 1 keys"):
        policies.make(policy)


def test_a_registered_policy_is_made_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies._parts, "rows", dict(policies._parts.rows))
    policies.register("mine", LRUPolicy)
    assert type(policies.make("mine")) is LRUPolicy
    assert policies.names()[-1] == "mine"


def test_names() -> None:
    assert set(policies.names()) >= {"lru", "clock", "sieve", "s3fifo", "gdsf", "random", "belady"}


def test_every_policy_has_its_row_in_the_manual() -> None:
    page, reference = ((DOCS / name).read_text() for name in ("explanation/choosing-a-policy.md", "reference.md"))
    for name in OURS:
        assert f"\n| `{name}` |" in page.split("<!-- measured")[0], (
            "say what goes first, what a use does, and what to choose it for"
        )
        assert f"`{name}`" in reference
