"""The passes: pure functions from a graph to a graph, each with a name, in one list.

A graph goes through `PIPELINE` from the first to the last.  What comes after the list makes no graph any more:
`lifetimes.compiler.passes.fuse` sorts the nodes into groups, each of which becomes one kernel.

Note [Hooks].  `watching` shows every pass at work: its name, the graph before it and the graph after it.  The tests verify
graphs there.  A watcher changes nothing, so what is compiled does not depend on it, and it is told only of what is
compiled, not of what a cache holds already.  Whoever wants other passes calls `run` with a list of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeAlias

from lifetimes.compiler.ir import Function
from lifetimes.compiler.passes.simplify import simplify

__all__ = ["PIPELINE", "Pass", "Watcher", "run", "simplified", "watching"]


class Pass(NamedTuple):
    """``run`` is pure: it makes a new graph of the same parameters, and of the same results up to what it says itself."""

    name: str
    run: Callable[[Function], Function]


PIPELINE: Final = (Pass("simplify", simplify),)
"""Every pass, in order."""

Watcher: TypeAlias = Callable[[str, Function, Function], object]
"""``watcher(name of the pass, graph before, graph after)``."""

_watchers: list[Watcher] = []


def simplified(function: Function) -> Function:
    """The function after all passes of the list.  Errors: what a watcher raises."""
    return run(function, PIPELINE)


def run(function: Function, passes: Sequence[Pass]) -> Function:
    """The function after these passes.  Errors: what a watcher raises."""
    for each in passes:
        after = each.run(function)
        for watcher in tuple(_watchers):
            watcher(each.name, function, after)
        function = after
    return function


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Calls ``watcher`` after each pass, in every thread, until the block ends.  What it raises ends the compiling.

    >>> from lifetimes.compiler.spec import spec
    >>> from lifetimes.compiler.trace import trace
    >>> told = []
    >>> with watching(lambda name, before, after: told.append((name, len(before.nodes()), len(after.nodes())))):
    ...     _ = simplified(trace(lambda x: -(-x), (spec(2),)).function)
    >>> told
    [('simplify', 3, 1)]
    """
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)
