"""Every registered policy keeps the contract.  A policy that is registered is tested here with nothing edited."""

from __future__ import annotations

import pytest

from lifetimes import policies
from lifetimes.policies import Policy
from lifetimes.testing.conformance.policies import PolicyConformance


class TestPolicies(PolicyConformance):
    @pytest.fixture(autouse=True, params=policies.names())
    def choose(self, request: pytest.FixtureRequest) -> None:
        self.name: str = request.param

    def make(self) -> Policy:
        return policies.make(self.name)
