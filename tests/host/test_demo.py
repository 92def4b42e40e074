"""`lifetimes demo`: it does what it says, notices when something is wrong, and refuses what cannot work in one line."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lifetimes
from lifetimes.cli import demo_check, demo_leak, demo_progress, demo_steps, demo_work, main
from lifetimes.cli.demo_data import GeneratedSource
from lifetimes.cli.demo_outcome import Outcome
from lifetimes.cli.demo_plan import fits, minimum_limit, plan, size_of_generated, written
from lifetimes.origins import get_stacks
from lifetimes.sizes import parse_size
from lifetimes_host import HostDriver

ROWS, COLUMNS = 3000, 20
HERE = Path(__file__)


def run(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict:
    """The demo's JSON."""
    assert main(["demo", "--json", *words]) == status
    said = capsys.readouterr()
    assert said.err == ""
    return json.loads(said.out)


def refuse(capsys: pytest.CaptureFixture[str], *words: str, status: int = 2) -> str:
    """The one line with which the demo refuses."""
    assert main(["demo", *words]) == status
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("lifetimes demo: ")
    assert said.err.count("\n") == 1, said.err
    return said.err


def measured(seed: int = 0) -> np.ndarray:
    """Numbers up to 100 or so, with directions of clearly different strength."""
    random = np.random.default_rng(seed)
    return random.standard_normal((ROWS, COLUMNS)) * 20.0 * 0.6 ** np.arange(COLUMNS)


def save(folder: Path, array: np.ndarray, name: str = "x.npy") -> str:
    np.save(folder / name, array)
    return str(folder / name)


def test_the_work_is_done_under_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "--limit", "2MiB")
    assert found["good"] is True
    limit, done = 2 << 20, found["statistics"]
    assert found["limit_bytes"] == done["limit"] == limit
    assert found["data"]["bytes"] >= 4 * limit
    assert limit / 16 < found["data"]["chunk_bytes"] <= limit / 8
    assert limit / 2 < done["peak_bytes"] <= limit
    passes = found["passes"]
    assert passes.keys() == {"statistics", "centring", "power", "deflation"}
    assert passes["power"] > 20
    # The data do not fit, so each pass brings all of them anew; three passes change all of them, and all are copied back.
    assert done["upload_bytes"] > sum(passes.values()) * found["data"]["bytes"] * 0.9
    assert done["copyback_bytes"] > 2.9 * found["data"]["bytes"]
    assert done["evictions"] > found["data"]["chunks"] * sum(passes.values())
    assert done["pinned"] == 0
    assert done["lookups"] > done["hits"] / 200
    assert found["lookup_share"] > 0
    assert found["compiled"] is True
    assert found["why_not_compiled"] == ""
    assert {row["what"] for row in found["errors"]} >= {"mean", "standard deviation", "Gram matrix", "eigenvalues"}
    assert all(row["good"] and row["tolerance"] is not None for row in found["errors"])


def test_the_leak_is_shown_with_the_line_that_made_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "--limit", "256KiB")
    [leak] = found["leaks"]
    assert Path(leak["file"]) == Path(demo_leak.__file__)
    lines = Path(leak["file"]).read_text().splitlines()
    assert (
        lines[leak["line"] - 1].strip()
        == leak["made_by"]
        == ('scaled = device.empty(head.shape, label="scaled preview")')
    )
    assert leak["function"] == "preview"
    assert leak["thing"]["kind"] == "array"
    assert leak["thing"]["label"] == "scaled preview"
    assert leak["thing"]["nbytes"] == 8 * found["data"]["columns"] * 64
    assert found["leak_mended"] is True
    assert found["left_alive"] == []
    assert not demo_leak._previews


def test_the_search_knows_nothing_of_the_plant(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    """A leak that is planted elsewhere is found there, and two are found as two."""
    kept: list[object] = []

    def keep_two(device, rows) -> None:
        kept.append(device.asarray(rows[:2], label="one"))
        kept.append(device.empty(7, label="two"))  # the line of the second

    monkeypatch.setattr(demo_steps, "preview", keep_two)
    found = run(capsys, "--limit", "256KiB", status=1)
    assert [leak["thing"]["label"] for leak in found["leaks"]] == ["one", "two"]
    assert {leak["file"] for leak in found["leaks"]} == {str(HERE)}
    assert found["leaks"][1]["made_by"].endswith("# the line of the second")
    assert found["leak_mended"] is False
    assert found["left_alive"] == []  # closing the device released them
    kept.clear()


def test_without_a_leak_it_says_so(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(demo_steps, "preview", lambda device, rows: device.asarray(rows).numpy())
    assert main(["demo", "--limit", "256KiB"]) == 1
    assert "One leak was planted; 0 were found" in capsys.readouterr().out


def test_what_is_left_alive_is_told(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    left: list[lifetimes.Lifetime] = []
    compute = demo_work.compute

    def and_leave(*args):
        left.append(lifetimes.Lifetime("handle", kind="stray"))
        return compute(*args)

    monkeypatch.setattr(demo_steps, "compute", and_leave)
    assert main(["demo", "--limit", "256KiB"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "but 1 still live: stray #" in said
    left.pop().close()


def test_the_summary_fits_80_columns_and_says_it_all(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["demo", "--limit", "256KiB", "--table", "judy"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert all(len(line) <= 80 for line in said.out.splitlines())
    for word in ("table judy", "policy lru", "4 times the limit", "evictions", "copy-backs", "uploads", "look-ups",
                 "% of the time", "never above the limit", "compiled by lifetimes.jit",
                 "found their array on the device", "against NumPy", "a leak, found", "in preview, line",
                 "device.empty(head.shape", "lifetimes.live() is empty"):  # fmt: skip
        assert word in said.out, word
    assert "TOO LARGE" not in said.out


def test_what_lived_before_is_no_leak(capsys: pytest.CaptureFixture[str]) -> None:
    mine = lifetimes.Lifetime("handle", kind="mine")
    assert main(["demo", "--limit", "256KiB"]) == 0
    assert "lifetimes.live() has the 1 that it had before" in " ".join(capsys.readouterr().out.split())
    mine.close()


def test_recording_of_origins_is_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    before = get_stacks()
    run(capsys, "--limit", "256KiB")
    assert get_stacks() == before


def test_without_a_compiler_it_says_so_and_computes_all_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    import lifetimes.compiler.jit  # before `require_llvm` is another's: who imports it copies the name
    from lifetimes.compiler import target

    def lacks() -> None:
        raise lifetimes.BackendError("the compiler needs llvmlite: pip install 'device-lifetimes[jit]'")

    monkeypatch.setattr(target, "require_llvm", lacks)
    found = run(capsys, "--limit", "256KiB")
    assert found["good"] is True
    assert found["compiled"] is False
    assert main(["demo", "--limit", "256KiB"]) == 0
    assert "not compiled: the compiler needs llvmlite: pip install 'device-lifetimes[jit]'" in " ".join(
        capsys.readouterr().out.split()
    )


def test_a_device_that_runs_no_code_of_the_processor(capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "--limit", "256KiB", "--backend", "sim")
    assert found["compiled"] is False
    assert "addresses are no addresses of this process" in found["why_not_compiled"]
    assert found["good"] is True


@pytest.mark.parametrize("words", [("--table", "sorted"), ("--table", "judy"), ("--backend", "sim", "--device", "1"),
                                   ("--backend", "sim", "--device", "*device 1"),
                                   ("--table", "lifetimes.tables.sorted:SortedTable"),
                                   ("--policy", "lifetimes.policies.lru:LRUPolicy")])  # fmt: skip
def test_parts_are_interchangeable(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "--limit", "256KiB", *words)
    assert found["good"] is True
    assert found["options"][words[0][2:]] == words[1]


def test_a_policy_of_ones_own_lies_in_the_working_folder(tmp_path: Path) -> None:
    (tmp_path / "own_parts.py").write_text(
        "from lifetimes.policies.lru import LRUPolicy\n\n\nclass Mine(LRUPolicy):\n    pass\n"
    )
    program = "import sys; sys.path.remove(''); from lifetimes.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["demo", "--limit", "256KiB", "--policy", "own_parts:Mine"]
    done = subprocess.run([sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# The check is checked: each planted fault is seen.


@pytest.mark.parametrize(
    ("name", "fault", "seen"),
    [
        ("add_statistics", lambda x, total, low, high: (total + np.sum(x, axis=0) * 1.0001, low, high), "mean"),
        ("centre", lambda x, mean: x + 0.0 * mean, "Gram matrix"),
        ("unit", lambda vector: vector * 0.0 + vector.shape[0] ** -0.5, "eigenvectors, residual"),
        ("deflate", lambda x, score, vector: x + 0.0 * score[:, None], "eigenvalues"),
        ("gather", lambda x, score, product: product + np.nan, "eigenvalues"),
    ],
)
def test_a_wrong_number_is_seen(name: str, fault, seen: str, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(demo_work, name, fault)
    assert main(["demo", "--limit", "256KiB"]) == 1
    said = capsys.readouterr().out
    assert any(seen in line and "TOO LARGE" in line for line in said.splitlines()), said
    assert "Something is not as it should be" in said


def test_a_lost_copy_back_is_seen(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    """If an eviction brought back something else, the numbers would tell."""

    def zeros(self, destination, address, stream) -> None:
        destination[...] = 0

    monkeypatch.setattr(HostDriver, "copy_out", zeros)
    found = run(capsys, "--limit", "256KiB", status=1)
    assert found["good"] is False
    assert not all(row["good"] for row in found["errors"])


def test_a_broken_limit_is_seen() -> None:
    outcome = Outcome({}, plan(1 << 20, 10, 10, "x"), "x")
    assert not outcome.within_limit
    assert not outcome.good


# Data of a user's own.


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "g", ">f8", "<i8", "u1", "i2", "?"])
def test_any_real_matrix_will_do(dtype: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    array = (np.abs(measured()) % 200).astype(dtype)
    found = run(capsys, "--data", save(tmp_path, array))
    assert found["good"] is True
    assert (found["data"]["rows"], found["data"]["columns"]) == array.shape
    wide = array.astype(np.float64)
    centred = wide - wide.mean(axis=0)
    values = np.linalg.eigvalsh(centred.T @ centred)[::-1][:3]
    allowed = 1e-6 + sum(found["settled_to"])
    assert np.allclose(found["eigenvalues"], values, atol=allowed * values[0], rtol=0)


def test_a_quarter_of_the_data_is_the_limit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = run(capsys, "--data", save(tmp_path, np.asfortranarray(measured())))
    assert found["limit_bytes"] == ROWS * COLUMNS * 8 // 4
    assert found["statistics"]["evictions"] > 0
    assert all(row["tolerance"] is not None for row in found["errors"])


def test_the_file_is_left_as_it_was(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It is mapped and borrowed, and the demo changes its arrays."""
    path = save(tmp_path, measured())
    before = Path(path).read_bytes()
    run(capsys, "--data", path)
    assert Path(path).read_bytes() == before


@pytest.mark.parametrize(
    "array",
    [
        np.full((1, 1), 3.0),
        np.arange(100.0).reshape(100, 1),
        np.arange(10.0).reshape(1, 10),
        np.full((200, 6), 7.0),  # does not vary
        np.outer(np.arange(1000.0), np.arange(1.0, 9.0)),  # rank 1
        np.tile(np.eye(5), (200, 1)),  # all directions alike
        np.random.default_rng(5).random((1000, 12)),  # nearly alike: power iteration is stopped
        measured() + 1e9,  # the mean is all there is to see
        measured() * 1e-60,
        measured() * 1e60,
        np.zeros((50, 3)),
    ],
    ids=["one", "column", "row", "constant", "rank-1", "equal", "random", "offset", "small", "large", "zero"],
)
def test_awkward_matrices(array: np.ndarray, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = run(capsys, "--data", save(tmp_path, array))
    assert found["good"] is True, found["errors"]


def test_an_iteration_that_was_stopped_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = save(tmp_path, np.random.default_rng(5).random((1000, 12)))
    assert main(["demo", "--data", path]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Stopped after 60 passes before it had settled: eigenvector 1" in said
    assert "not judged" in said


def test_data_that_fit_are_no_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["demo", "--data", save(tmp_path, measured()), "--limit", "8MiB"]) == 0
    assert "Nothing was evicted" in capsys.readouterr().out


def with_values(**values: float) -> np.ndarray:
    array = measured()
    for place, value in values.items():
        row, column = map(int, place.strip("_").split("_"))
        array[row, column] = value
    return array


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (with_values(_2999_3=np.nan), ["1 value that is not finite", "row 2999, column 3"]),
        (with_values(_7_2=np.nan, _7_1=np.inf, _50_0=-np.inf), ["3 values that are not finite", "row 7, column 1"]),
        (measured() * 1e100, ["the largest value", "scale the matrix"]),
        (measured() * 1e-100, ["the largest value", "scale the matrix"]),
        (np.ones(5), ["1 dimension (5)", "give a matrix"]),
        (np.float64(3), ["0 dimensions (a single number)"]),
        (np.ones((2, 2, 2)), ["3 dimensions (2 x 2 x 2)"]),
        (np.ones((4, 4)) + 1j, ["complex128"]),
        (np.array([[1, None]], dtype=object), ["Python objects", "numeric dtype"]),
        (np.array([["a", "b"]]), ["<U1", "not numbers"]),
        (np.zeros((3, 3), "M8[s]"), ["datetime64[s]"]),
        (np.zeros((3, 3), [("a", "i4")]), ["not numbers"]),
        (np.zeros((0, 5)), ["empty (0 x 5)"]),
        (np.zeros((5, 0)), ["empty (5 x 0)"]),
        (np.zeros((2, 3000)), ["3000 columns", "68.7 MiB", "--limit 147MiB or more"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_matrix_that_cannot_be_used(
    content: np.ndarray, says: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    line = refuse(capsys, "--data", save(tmp_path, content))
    for part in says:
        assert part in line


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("missing.npy", None, "there is no file"),
        ("junk.npy", b"hello", "is no .npy file, or a damaged one"),
        ("empty.npy", b"", "is no .npy file, or a damaged one"),
        ("header.npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f8'}", "is no .npy file, or a damaged one"),
        ("", None, "the name of the file is empty"),
        (".", None, "is no ordinary file"),
    ],
)
def test_a_file_that_cannot_be_used(
    name: str, content: bytes | None, says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name).write_bytes(content)
    assert says in refuse(capsys, "--data", name)


def test_a_file_that_is_cut_off_or_an_archive(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = save(tmp_path, measured())
    os.truncate(path, 5000)
    assert "damaged" in refuse(capsys, "--data", path)
    np.savez(tmp_path / "x.npz", a=measured())
    assert "archive" in refuse(capsys, "--data", str(tmp_path / "x.npz"))
    gc.collect()  # an archive left open would be a ResourceWarning, an error here


# Bad input otherwise.


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--limit", "0"), "leaves nothing"),
        (("--limit", "-5MiB"), "'-5MiB' is no size"),
        (("--limit", ""), "'' is no size"),
        (("--limit", "1XB"), "no unit that is known"),
        (("--limit", "10KiB"), "the minimum is 64KiB"),
        (("--limit", "100000TiB"), "more than the"),
        (("--limit", "0%"), "no share"),
        (("--limit", "50%"), "give a smaller --limit"),  # the data are four times that, and have to be somewhere
        (("--backend", "hots"), "did you mean host?"),
        (("--device", "3"), "has no device 3; there are: 0"),
        (("--backend", "sim", "--device", "no such"), "'no such'; there are 0: simulated device 0"),
        (("--table", "jduy"), "--table: unknown table 'jduy': there are dict, "),
        (("--table", "math:pi"), "'math:pi' is no table"),
        (("--policy", "mru"), "--policy: unknown policy 'mru': there "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_is_one_line(words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert says in refuse(capsys, *words)


def test_the_minimum_that_is_named_serves(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--limit", "64KiB")["good"] is True
    refuse(capsys, "--limit", str((64 << 10) - 1))


@pytest.mark.parametrize("columns", [1, 7, 20, 100, 400, 3000])
def test_the_limit_that_is_named_is_the_smallest_or_close(columns: int) -> None:
    limit = minimum_limit(columns)
    assert parse_size(written(limit)) == limit
    assert fits(limit, columns)
    unit = 1 << 10 if limit <= 1 << 20 else 1 << 20
    assert not fits(limit - limit // 8 - unit, columns)


def test_the_plan_covers_every_row_once() -> None:
    for limit in (64 << 10, 1 << 20, 64 << 20):
        rows, columns = size_of_generated(limit)
        cut = plan(limit, rows, columns, "x")
        assert 4 * limit <= cut.data_bytes < 4 * limit + 8 * columns
        stops = [cut.stop(start) for start in cut.starts]
        assert list(cut.starts) == [0, *stops[:-1]]
        assert stops[-1] == rows


def test_generated_data_are_the_same_each_time() -> None:
    assert np.array_equal(GeneratedSource(8).read(16, 32), GeneratedSource(8).read(16, 32))
    assert not np.array_equal(GeneratedSource(8).read(16, 32), GeneratedSource(8).read(32, 48))


# Interrupts and terminals.


@pytest.mark.parametrize("after", [3, 100, 500])
def test_an_interrupt_leaves_nothing_open(after: int, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    """While loading, in the passes, in the check: nothing lives afterwards (see tests/conftest.py)."""
    each, left = demo_progress.ProgressBar.each, [after]

    def counting(self, items, what):
        for item in each(self, items, what):
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
            yield item

    monkeypatch.setattr(demo_progress.ProgressBar, "each", counting)
    assert main(["demo", "--limit", "256KiB"]) == 130
    assert left == [0]
    assert capsys.readouterr() == ("", "lifetimes demo: interrupted\n")
    assert get_stacks() == "off"


@pytest.mark.parametrize("name", ["add_statistics", "gather"])
def test_a_failure_is_one_line(name: str, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    """Where functions are compiled while they are, elsewhere on the device."""

    def fail(*args) -> None:
        raise ValueError("the unit\nis on fire")

    monkeypatch.setattr(demo_work, name, fail)
    assert "the unit is on fire" in refuse(capsys, "--limit", "256KiB", status=1)
    line = refuse(capsys, "--limit", "256KiB", "--backend", "sim", status=1)
    assert "is lost: " in line
    assert "is on fire" in line


def test_the_command_is_silent_on_stderr(tmp_path: Path) -> None:
    """As a user runs it, with every warning an error."""
    command = [sys.executable, "-X", "dev", "-W", "error", "-m", "lifetimes", "demo", "--limit", "2MiB"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert 'scaled = device.empty(head.shape, label="scaled preview")' in done.stdout


@pytest.mark.parametrize("words", [[], ["--quiet"]])
def test_progress_is_shown_on_a_terminal_and_not_with_quiet(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["demo", "--limit", "256KiB", *words]) == 0
    said = capsys.readouterr()
    assert "eigenvector 1" not in said.out
    if words:
        assert said.err == ""
    else:
        for what in ("load the data", "centre, Gram matrix", "eigenvector 3", "check: statistics", "passes, off by"):
            assert what in said.err


def test_unlike_numbers_are_told_apart() -> None:
    """The comparison itself, on numbers of its own: what is not a number is not good."""
    assert not demo_check.Error("x", float("nan"), 1.0).good
    assert not demo_check.Error("x", 1.1, 1.0).good
    assert demo_check.Error("x", 1.0, 1.0).good
    assert demo_check.Error("x", 9.9, None).good
