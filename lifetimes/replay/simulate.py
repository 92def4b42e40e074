"""A policy alone: which uses of a trace would miss under a limit, with no manager, no memory and no sizes rounded.

This is what the literature measures, so figures compare with those of others.  What the manager adds, and what a block
costs beyond its array, is what `play` measures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from lifetimes.policies.belady import BeladyPolicy
from lifetimes.policies.protocol import Policy

__all__ = ["Misses", "next_uses", "simulate"]


@dataclass(frozen=True, slots=True)
class Misses:
    """What became of the uses.  A use is a hit or a miss; bytes are those of the arrays."""

    uses: int
    misses: int
    missed_bytes: int
    evictions: int
    replaced: int
    """Uses of a key that was there with another size: it goes and comes anew, which is a miss."""
    too_large: int
    """Misses larger than the limit, which evict nothing."""

    @property
    def ratio(self) -> float:
        """Misses to uses."""
        return self.misses / self.uses if self.uses else 0.0


def next_uses(keys: Sequence[int], sizes: Sequence[int]) -> list[float]:
    """For each use, the position of the next use of that key; infinity if there is none, or if its size has changed by then.

    >>> next_uses([7, 8, 7, 8], [64, 64, 64, 32])
    [2, inf, inf, inf]
    """
    following: list[float] = [inf] * len(keys)
    seen: dict[int, int] = {}
    for position in range(len(keys) - 1, -1, -1):
        key = keys[position]
        after = seen.get(key)
        if after is not None and sizes[after] == sizes[position]:
            following[position] = after
        seen[key] = position
    return following


def simulate(policy: Policy, keys: Sequence[int], sizes: Sequence[int], limit: int) -> Misses:
    """Use the keys in turn, evicting by ``policy`` (an empty one) whenever more than ``limit`` bytes would be held.

    Complexity: O(uses), times what the policy costs.

    >>> from lifetimes import policies
    >>> simulate(policies.make("lru"), [1, 2, 3, 1, 3], [64] * 5, 128).misses
    4
    """
    future = next_uses(keys, sizes) if isinstance(policy, BeladyPolicy) else None
    touch, add, remove, candidates = policy.touch, policy.add, policy.remove, policy.candidates
    resident: dict[int, int] = {}
    held = misses = missed_bytes = evictions = replaced = too_large = 0
    for position, (key, nbytes) in enumerate(zip(keys, sizes, strict=True)):
        if future is not None:
            policy.next_use = future[position]  # type: ignore[attr-defined]  # Belady's
        there = resident.get(key)
        if there == nbytes:
            touch(key)
            continue
        if there is not None:
            replaced += 1
            remove(key)
            del resident[key]
            held -= there
        misses += 1
        missed_bytes += nbytes
        if nbytes > limit:
            too_large += 1
            continue
        if held + nbytes > limit:
            for victim in candidates():
                remove(victim)
                held -= resident.pop(victim)
                evictions += 1
                if held + nbytes <= limit:
                    break
        add(key, nbytes)
        resident[key] = nbytes
        held += nbytes
    return Misses(len(keys), misses, missed_bytes, evictions, replaced, too_large)
