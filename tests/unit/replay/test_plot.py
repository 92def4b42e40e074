"""Miss-ratio curves, as a file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lifetimes.replay.plot import check_plot_file, plot_curves

CURVES = {"lru": [(1 << 20, 0.9), (1 << 24, 0.5)], "belady": [(1 << 24, 0.3), (1 << 20, 0.8)]}


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf", ".SVG"])
def test_a_plot_is_written(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"misses{suffix}"
    check_plot_file(str(path))
    plot_curves(CURVES, str(path), title="a trace")
    written = path.read_bytes()
    assert len(written) > 1000
    if suffix == ".svg":
        text = written.decode()
        for word in ("belady", "lru", "16 MiB", "a trace", "misses to uses"):
            assert word in text
        plot_curves(CURVES, str(path), title="a trace")
        assert path.read_text() == text, "the same curves give the same file"


def test_a_file_that_cannot_be_drawn_is_refused_before(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ends in none of \.svg, \.png, \.pdf"):
        check_plot_file("misses.txt")
    with pytest.raises(ValueError, match="there is no folder"):
        check_plot_file(str(tmp_path / "none" / "misses.svg"))


def test_without_the_package_that_draws_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ValueError, match=r"install the extra device-lifetimes\[plot\]"):
        check_plot_file("misses.svg")
