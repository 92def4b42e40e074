"""Nothing piles up: the runtime's own reference counts and the memory of the process, over many lives of each thing.

``LIFETIMES_CYCLES`` says how many: few by default, for every day; 10000 is what was measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.opencl.cycles import STATM, THINGS
from tests.opencl.here import require

CYCLES = int(os.environ.get("LIFETIMES_CYCLES", "300"))
SLACK = 1 << 20
"""What allocators may keep for themselves, in bytes, however many cycles there are."""

pytestmark = [
    pytest.mark.skipif(not STATM.exists(), reason="this system does not say how large a process is"),
    pytest.mark.timeout(60 + CYCLES / 20),
]


@cache
def measured(memory: str) -> Any:
    result = subprocess.run(
        [sys.executable, "-m", "tests.opencl.cycles", memory, str(CYCLES)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.parametrize("thing", THINGS)
@pytest.mark.parametrize("memory", ["fine", "coarse", "buffers"])
def test_nothing_piles_up(memory: str, thing: str) -> None:
    require()
    found = measured(memory)[thing]
    if thing == "planted":
        assert found["bytes"] > SLACK, "a planted leak is seen"
        return
    assert found["bytes"] < SLACK, f"{found['bytes']:,} bytes more after {found['cycles']} cycles of {thing}"
    assert found["after"] == found["before"]
