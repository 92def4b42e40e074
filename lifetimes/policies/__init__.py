"""Eviction policies: an order over keys, one protocol, chosen by name.

``make("lru")`` gives an empty one.  What a policy promises is in `protocol`; each file beside it is one policy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from lifetimes._resolve import Parts
from lifetimes.policies.protocol import Policy

__all__ = ["Policy", "PolicySpec", "make", "names", "register"]

PolicySpec: TypeAlias = str | Callable[[], Policy] | Policy
"""A registered name, ``"package.module:Name"``, a class or callable without arguments, or an empty policy."""

_parts: Parts[Policy] = Parts(
    "policy",
    {
        "lru": "lifetimes.policies.lru:LRUPolicy",
        "clock": "lifetimes.policies.clock:ClockPolicy",
        "sieve": "lifetimes.policies.sieve:SievePolicy",
        "s3fifo": "lifetimes.policies.s3fifo:S3FIFOPolicy",
        "gdsf": "lifetimes.policies.gdsf:GDSFPolicy",
        "random": "lifetimes.policies.random:RandomPolicy",
        "belady": "lifetimes.policies.belady:BeladyPolicy",
    },
)


def names() -> tuple[str, ...]:
    """The registered names.

    >>> "lru" in names()
    True
    """
    return _parts.names()


def register(name: str, factory: str | Callable[[], Policy]) -> None:
    """Let ``name`` stand for a class, a callable without arguments, or ``"package.module:Name"``.

    An import path is imported when the policy is first made.  Errors: `ValueError` for a name that is taken.
    """
    _parts.register(name, factory)


def make(policy: PolicySpec) -> Policy:
    """An empty policy: a new one, or the given object if it is one.

    Errors: `ValueError` for an unknown name (it says which names there are) and for a policy that is not empty;
    `TypeError` for what is no policy, with the members it lacks.

    >>> lru = make("lru")
    >>> lru.add(1, nbytes=64); lru.add(2, nbytes=64); _ = lru.touch(1)
    >>> list(lru.candidates())
    [2, 1]
    """
    made = _parts.make(policy, Policy)
    if len(made):
        raise ValueError(f"the policy {policy!r} holds {len(made)} keys; give an empty one, which nobody else uses")
    return made
