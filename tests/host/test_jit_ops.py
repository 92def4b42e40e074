"""Each operation with each dtype on each target, in processes of their own: LLVM aborts where a target lacks something."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("llvmlite")

import numpy as np

import lifetimes
from lifetimes.compiler import settings, target
from lifetimes.compiler.cache import kernels
from lifetimes.compiler.emit import elementwise
from lifetimes.compiler.emit.elementwise import emit_row
from lifetimes.compiler.emit.writer import Writer
from lifetimes.compiler.ops import ROWS, Row
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
def test_what_a_row_does_not_compute_with_is_an_error_that_says_so(row: Row) -> None:
    for kind, dtype in {"b": "bool", "i": "int32", "u": "uint8", "f": "float32"}.items():
        if kind not in row.llvm:
            with pytest.raises(MissingRule, match=f"{row.name} does not compute with {dtype} on the target"):
                emit_row(Writer(), target.best(), row.name, np.dtype(dtype).name, ["%1", "%2", "%3"], 4)


def test_an_operation_that_the_target_lacks_is_named_by_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph has it, the code generator does not: an error before LLVM sees anything, and nothing is kept of it."""
    function = lifetimes.jit(lambda x: np.tanh(x) + 1)
    with lifetimes.open("host", memory_limit="1MiB") as device:
        x = device.asarray(np.ones(3, "float32"))
        with monkeypatch.context() as patch, settings.using(target.names()[0]):
            patch.setattr(elementwise, "ROWS", {**ROWS, "tanh": replace(ROWS["tanh"], llvm={"i": "add"})})
            kernels.clear()
            with pytest.raises(
                MissingRule, match=r"tanh does not compute with float32 on the target '\w+': cast to one of the s"
            ):
                function(x)
        np.testing.assert_allclose(function(x).numpy(), np.tanh(np.ones(3, "float32")) + 1, rtol=1e-6)
