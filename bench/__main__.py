"""``python -m bench [NAME ...] [-- PYTEST OPTIONS]``: measure the rows of each ``bench_NAME.py``, or of all files.

Non-zero when a row is below its bar.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

__all__ = ["main"]

HERE = Path(__file__).parent


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 1 when a row is below its bar or failed, 2 for a wrong call."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Ours against a peer, row by row, each with its bar.",
        epilog="What follows -- goes to pytest and pytest-benchmark: -- -k parent, -- --benchmark-autosave, ...",
        allow_abbrev=False,
    )
    parser.add_argument("name", nargs="*", help="files to run, without bench_ and .py (default: all of them)")
    parser.add_argument("--seconds", type=float, default=1.5, help="time for each row (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=HERE, help="where the bench files are (default: this one)")
    parser.add_argument(
        "--results", type=Path, default=HERE / "results", help="where the JSON goes (default: bench/results)"
    )
    given = list(sys.argv[1:] if argv is None else argv)
    end = given.index("--") if "--" in given else len(given)
    options = parser.parse_args(given[:end])
    missing = [name for name in ("pytest", "pytest_benchmark", "pytest_timeout") if find_spec(name) is None]
    if missing:
        parser.error(f"{', '.join(missing)} is not installed; make bench, or pip install -e '.[bench]', installs it")
    there = {path.stem.removeprefix("bench_"): path for path in sorted(options.folder.glob("bench_*.py"))}
    names = [Path(name).stem.removeprefix("bench_") for name in options.name] or list(there)
    unknown = [name for name in names if name not in there]
    if unknown:
        parser.error(f"there is no bench {', '.join(map(repr, unknown))}; there are {', '.join(there)}")
    return run([there[name] for name in names], options.seconds, options.results, given[end + 1 :])


def run(files: Sequence[Path], seconds: float, results: Path, passed_on: Sequence[str] = ()) -> int:
    """Measure the rows of some files, save the run, print the table; of one file alone its study too.

    Returns the exit status.
    """
    import pytest

    from bench.harness import Harness
    from bench.measure import Plan
    from bench.report import save, show
    from bench.row import ERROR, MISSED
    from bench.study import study_of

    harness = Harness(Plan(row_seconds=seconds))
    arguments = [
        "--rootdir", str(HERE.parent), "--config-file", str(HERE.parent / "pyproject.toml"),
        "--override-ini", "python_files=bench_*.py", "--override-ini", "python_functions=bench_*",
        "--override-ini", "timeout=600", "--verbose", "--no-header", "--tb=short", "-rN", "-p", "no:cacheprovider",
    ]  # fmt: skip
    status = int(pytest.main([*arguments, *passed_on, *map(str, files)], plugins=[harness]))
    if harness.rows:
        path = save(harness.rows, results)
        show(harness.rows)
        print(f"kept in {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
    if len(files) == 1 and not passed_on:
        publish = study_of(files[0])
        if publish is not None:
            print("measuring for the manual", flush=True)
            publish()
    return status or int(any(row.verdict in (MISSED, ERROR) for row in harness.rows))


if __name__ == "__main__":
    sys.exit(main())
