"""A history in columns: what can be asked of it, and how it is written."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

__all__ = ["Held", "Peak", "Recording", "Site"]


class Site(NamedTuple):
    """What many things of a program have in common.  ``stack`` has the innermost call first."""

    kind: str
    label: str | None
    device: str | None
    nbytes: int
    scope: str | None
    thread: str | None
    stack: tuple[str, ...]


TEXTS: Final = ("kind", "label", "device", "scope", "thread")
BY: Final[dict[str, Callable[[Site], str]]] = {
    "kind": lambda site: site.kind,
    "line": lambda site: site.stack[0] if site.stack else "",
    "stack": lambda site: "\n".join(site.stack),
    "device": lambda site: site.device or "",
    "label": lambda site: site.label or "",
    "scope": lambda site: site.scope or "",
    "thread": lambda site: site.thread or "",
}


@dataclass(frozen=True, slots=True)
class Held:
    """How much was held by one group at one moment."""

    key: str
    count: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Peak:
    """The moment of most bytes, in seconds from the start."""

    seconds: float
    nbytes: int
    event: int
    """The event that brought it there."""


@dataclass(slots=True, eq=False)
class Recording:
    """Events in order: at ``times[i]`` (seconds) the thing ``events[i]`` was made; if negative, ``~events[i]`` was released.

    Things are numbered in the order in which they were made; ``keys`` has their keys, ``sites[site_of[n]]`` what they are.
    """

    started: float = 0.0
    """`time.time` of the start."""
    lost: int = 0
    """Events that did not fit into the limit; figures are for what came before them."""
    times: array[float] = field(default_factory=lambda: array("d"))
    events: array[int] = field(default_factory=lambda: array("q"))
    keys: array[int] = field(default_factory=lambda: array("Q"))
    site_of: array[int] = field(default_factory=lambda: array("q"))
    sites: list[Site] = field(default_factory=list)
    _numbers: dict[Site, int] = field(default_factory=dict, repr=False)

    def make(self, seconds: float, key: int, site: Site) -> int:
        """One more thing; its number."""
        number = self._numbers.get(site)
        if number is None:
            self._numbers[site] = number = len(self.sites)
            self.sites.append(site)
        self.times.append(seconds)
        self.events.append(len(self.keys))
        self.keys.append(key)
        self.site_of.append(number)
        return len(self.keys) - 1

    def release(self, seconds: float, number: int) -> None:
        """A thing has gone."""
        self.times.append(seconds)
        self.events.append(~number)

    def totals(self) -> array[int]:
        """The bytes after each event."""
        total = 0
        found = array("q")
        for event in self.events:
            total += self.nbytes(event) if event >= 0 else -self.nbytes(~event)
            found.append(total)
        return found

    def series(self, by: str = "kind") -> dict[str, array[int]]:
        """The bytes of each group after each event.  ``by``: kind, line, stack, device, label, scope or thread.

        Complexity: O(events x groups).
        """
        key = [BY[by](site) for site in self.sites]
        names = dict.fromkeys(key[number] for number in self.site_of)
        columns = {name: array("q") for name in names}
        now = dict.fromkeys(names, 0)
        for event in self.events:
            thing = event if event >= 0 else ~event
            name = key[self.site_of[thing]]
            now[name] += self.nbytes(thing) if event >= 0 else -self.nbytes(thing)
            for each, column in columns.items():
                column.append(now[each])
        return columns

    @property
    def peak(self) -> Peak:
        """The first moment at which most bytes were alive.  Complexity: O(events)."""
        totals = self.totals()
        if not totals:
            return Peak(0.0, 0, -1)
        at = max(range(len(totals)), key=totals.__getitem__)
        return Peak(self.times[at], totals[at], at)

    def total_at(self, seconds: float) -> int:
        """The bytes that were alive at a moment."""
        at = bisect_right(self.times, seconds) - 1
        return self.totals()[at] if at >= 0 else 0

    def alive_after(self, event: int) -> list[int]:
        """The numbers of the things that were alive after an event."""
        alive: dict[int, None] = {}
        for each in self.events[: event + 1]:
            if each >= 0:
                alive[each] = None
            else:
                alive.pop(~each, None)
        return list(alive)

    def held(self, things: Iterable[int], by: str = "line") -> list[Held]:
        """Things by group, largest first: ``recording.held(recording.alive_after(recording.peak.event))`` is the peak."""
        counts: dict[str, list[int]] = {}
        for thing in things:
            entry = counts.setdefault(BY[by](self.sites[self.site_of[thing]]), [0, 0])
            entry[0] += 1
            entry[1] += self.nbytes(thing)
        found = [Held(key, count, nbytes) for key, (count, nbytes) in counts.items()]
        return sorted(found, key=lambda each: (-each.nbytes, -each.count, each.key))

    def nbytes(self, thing: int) -> int:
        """The bytes of one thing."""
        return self.sites[self.site_of[thing]].nbytes

    def as_dict(self) -> dict[str, Any]:
        """For JSON, small: microseconds and keys as differences, texts by their number in ``texts``."""
        texts: dict[str | None, int] = {None: 0}
        stacks: dict[tuple[str, ...], int] = {(): 0}
        columns: dict[str, list[int]] = {name: [] for name in Site._fields}
        for site in self.sites:
            columns["nbytes"].append(site.nbytes)
            columns["stack"].append(stacks.setdefault(site.stack, len(stacks)))
            for name in TEXTS:
                text: str | None = getattr(site, name)
                columns[name].append(texts.setdefault(text, len(texts)))
        return {
            "started": self.started,
            "lost": self.lost,
            "texts": list(texts),
            "stacks": [list(stack) for stack in stacks],
            "sites": columns,
            "site_of": list(self.site_of),
            "keys": _differences(list(self.keys)),
            "events": list(self.events),
            "times": _differences([round(each * 1e6) for each in self.times]),
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Recording:
        """What `as_dict` gave.  Errors: `KeyError`, `TypeError`, `ValueError`, `IndexError` for anything else."""
        texts, stacks = content["texts"], [tuple(stack) for stack in content["stacks"]]
        columns = []
        for name in Site._fields:
            column = content["sites"][name]
            if name == "nbytes":
                columns.append(column)
            else:
                columns.append([(stacks if name == "stack" else texts)[number] for number in column])
        return cls(
            started=content["started"],
            lost=content["lost"],
            times=array("d", [each / 1e6 for each in _sums(content["times"])]),
            events=array("q", content["events"]),
            keys=array("Q", _sums(content["keys"])),
            site_of=array("q", content["site_of"]),
            sites=[Site(*each) for each in zip(*columns, strict=True)],
        )


def _differences(numbers: list[int]) -> list[int]:
    return [each - before for before, each in zip([0, *numbers], numbers, strict=False)]


def _sums(numbers: list[int]) -> list[int]:
    total = 0
    return [total := total + each for each in numbers]
