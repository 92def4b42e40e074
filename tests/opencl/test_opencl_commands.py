"""The commands on this back end, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lifetimes.cli import main
from lifetimes_opencl import backend
from tests.opencl.here import require

RECORDED = Path(__file__).parents[2] / "bench/data/pyopencl-array-tests.csv.gz"


def said(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    status = main([*words, "--json"])
    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    return json.loads(out)


def test_doctor_lists_the_devices_with_their_versions(capsys: pytest.CaptureFixture[str]) -> None:
    index = require()
    (row,) = said(capsys, "doctor", "--backend", "opencl")["backends"]
    assert row["verdict"] == "works"
    device = row["devices"][index]
    assert (device["index"], device["problem"]) == (index, "")
    assert device["name"] == backend.devices()[index].name
    assert "PoCL" in device["version"]
    assert "driver" in device["version"]
    assert device["memory_bytes"] > 0


def test_demo_computes_out_of_core(capsys: pytest.CaptureFixture[str]) -> None:
    require()
    found = said(capsys, "demo", "--limit", "256KiB", "--backend", "opencl", "--device", "*pocl*")
    assert found["good"] is True
    assert found["within_limit"] is True
    assert found["statistics"]["evictions"] > 0


def test_replay_moves_and_compares_the_content(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require()
    random = Random(5)
    trace = tmp_path / "uses.csv"
    lines = [f"{time},{int(random.triangular(0, 40, 0))},4096" for time in range(300)]
    trace.write_text("\n".join(["time,key,nbytes", *lines, ""]))
    (run,) = said(capsys, "replay", str(trace), "--backend", "opencl", "--limit", "64KiB")["runs"]
    assert run["evictions"] > 0
    assert run["checked"] > 0
    assert run["wrong"] == 0


def test_replay_of_the_allocations_that_were_recorded_here(capsys: pytest.CaptureFixture[str]) -> None:
    require()
    (run,) = said(capsys, "replay", str(RECORDED), "--backend", "opencl", "--limit", "96MiB")["runs"]
    assert (run["backend"], run["misses"], run["too_large"]) == ("opencl", 2623, 0)
