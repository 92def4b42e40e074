"""The page on tables and policies of one's own, followed to the letter: what it shows passes the suites it tells to run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.documentation import blocks

PAGE = Path(__file__).parents[3] / "docs/how-to/add-a-table-or-policy.md"


def test_the_examples_pass_the_suites(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text("\n".join(block.source for block in blocks(PAGE)))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_own.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
