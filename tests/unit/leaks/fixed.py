"""A report that is always the same."""

from __future__ import annotations

from lifetimes.leaks import LiveThing, Report
from lifetimes.leaks.reasons import Reason
from lifetimes.leaks.recording import Recording, Site
from lifetimes.leaks.snapshots import of_rows

__all__ = ["ROWS", "fixed_report", "large_report"]

STEP = ("/src/train.py:12 in step", "/src/train.py:30 in epoch", "/src/train.py:44 in <module>")
LOAD = ("/src/data.py:7 in load <&>", "/src/train.py:40 in <module>")


def row(key: int, kind: str, nbytes: int, label: str | None, stack: tuple[str, ...], **more: object) -> LiveThing:
    about: dict[str, object] = {
        "state": "live", "children": 0, "pins": 0, "pending": 0, "exports": 0, "parents": (1,), "age": key / 4,
        "thread": "MainThread", "scope": "epoch/step", "device": "host:0",
    }  # fmt: skip
    return LiveThing(
        key=key,
        kind=kind,
        nbytes=nbytes,
        label=label,
        stack=stack,
        origin=stack[0] if stack else None,
        **(about | more),  # type: ignore[arg-type]
    )


ROWS = [
    row(1, "device", 0, "host:0", LOAD, parents=(), children=4, scope=""),
    row(4, "array", 2_000_000, "weights", LOAD, scope=""),
    row(7, "array", 4096, "chunk 0", STEP),
    row(8, "array", 4096, "chunk 1", STEP, pins=1, thread="loader"),
    row(9, "event", 0, None, STEP, state="dropped", pending=1),
    row(11, "buffer", 64, "</script><b>", (), age=None, thread=None, scope=None, device=None, parents=()),
]


def fixed_report() -> Report:
    """Leaks, others, something collected, a history with a peak."""
    recording = Recording(started=1_700_000_000.0)
    sites = [
        Site(each.kind, each.label, each.device, each.nbytes, each.scope, each.thread, each.stack) for each in ROWS
    ]
    big = Site("array", "scratch", "host:0", 3_000_000, "epoch/step", "MainThread", STEP)
    numbers = [recording.make(0.25 * at, row.key, site) for at, (row, site) in enumerate(zip(ROWS, sites, strict=True))]
    scratch = recording.make(2.0, 12, big)
    recording.release(2.5, scratch)
    recording.release(2.75, numbers[-1])
    return Report(
        snapshot=of_rows(ROWS, taken=1_700_000_003.0, process="1-1"),
        reasons={
            7: Reason(7, "array 'chunk 0' #7", "global", "kept[0]", "__main__"),
            8: Reason(8, "array 'chunk 1' #8", "pin", "a pin (copy), not given back: kept[1]", "__main__"),
            9: Reason(9, "event #9", "pending", "work in flight: Copy, which has not completed"),
            1: Reason(1, "device 'host:0' #1", "child", "its child array 'chunk 0' #7, held by kept[0]", "__main__", 7),
        },
        recording=recording,
        title="alive at the end, not counted as leaks",
        leaked=frozenset({7, 8, 9}),
        collected=of_rows([row(10, "array", 800, "in a cycle", STEP)], taken=1_700_000_003.0, process="1-1"),
        created=1_700_000_003.0,
    )


def large_report() -> Report:
    """The same with a history of more than a hundred thousand events."""
    report = fixed_report()
    recording = report.recording
    assert recording is not None
    sites = recording.sites[:5]
    held: list[int] = []
    for number in range(50_000):
        site = sites[number * 7 % 5]._replace(label=f"chunk {number % 300}")
        held.append(recording.make(3 + number * 2e-4, 100 + 2 * number, site))
        recording.release(3 + number * 2e-4 + 1e-4, held.pop(number * 13 % len(held)))
    return report
