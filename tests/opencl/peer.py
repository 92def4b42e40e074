"""Run PyOpenCL's own tests of its arrays on memory of ours: ``python -m tests.opencl.peer [--quick] [LOG] [-- OPTIONS]``.

The tests come from the source distribution of the release that is installed, which pip downloads for this run.  What
does not pass with us is run once more without us, and counts only if it passes then.  ``--quick`` leaves out the tests
that compile for long, which leaves half the time.  ``LOG`` names a file for the log of allocations, gzipped; ``OPTIONS``
are pytest's.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.opencl.here import expected_here, pocls

ROOT = Path(__file__).parents[2]
FILE = "test_array.py"
LEFT_OUT = {
    "test_arrays_with_svm_allocators": "it frees shared memory bound to a queue, with PyOpenCL's own allocator; "
    "with PoCL 3.0 that ends the process in one run of six, without anything of ours",
}
"""Tests that are not run, and why."""
COMPILE_FOR_LONG = (
    "test_mix_complex",
    "test_bitwise",
    "test_divide_scalar",
    "test_dtype_conversions",
    "test_divide_inplace_array",
    "test_comparisons",
)
"""Three fifths of the time of a first run, when nothing is in the runtime's cache."""


def download(folder: Path) -> Path:
    """The test file of the installed release.  Errors: `CalledProcessError` when pip cannot have it."""
    release = f"pyopencl=={version('pyopencl')}"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download"]
    subprocess.run([*pip, "--no-deps", "--no-binary", "pyopencl", "--dest", str(folder), release], check=True)
    (archive,) = folder.glob("pyopencl-*.tar.gz")
    with tarfile.open(archive) as tar:
        member = next(each for each in tar.getmembers() if each.name.endswith(f"/test/{FILE}"))
        content = tar.extractfile(member)
        assert content is not None
        (folder / FILE).write_bytes(content.read())
    return folder / FILE


def run(tests: Path, options: list[str], chosen: list[str], **environment: str) -> tuple[dict[str, str], int]:
    """The outcome of each chosen test, and how many allocations were ours."""
    outcomes = tests.parent / "outcomes.json"
    outcomes.unlink(missing_ok=True)
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.opencl.peer_plugin", "-p", "no:cacheprovider"]
    command += ["--rootdir", str(tests.parent), "--config-file", os.devnull, "--timeout", "600", *options, *chosen]
    subprocess.run(
        command,
        cwd=tests.parent,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "PEER_OUTCOMES": str(outcomes), **environment},
    )
    if not outcomes.exists():
        raise SystemExit("the run of the tests ended before its end")
    found: dict[str, Any] = json.loads(outcomes.read_text())
    return found["outcomes"], found["calls"]


def main(words: list[str]) -> int:
    """The exit status: 1 when something passes without us and not with us."""
    own, options = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    quick, logs = "--quick" in own, [word for word in own if word != "--quick"]
    if not pocls():
        print("no PoCL here, on which the tests could run")
        return int(expected_here())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tests = download(folder)
        log = folder / "log.csv"
        left_out = [*LEFT_OUT, *(COMPILE_FOR_LONG if quick else ())]
        chosen = [f"--deselect={FILE}::{test}" for test in left_out]
        ours, calls = run(tests, options, [*chosen, FILE], PEER_LOG=str(log))
        open_ones = [test for test, outcome in ours.items() if outcome != "passed"]
        without = run(tests, options, open_ones, PEER_WITHOUT="1")[0] if open_ones else {}
        lost = [test for test in open_ones if without.get(test) == "passed"]
        if logs:
            Path(logs[0]).write_bytes(gzip.compress(log.read_bytes(), 9, mtime=0))
    passed = sum(outcome == "passed" for outcome in ours.values())
    print(f"PyOpenCL {version('pyopencl')}, {FILE}: {passed} of {len(ours)} passed on {calls} allocations of ours")
    for test, reason in LEFT_OUT.items():
        print(f"left out: {test}: {reason}")
    if quick:
        print(f"left out because they compile for long: {', '.join(COMPILE_FOR_LONG)}")
    print(f"not passed, nor without us: {len(open_ones) - len(lost)}; lost by us: {len(lost)}", *lost, sep="\n  ")
    return int(bool(lost) or not calls)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
