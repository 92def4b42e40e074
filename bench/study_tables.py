"""The tables against each other, from a hundred keys to ten million; fills ``choosing-a-table.md``.

``python -m bench.study_tables TABLE COUNT PATTERN`` measures one table of one size and prints JSON; `publish` does them all,
each in a process of its own.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from array import array
from collections.abc import Callable
from functools import partial
from random import Random
from time import process_time
from typing import Any, Final, TypeAlias

import numpy as np
from sortedcontainers import SortedDict

import lifetimes
from bench.study import DOCS, apart, best_pass, markdown, nanoseconds, plot, stamp, write_parts
from lifetimes import tables
from lifetimes.tables.protocol import OrderedTable, Table

__all__ = ["beneath", "measure", "publish"]

COUNTS: Final = (100, 1_000, 10_000, 100_000, 1_000_000)
LARGEST: Final = 10_000_000
SLOW: Final = 2e-6
"""Tables that take longer than so many seconds for one insertion are not measured at the largest size: minutes."""
PATTERNS: Final = ("random", "device")
SHOWN: Final = ((100, "random"), (10_000, "random"), (1_000_000, "random"), (LARGEST, "random"), (1_000_000, "device"))
OPERATIONS: Final = ("insert", "get, fresh", "get, same", "mutate", "delete", "floor", "scan")
ORDERED_DICT: Final[dict[type, Any]] = {dict: SortedDict}
"""What a user would take in the place of the container, where that is ordered only by what the table adds."""
VALUE: Final = object()
FOR_MEMORY: Final = 100_000
"""Keys from which on the memory of a table stands out from that of the interpreter."""
LONG: Final = 1_000_000
"""Keys from which on one pass is enough, since it is long."""
PAGE: Final = DOCS / "choosing-a-table.md"


def keys_of(count: int, pattern: str) -> array[int]:
    """Any 64-bit numbers, or addresses as drivers give them: blocks one after the other, of 256 bytes to 2 MiB."""
    random = Random(count)
    if pattern == "random":
        return array("Q", np.random.default_rng(count).integers(0, 2**64, count, np.uint64).tobytes())
    addresses, at = array("Q"), 0x7F00_0000_0000
    for _ in range(count):
        addresses.append(at)
        at += 256 << random.choice((0, 0, 1, 2, 4, 4, 7, 10, 13))
    return addresses


def measure(name: str, count: int, pattern: str) -> dict[str, float]:
    """Seconds of one operation each, and bytes of an entry."""
    stored = keys_of(count, pattern)
    found: dict[str, float] = {}
    gc.collect()
    before = resident()
    table = tables.make(name)
    insert = table.insert
    for key in stored:  # an array gives a new int each time, so the table alone holds its keys
        insert(key, VALUE)
    del insert
    if count >= FOR_MEMORY:
        gc.collect()
        found["bytes"] = (resident() - before) / count
        if count < LARGEST and pattern == "random":
            churn(table, stored, found)
            found["bytes after churn"] = (resident() - before) / len(table)
    del table
    gc.collect()

    held = stored.tolist()
    order = np.random.default_rng(7).permutation(count)
    fresh = np.frombuffer(stored, np.uint64)[order].tolist()
    same = [held[at] for at in order.tolist()]
    mutated = fresh[: min(count, 200_000)]

    def fill() -> Table[Any]:
        made = tables.make(name)
        for key in held:
            made.insert(key, VALUE)
        return made

    found["insert"] = best_pass(fill) / count if count < LONG else 0.0
    began = process_time()
    full = fill()
    if count >= LONG:
        found["insert"] = (process_time() - began) / count
    found["get, fresh"] = best_pass(partial(each, full.get, fresh)) / count
    found["get, same"] = best_pass(partial(each, full.get, same)) / count
    found["mutate"] = best_pass(partial(each_with, full.mutate, mutated, unchanged)) / len(mutated)
    if isinstance(full, OrderedTable):
        inside = [key + 100 for key in fresh[:LONG] if key < 2**63]
        found["floor"] = best_pass(partial(each, full.floor, inside)) / len(inside)
    found["snapshot"] = best_pass(full.snapshot)
    found["scan"] = best_pass(lambda: through(full.snapshot())) / count
    passes = [emptied(full, fresh)] if count >= LONG else [emptied(fill(), fresh) for _ in range(5)]
    found["delete"] = min(passes) / count
    return found


def beneath(name: str) -> Callable[[], Any] | None:
    """The container that a table is made of: whose own bound `get` it hands out.  None for one that stands on nothing."""
    table = tables.make(name)
    owner = type(getattr(table.get, "__self__", table))
    if owner is type(table):
        return None
    return ORDERED_DICT.get(owner, owner) if isinstance(table, OrderedTable) else owner


def measure_bare(name: str, count: int) -> dict[str, float]:
    """The container beneath a table, asked directly: seconds of one operation each."""
    container: Any = beneath(name)
    keys = keys_of(count, "random").tolist()
    shuffled = Random(7).sample(keys, count)

    def fill() -> Any:
        made = container()
        for key in keys:
            made[key] = VALUE
        return made

    def empty() -> float:
        full = fill()
        began = process_time()
        for key in shuffled:
            del full[key]
        return process_time() - began

    full = fill()
    return {
        "insert": best_pass(fill) / count,
        "get, same": best_pass(partial(each, full.get, shuffled)) / count,
        "delete": min(empty() for _ in range(5 if count < LONG else 1)) / count,
    }


def churn(table: Table[Any], stored: array[int], found: dict[str, float]) -> None:
    """Twice, nine tenths of the keys go in any order and as many new ones come.

    Everything is kept in arrays, so that what is measured afterwards is the memory of the table and not of lists.
    """
    random = np.random.default_rng(7)
    keys = random.permutation(np.frombuffer(stored, np.uint64))
    turned = len(keys) * 9 // 10
    spent = 0.0
    for _ in range(2):
        gone = array("Q", keys[:turned].tobytes())
        new = array("Q", random.integers(0, 2**64, turned, np.uint64).tobytes())

        def turn(gone: array[int] = gone, new: array[int] = new) -> None:
            for key in gone:
                table.pop(key)
            for key in new:
                table.insert(key, VALUE)

        spent += best_pass(turn, fewest=1, most=1)
        keys = random.permutation(np.concatenate([keys[turned:], np.frombuffer(new, np.uint64)]))
    del keys, gone, new
    gc.collect()
    found["churn"] = spent / (4 * turned)


def each(call: Callable[[int], object], keys: list[int]) -> None:
    for key in keys:
        call(key)


def each_with(call: Callable[[int, Any], object], keys: list[int], argument: object) -> None:
    for key in keys:
        call(key, argument)


def unchanged(value: object) -> object:
    return value


def through(items: Any) -> None:
    for _ in items:
        pass


def emptied(table: Table[Any], keys: list[int]) -> float:
    """Seconds in which all keys go."""
    return best_pass(partial(each, table.pop, keys), fewest=1, most=1)


def resident() -> int:
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# The page.


Cells: TypeAlias = dict[tuple[str, int, str], dict[str, float]]
"""What was measured of a table, so many keys, a pattern."""


def publish() -> None:
    """Measure everything and write the page and its plot.  Takes a quarter of an hour, or so."""
    write_page(measure_all())


def measure_all() -> Cells:
    """Every table at every size."""
    cells: Cells = {}
    for pattern in PATTERNS:
        for count in (*COUNTS, LARGEST):
            for name in tables.names():
                if count == LARGEST and (pattern != "random" or cells[name, LONG, pattern]["insert"] > SLOW):
                    continue
                cells[name, count, pattern] = apart("bench.study_tables", name, count, pattern)
                print(f"  {pattern} {count:>10,} {name}", file=sys.stderr, flush=True)
    return cells


def write_page(cells: Cells) -> None:
    """The page and its plot, with what else it takes."""
    names = tables.names()
    parts = {"where": stamp(), "bare": against_bare(cells), "share": shares()}
    for count, pattern in SHOWN:
        rows = [
            [f"`{name}`", *(nanoseconds(cells[name, count, pattern].get(each)) for each in OPERATIONS)]
            for name in names
            if (name, count, pattern) in cells
        ]
        parts[f"{pattern} {count}"] = markdown([f"{count:,} keys", *OPERATIONS], rows)
    for pattern in PATTERNS:
        parts[f"all {pattern}"] = everything(cells, pattern)
    rows = []
    for name in names:
        cell = cells[name, 1_000_000, "random"]
        sizes = [f"{cell['bytes']:.0f}", f"{cell['bytes after churn']:.0f}"]
        rows.append([f"`{name}`", *sizes, nanoseconds(cell["churn"]), nanoseconds(cell["snapshot"])])
    head = ["1,000,000 keys", "bytes an entry", "after churn", "one write of the churn", "one snapshot"]
    parts["memory"] = markdown(head, rows)
    write_parts(PAGE, parts)
    panels = {
        f"{operation}, {pattern} keys": {
            name: [(count, cells[name, count, pattern][operation] * 1e9) for count in (*COUNTS, LARGEST)
                   if operation in cells.get((name, count, pattern), {})]
            for name in names if operation in cells[name, 100, pattern]
        }
        for operation, pattern in (("get, fresh", "random"), ("get, same", "random"), ("insert", "random"), ("floor", "device"))
    }  # fmt: skip
    plot(DOCS / "choosing-a-table.svg", panels, across="keys", up="ns")


def everything(cells: Cells, pattern: str) -> str:
    """All that was measured with keys of one pattern."""
    rows = []
    for count in (*COUNTS, LARGEST):
        for name in tables.names():
            cell = cells.get((name, count, pattern))
            if cell is not None:
                times = [nanoseconds(cell.get(each)) for each in (*OPERATIONS, "snapshot", "churn")]
                sizes = [f"{cell[each]:.0f}" if each in cell else "" for each in ("bytes", "bytes after churn")]
                rows.append([f"`{name}`", f"{count:,}", *times, *sizes])
    return markdown(["table", "keys", *OPERATIONS, "snapshot", "churn", "bytes", "after churn"], rows)


def against_bare(cells: Cells) -> str:
    """What a table's interface costs, as a multiple of the container's own operation."""
    rows = []
    for name in filter(beneath, tables.names()):
        for count in (100, 10_000, 1_000_000):
            bare = apart("bench.study_tables", "bare", name, count)
            ratios = [
                f"{cells[name, count, 'random'][each] / bare[each]:.2f}x" for each in ("get, same", "insert", "delete")
            ]
            rows.append([f"`{name}`", f"{count:,}", *ratios])
    return markdown(["table", "keys", "get", "insert", "delete"], rows)


def shares() -> str:
    """How much of a program's time its look-ups take."""
    rows = []
    for name in ("dict", "judy", "intmap"):
        for program, found in programs(name).items():
            share = found["uses"] * found["lookup"] / found["seconds"]
            rows.append([program, f"`{name}`", f"{found['uses']:,.0f}", nanoseconds(found["seconds"] / found["uses"]),
                         nanoseconds(found["lookup"]), f"{share:.2%}"])  # fmt: skip
    rows.sort(key=lambda row: row[0])
    return markdown(["program", "table", "uses", "time for each use", "of that in the look-up", "share"], rows)


def programs(name: str) -> dict[str, dict[str, float]]:
    """Each in a process of its own."""
    return {
        "`lifetimes demo`, 256 MiB under 64 MiB": apart("bench.study_tables", "demo", name),
        "replay of the trace, host, 256 MiB": apart("bench.study_tables", "replay", name, "host"),
        "replay of the trace, nothing moved, 256 MiB": apart("bench.study_tables", "replay", name, "null"),
        "uses of 10,000 resident arrays and nothing else": apart("bench.study_tables", "resident", name),
    }


def run_demo(name: str) -> dict[str, float]:
    """The demo, and the look-ups that its arrays would cost, each asked for anew."""
    from lifetimes.cli import main

    read, write = os.pipe()
    saved = os.dup(1)
    os.dup2(write, 1)
    try:
        main(["demo", "--table", name, "--json", "--quiet"])
        sys.stdout.flush()
    finally:
        os.dup2(saved, 1)
        os.close(write)
    with os.fdopen(read) as file:
        told = json.loads(file.read())
    uses = told["statistics"]["hits"] + told["statistics"]["misses"]
    return {"uses": uses, "seconds": told["seconds"]["work"], "lookup": one_lookup(name, 64)}


def run_replay(name: str, backend: str) -> dict[str, float]:
    """The recorded trace."""
    from lifetimes.replay.play import play
    from lifetimes.replay.trace import read_trace

    trace = read_trace(DOCS.parent.parent / "bench" / "data" / "cloudphysics-io.csv.gz")
    played = play(trace, backend=backend, table=name, limit=256 << 20, check=False, clock=process_time)
    return {"uses": played.uses, "seconds": played.seconds, "lookup": played.lookup_seconds}


def run_resident(name: str) -> dict[str, float]:
    """Nothing but uses."""
    with lifetimes.open("host", memory_limit="64MiB", table=name) as device:
        manager = device.manager
        keys = [manager.add(256) for _ in range(10_000)]

        def use_each() -> None:
            for key in keys:
                with manager.use(key):
                    pass

        for key in keys:
            with manager.use(key, "w"):
                pass
        seconds = best_pass(use_each)
        lookup = max(0.0, best_pass(partial(each, manager.table.get, keys)) - best_pass(partial(through, keys)))
    return {"uses": len(keys), "seconds": seconds, "lookup": lookup / len(keys)}


def one_lookup(name: str, count: int) -> float:
    """Seconds of one look-up among so many, without the loop around it."""
    table = tables.make(name)
    for key in range(count):
        table.insert(key, VALUE)
    keys = list(range(count)) * 100
    return max(0.0, best_pass(partial(each, table.get, keys)) - best_pass(partial(through, keys))) / len(keys)


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    runs: dict[str, Callable[..., dict[str, float]]] = {
        "demo": run_demo,
        "replay": run_replay,
        "resident": run_resident,
        "bare": lambda name, count: measure_bare(name, int(count)),
    }
    print(json.dumps(runs[what](*words) if what in runs else measure(what, int(words[0]), words[1])))
