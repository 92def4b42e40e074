"""Each operation with each dtype on each target, in processes of their own: LLVM aborts where a target lacks something."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("llvmlite")

import numpy as np

from lifetimes.compiler import target
from lifetimes.compiler.emit.elementwise import emit_row
from lifetimes.compiler.emit.writer import Writer
from lifetimes.compiler.ops import ROWS
from lifetimes.errors import MissingRule

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", target.names())
def test_every_operation_with_every_dtype(name: str) -> None:
    """The widest target with all dtypes, the others with one of each kind."""
    quick = [] if name == target.names()[-1] else ["quick"]
    command = [sys.executable, "-m", "tests.jit_completeness", name, *quick]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:  # once more, to name what it is
        done = subprocess.run([*command, "singly"], cwd=ROOT, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    failed = [line for line in lines if line.startswith("FAILED")]
    assert not failed, "\n".join(failed[:20])
    assert lines, done.stderr
    assert lines[-1] == "all was tried", f"the process died ({done.returncode}) at: {lines[-1]}\n{done.stderr[-2000:]}"


def test_an_abort_names_what_it_died_of() -> None:
    """The check is checked: a process that dies does not look like one that is done."""
    program = "import tests.jit_completeness as t, os; t.check = lambda *args: os.abort(); t.main('sse2', True, True)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode < 0
    assert done.stdout.splitlines()[-1] == "add bool 0"


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.name)
def test_what_a_row_does_not_compute_with_is_an_error_that_says_so(row: object) -> None:
    for kind, dtype in {"b": "bool", "i": "int32", "u": "uint8", "f": "float32"}.items():
        if kind not in row.llvm:  # type: ignore[attr-defined]
            with pytest.raises(MissingRule, match=f"{row.name} does not compute with {dtype}"):  # type: ignore[attr-defined]
                emit_row(Writer(), target.best(), row.name, np.dtype(dtype).name, ["%1", "%2", "%3"], 4)  # type: ignore[attr-defined]
