"""What a policy may cost: counted, so that it holds on any machine.

The protocol asks for no cost, and a policy for a few hundred arrays may sort them each time.  One for very many derives
from `PolicyCosts` beside `PolicyConformance`, and says how an empty one is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from lifetimes.policies.protocol import Policy
from lifetimes.testing.operations import CountedKey, Operations, count_operations

__all__ = ["PolicyCosts"]

MORE = 1.5
"""How many times as many steps may be taken among ``many`` keys as among ``few``: the ratio of their logarithms, rounded up."""


class PolicyCosts:
    """A use costs the same however many keys are held, and so, but for a logarithm, does finding a victim."""

    few = 20_000
    many = 200_000
    pinned = 10_000
    victims = 1_000

    def make(self) -> Policy:
        """An empty policy."""
        raise NotImplementedError

    def filled(self, count: int) -> Policy:
        """A policy of so many keys, some of them used, which has found a victim before."""
        policy = self.make()
        keys = list(map(CountedKey, range(count)))
        for key in keys:
            policy.add(key, 256)
        for key in Random(1).sample(keys, self.few // 20):
            policy.touch(key)
        # What the arrivals owe is paid here: a policy may put off their sorting until the first victim is wanted.
        self.evict(policy, policy.candidates(), 1)
        return policy

    def evict(self, policy: Policy, candidates: Iterable[int], count: int) -> None:
        """Take out the next candidates, as the manager does with those it evicts and with those it finds pinned."""
        for key in candidates:
            policy.remove(key)
            count -= 1
            if not count:
                return

    def test_a_use_costs_the_same_among_many(self) -> None:
        costs = [self.uses(self.filled(count), count) for count in (self.few, self.many)]
        self.compare(*costs)

    def uses(self, policy: Policy, count: int) -> Operations:
        """Of a hundred keys that are held, once each."""
        keys = [key for key in map(CountedKey, Random(2).sample(range(count), 100)) if key in policy]

        def use_each() -> None:
            for key in keys:
                policy.touch(key)

        return count_operations(use_each)

    def test_a_victim_costs_the_same_among_many_and_behind_pinned_ones(self) -> None:
        costs = [self.pass_over_pinned(self.filled(count)) for count in (self.few, self.many)]
        self.compare(*costs)

    def pass_over_pinned(self, policy: Policy) -> Operations:
        """Take out as many as may be found pinned, then the victims; new keys come in their place."""
        fresh = [CountedKey(2**40 + number) for number in range(self.victims)]

        def work() -> None:
            self.evict(policy, policy.candidates(), self.pinned)
            for key in fresh:
                self.evict(policy, policy.candidates(), 1)
                policy.add(key, 256)

        return count_operations(work)

    def compare(self, few: Operations, many: Operations) -> None:
        """Steps may grow as a logarithm does, and nothing may be copied."""
        assert many.steps <= MORE * few.steps, (
            f"{few.steps:,} steps among {self.few:,} keys, {many.steps:,} among {self.many:,}"
        )
        assert many.nbytes < self.many * 4, f"{many.nbytes:,} bytes were allocated among {self.many:,} keys"
