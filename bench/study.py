"""Studies: measurements that fill a page of the manual, beside the rows that only hold a bar.

A page keeps its words; what stands between ``<!-- measured: NAME -->`` and ``<!-- end of NAME -->`` is written anew by each
study.  A study runs after the rows of its bench file, if that is the only one asked for: ``make bench BENCH=tables``.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from runpy import run_path
from time import process_time
from typing import Any, Final

from bench.report import describe_machine

__all__ = ["DOCS", "apart", "best_pass", "markdown", "nanoseconds", "plot", "stamp", "study_of", "write_parts"]

DOCS: Final = Path(__file__).parent.parent / "docs" / "explanation"


def study_of(bench: Path) -> Callable[[], object] | None:
    """What ``study_NAME.py`` beside ``bench_NAME.py`` publishes with, or None if there is no such file."""
    path = bench.with_name(bench.name.replace("bench_", "study_", 1))
    if not path.exists():
        return None
    publish: Callable[[], object] = run_path(str(path))["publish"]
    return publish


def apart(module: str, *words: object) -> Any:
    """Run ``python -m MODULE WORDS`` in a process of its own, so that memory is measured from nothing; its JSON."""
    command = [sys.executable, "-m", module, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=DOCS.parent.parent)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout)


def best_pass(run: Callable[[], object], *, seconds: float = 0.15, fewest: int = 3, most: int = 2000) -> float:
    """Seconds of the quickest pass of several that take about so long together: the one that nobody disturbed.

    They are seconds of the processor, for all threads together: a pass is longer than the slices in which a system deals out
    its cores, and what others have of them does not count.
    """
    least, spent, passes = float("inf"), 0.0, 0
    while passes < fewest or (spent < seconds and passes < most):
        began = process_time()
        run()
        took = process_time() - began
        least, spent, passes = min(least, took), spent + took, passes + 1
        if spent > 20 * seconds:  # large ones are long enough to be believed after one
            break
    return least


def nanoseconds(seconds: float | None) -> str:
    """For a table: whole nanoseconds below a microsecond, else microseconds or milliseconds."""
    if seconds is None:
        return ""
    for scale, unit in ((1e-9, "ns"), (1e-6, "us"), (1e-3, "ms")):
        if seconds < 999.5 * scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table: words to the left, figures to the right."""
    rule = ["---" if at == 0 else "---:" for at in range(len(head))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))


def stamp() -> str:
    """Where and when, in a sentence."""
    machine = describe_machine()
    load = machine["load"]
    busy = f", shared with other work (load {load[0]:.1f})" if load and load[0] > 1.5 else ""
    return (
        f"Measured {datetime.now(UTC):%Y-%m-%d} on {machine['cpu']}, {machine['cores']} cores{busy}, "
        f"Python {platform.python_version()}."
    )


def write_parts(page: Path, parts: Mapping[str, str]) -> None:
    """Put the parts between their marks.  Errors: `ValueError` for a mark that the page does not have."""
    text = page.read_text()
    for name, content in parts.items():
        mark = re.compile(rf"(<!-- measured: {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        text, found = mark.subn(lambda match: f"{match[1]}\n{content}\n\n{match[2]}", text)  # noqa: B023 (used at once)
        if found != 1:
            raise ValueError(f"{page} has {found} places for {name!r}; mark one")
    page.write_text(text)


def plot(
    path: Path,
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    *,
    across: str,
    up: str,
    columns: int = 2,
    log: bool = True,
) -> None:
    """One small graph a panel, a line for each series, of one colour in all of them.

    The same data give the same SVG file.
    """
    matplotlib: Any = __import__("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = __import__("matplotlib.pyplot").pyplot
    rows = -(-len(panels) // columns)
    names = dict.fromkeys(name for series in panels.values() for name in series)
    colours = {name: f"C{at}" for at, name in enumerate(names)}
    with pyplot.rc_context({"svg.hashsalt": "lifetimes", "svg.fonttype": "none", "font.size": 8}):
        figure, axes = pyplot.subplots(
            rows, columns, figsize=(4.0 * columns, 2.9 * rows), layout="constrained", squeeze=False
        )
        for at, (title, series) in enumerate(panels.items()):
            each = axes[at // columns][at % columns]
            for name, points in series.items():
                style: dict[str, Any] = {"marker": "o", "markersize": 3, "linewidth": 1.2, "color": colours[name]}
                each.plot([x for x, _ in points], [y for _, y in points], label=name, **style)
            each.set_title(title, fontsize=9)
            each.set_xscale("log")
            if log:
                each.set_yscale("log")
            each.set_xlabel(across)
            each.set_ylabel(up)
            each.grid(alpha=0.3)
        axes[0][0].legend(fontsize=7)
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)
