"""From an object back to a root, along the references that the garbage collector can see.

Each level of the search is one pass of the collector over its containers (tens of milliseconds in a large program), and
the search goes no further than it must: it ends at the first variable of a module or of a running call.
"""

from __future__ import annotations

import gc
from collections.abc import Container, Iterable
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Final

from lifetimes.cell import Cell
from lifetimes.leaks.paths import in_words, reason_of
from lifetimes.leaks.roots import Roots
from lifetimes.lifetime import Lifetime

__all__ = ["Found", "ignored", "path_to"]

LIMIT: Final = 20_000
"""Objects that one search looks at."""
DEEPEST: Final = 60

ignored: list[object] = []
"""Containers that hold what they watch without meaning to keep it: no step of any chain."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found: a reason in one word, the path in words, and where it begins.

    ``root`` is the module whose variable it begins with, empty for another beginning; ``via`` the key of the first other
    lifetime's handle on the path.  ``avoided`` says that there was no path around what was to be avoided.
    """

    reason: str
    path: str
    root: str = ""
    via: int | None = None
    avoided: bool = False


def path_to(target: object, roots: Roots, *, avoid: Container[int] = (), ours: Iterable[object] = ()) -> Found:
    """Why ``target`` is alive.

    A path around tracebacks is preferred to one through them, and one around the objects whose ids are in ``avoid``:
    somebody who holds it on purpose is told before somebody who holds it by accident.  ``ours`` are containers of the
    caller's that hold it.
    """
    containers = [*ours, *ignored]
    for through in (False, True):
        found = _search(target, roots, through, avoid, containers)
        if found is not None and (found.reason != "cycle" or through):
            return found
    return Found("unknown", "native code, or a value that a running call is working on")


def _search(target: object, roots: Roots, through: bool, avoid: Container[int], ours: list[object]) -> Found | None:
    """One search; ``through`` allows tracebacks, and what is to be avoided."""
    objects: list[object] = [target]
    held_by: dict[int, int] = {}  # id of a holder -> id of what it holds
    seen: dict[int, object] = {id(target): target}
    cycle: list[object] = []
    level: list[object] = [target]
    mine = {id(each) for each in (objects, held_by, seen, cycle, level, ours, *ours)}
    for _ in range(DEEPEST):
        for each in level:
            if id(each) in roots.variables:
                return _found(_chain(each, held_by, seen), roots.variables[id(each)], "", avoid)
        wanted = {id(each) for each in level}
        referrers = gc.get_referrers(*level)
        mine.add(id(referrers))
        upper: list[object] = []
        mine.add(id(upper))
        for each in referrers:
            number = id(each)
            if number in seen and not cycle:  # back to where the search has been
                cycle += [each, *_chain(next((one for one in level if _refers(each, one)), each), held_by, seen)]
            if number in seen or number in mine or type(each) is Cell:
                continue
            if not through and (number in avoid or issubclass(type(each), (FrameType, TracebackType))):
                continue
            held = next((one for one in gc.get_referents(each) if id(one) in wanted), None)
            if held is None:  # it has let go meanwhile
                continue
            held_by[number] = id(held)
            seen[number] = each
            module = roots.module_of(each)
            if module is not None:
                return _found(_chain(each, held_by, seen), module, module, avoid)
            upper.append(each)
        referrers.clear()
        level[:] = upper
        if not upper or len(seen) > LIMIT:
            break
    if cycle:
        if type(cycle[0]) is dict and len(cycle) > 2 and cycle[0] is cycle[2]:
            del cycle[0]  # the attributes of the object that follows
        return Found("cycle", in_words(cycle, f"a reference cycle through {type(cycle[0]).__qualname__}"))
    return None


def _chain(start: object, held_by: dict[int, int], seen: dict[int, object]) -> list[object]:
    chain = [start]
    number = id(start)
    while number in held_by:
        number = held_by[number]
        chain.append(seen[number])
    return chain


def _refers(holder: object, held: object) -> bool:
    return any(each is held for each in gc.get_referents(holder))


def _found(chain: list[object], root: str, module: str, avoid: Container[int]) -> Found:
    """What a search found; with a module, whose variables ``chain[0]`` is, the path begins at one of these."""
    via = next((each._cell.key for each in chain[:-1] if issubclass(type(each), Lifetime)), None)  # type: ignore[attr-defined]
    avoided = any(id(each) in avoid for each in chain)
    if module and type(chain[0]) is dict:
        name = next((key for key, value in list(chain[0].items()) if value is chain[1]), "?")
        root, chain = f"{root}.{name}", chain[1:]
    return Found(reason_of(chain, root), in_words(chain, root), module, via, avoided)
