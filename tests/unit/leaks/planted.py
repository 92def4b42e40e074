"""One leak of each kind, planted on lines that say so.  `line_of` finds the line; `KINDS` has what the search should say."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lifetimes import Lifetime

__all__ = ["KINDS", "clear", "line_of", "never"]


class Node:
    """An object of somebody's own."""


class Never:
    """Work that does not end."""

    over = False

    def completed(self) -> bool:
        return self.over


never = Never()
kept: list[Any] = []
names: dict[str, Any] = {}
here = threading.local()
results_cache: dict[tuple[int, str], Any] = {}


def make(label: str) -> Lifetime[str]:
    """A lifetime that is made elsewhere than where it leaks."""
    return Lifetime(label, kind="buffer", nbytes=1000, label=label)


def global_() -> None:
    kept.append(Lifetime("x", kind="buffer", label="global"))  # leak: global


def attribute() -> None:
    Node.last = Lifetime("x", kind="buffer", label="attribute")  # type: ignore[attr-defined]  # leak: attribute


def closure() -> None:
    buffer = Lifetime("x", kind="buffer", label="closure")  # leak: closure

    def on_done() -> object:
        return buffer

    names["handler"] = on_done


def cache() -> None:
    results_cache[3, "x"] = Lifetime("x", kind="buffer", label="cache")  # leak: cache


@functools.lru_cache(maxsize=8)
def remembered(number: int) -> Lifetime[str]:
    return Lifetime("x", kind="buffer", label="lru_cache")  # leak: lru_cache


def lru_cache() -> None:
    remembered(1)


def traceback() -> None:
    def fails() -> None:
        local = Lifetime("x", kind="buffer", label="traceback")  # leak: traceback
        raise ValueError(local.key)

    try:
        fails()
    except ValueError as error:
        names["error"] = error


def thread_local() -> None:
    here.buffer = Lifetime("x", kind="buffer", label="thread_local")  # leak: thread_local


def generator() -> None:
    def steps() -> Any:
        with Lifetime("x", kind="buffer", label="generator").use() as value:  # leak: generator
            yield value

    names["steps"] = steps()
    next(names["steps"])


def pin() -> None:
    buffer = Lifetime("x", kind="buffer", label="pin")  # leak: pin
    kept.append(buffer.use("a copy"))
    kept[-1].__enter__()


def pending() -> None:
    never.over = False
    Lifetime("x", kind="event", label="pending").after(never)  # leak: pending


def export() -> None:
    kept.append(Lifetime("x", kind="buffer", label="export").export("dlpack"))  # leak: export


def child() -> None:
    parent = Lifetime("x", kind="buffer", label="child")  # leak: child
    kept.append(Lifetime("y", kind="view", label="the child", parents=[parent]))


def cycle() -> None:
    node = Node()
    node.me = node  # type: ignore[attr-defined]
    node.buffer = Lifetime("x", kind="buffer", label="cycle")  # type: ignore[attr-defined]  # leak: cycle


KINDS: dict[str, tuple[Callable[[], None], str, str]] = {
    "global": (global_, "global", "planted.kept[0]"),
    "attribute": (attribute, "global", "planted.Node.last"),
    "closure": (
        closure,
        "closure",
        "planted.names['handler'] -> closure variable 'buffer' of closure.<locals>.on_done (planted.py:",
    ),
    "cache": (cache, "cache", "planted.results_cache[3, 'x']"),
    "lru_cache": (lru_cache, "cache", "planted.remembered -> the lru_cache of remembered"),
    "traceback": (
        traceback,
        "traceback",
        "planted.names['error'] -> the traceback of ValueError -> local variable 'local' of traceback.<locals>.fails (",
    ),
    "thread_local": (thread_local, "thread-local", "planted.here -> thread-local.buffer"),
    "generator": (
        generator,
        "pin",
        "a pin, not given back: tests.unit.leaks.planted.names['steps'] -> suspended generator generator.<locals>.steps (",
    ),
    "pin": (pin, "pin", "a pin (a copy), not given back: tests.unit.leaks.planted.kept[0]"),
    "pending": (pending, "pending", "work in flight: Never, which has not completed"),
    "export": (export, "export", "an export, exported (dlpack), which "),
    "child": (child, "child", "its child view 'the child' #"),
    "cycle": (cycle, "cycle", "a reference cycle through Node.buffer"),
}
"""How to plant it; the reason in one word; how the words begin (or, after the name of the module, go on)."""


def line_of(kind: str) -> int:
    """The number of the line that is marked."""
    lines = Path(__file__).read_text().splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if line.endswith(f"# leak: {kind}")]
    return found


def clear() -> None:
    """Mend them all."""
    for each in kept:
        if hasattr(each, "__exit__") and not isinstance(each, Lifetime):
            each.__exit__()
        elif hasattr(each, "release"):
            each.release()
    kept.clear()
    names.clear()
    results_cache.clear()
    remembered.cache_clear()
    here.__dict__.clear()
    if hasattr(Node, "last"):
        del Node.last
    never.over = True
