"""The page on four callables, run as it stands over PyOpenCL's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.documentation import blocks
from tests.opencl.here import require

PAGE = Path(__file__).parents[2] / "docs/how-to/manage-memory-with-four-callables.md"


def test_the_page_on_four_callables_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    index = require()
    from lifetimes_opencl import probing

    found = probing.working()[index]
    monkeypatch.setenv("PYOPENCL_CTX", f"{found.platform_index}:{found.device_index}")
    needs = [block for block in blocks(PAGE) if "OpenCL" in block.not_run]
    first, second = needs
    assert len(first.source.strip().splitlines()) <= 15, "fifteen lines, as promised"
    scope: dict[str, Any] = {}
    for block in (first, second):
        exec(compile("\n" * block.line + block.source, str(PAGE), "exec"), scope)
    assert int(capsys.readouterr().out.split()[0]) >= 12
