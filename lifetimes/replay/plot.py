"""Miss-ratio curves: how often a use misses, over the memory there is, a line for each policy.  Needs the extra ``plot``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from lifetimes.sizes import format_bytes

__all__ = ["FORMATS", "check_plot_file", "plot_curves"]

FORMATS: Final = (".svg", ".png", ".pdf")


def check_plot_file(path: str) -> None:
    """Errors: `ValueError` for a suffix that is none of `FORMATS`, and without the package that draws."""
    if Path(path).suffix.lower() not in FORMATS:
        raise ValueError(f"{path!r} ends in none of {', '.join(FORMATS)}, which say how to draw it")
    parent = Path(path).absolute().parent
    if not parent.is_dir():
        raise ValueError(f"there is no folder {str(parent)!r} to put the plot into")
    _pyplot()


def plot_curves(curves: Mapping[str, Sequence[tuple[int, float]]], path: str, *, title: str = "") -> None:
    """Draw and save.  ``curves`` maps a name to (bytes, miss ratio) pairs; ``belady`` is drawn as the line to compare with.

    The same curves give the same SVG file.
    """
    pyplot = _pyplot()
    with pyplot.rc_context({"svg.hashsalt": "lifetimes", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure, axes = pyplot.subplots(figsize=(7.2, 4.4), layout="constrained")
        try:
            for name, points in curves.items():
                ordered = sorted(points)
                style: dict[str, Any] = {"marker": "o", "markersize": 3.5, "linewidth": 1.4}
                if name == "belady":
                    style |= {"color": "black", "linestyle": "--", "marker": ""}
                axes.plot([nbytes for nbytes, _ in ordered], [ratio for _, ratio in ordered], label=name, **style)
            axes.set_xscale("log", base=2)
            sizes = sorted({nbytes for points in curves.values() for nbytes, _ in points})
            axes.set_xticks(sizes, [format_bytes(nbytes) for nbytes in sizes], rotation=30, fontsize=8)
            axes.minorticks_off()
            axes.set_xlabel("device memory")
            axes.set_ylabel("misses to uses")
            axes.set_ylim(0, 1)
            axes.grid(alpha=0.3)
            axes.legend(fontsize=8)
            if title:
                axes.set_title(title, fontsize=10)
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.lower().endswith(".svg") else None)
        finally:
            pyplot.close(figure)


def _pyplot() -> Any:
    try:
        matplotlib = import_module("matplotlib")
    except ImportError as error:
        raise ValueError(
            f"plots are drawn by matplotlib: install the extra device-lifetimes[plot] ({error})"
        ) from error
    matplotlib.use("Agg", force=False)
    return import_module("matplotlib.pyplot")
