"""A lifetime, made and dropped, against `weakref.finalize`, which releases one object once and knows of no other."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

from bench.harness import Compare
from lifetimes import Lifetime

HANDLE = 4096


class Plain:
    """The least object that `weakref.finalize` takes."""

    __slots__ = ("__weakref__",)


def release(handle: int) -> None:
    pass


def weakref_finalize(rounds: Iterator[None]) -> None:
    for _ in rounds:
        weakref.finalize(Plain(), release, HANDLE)  # the object dies at the end of the line


def bench_one_finalizer(compare: Compare) -> None:
    """Lifetime, one finalizer"""

    def lifetime(rounds: Iterator[None]) -> None:
        for _ in rounds:
            Lifetime(HANDLE, release, HANDLE)

    compare(lifetime, weakref_finalize, bar=1.2)


def bench_kind_and_nbytes(compare: Compare) -> None:
    """Lifetime, one finalizer, kind, nbytes"""

    def lifetime(rounds: Iterator[None]) -> None:
        for _ in rounds:
            Lifetime(HANDLE, release, HANDLE, kind="buffer", nbytes=64)

    compare(lifetime, weakref_finalize)


def bench_one_parent(compare: Compare) -> None:
    """Lifetime, one finalizer, kind, nbytes, one parent"""
    parents = (Lifetime(HANDLE),)

    def lifetime(rounds: Iterator[None]) -> None:
        for _ in rounds:
            Lifetime(HANDLE, release, HANDLE, kind="buffer", nbytes=64, parents=parents)

    compare(lifetime, weakref_finalize, bar=1.6)


def bench_no_finalizer(compare: Compare) -> None:
    """Lifetime, no finalizer"""

    def lifetime(rounds: Iterator[None]) -> None:
        for _ in rounds:
            Lifetime(HANDLE)

    compare(lifetime, weakref_finalize, bar=1.0)
