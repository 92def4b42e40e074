"""Spill files and their folder: whole or not there, checked, the owner's alone, and cleaned up after the dead only."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lifetimes.errors import BackendError, CleanupWarning
from lifetimes.host_store import HostStore
from lifetimes.host_store import directory as directory_module
from lifetimes.host_store.directory import SpillDirectory, clean
from lifetimes.host_store.files import read_file, write_file


def content(nbytes: int) -> np.ndarray:
    return (np.arange(nbytes) % 251).astype(np.uint8)


@pytest.mark.parametrize("nbytes", [1, 31, 4096, (16 << 20) + 5])
def test_what_was_written_is_read(tmp_path: Path, nbytes: int) -> None:
    written = content(nbytes)
    file = write_file(tmp_path / "1.spill", written)
    out = np.empty_like(written)
    read_file(file, out)
    assert np.array_equal(out, written)
    assert [path.name for path in tmp_path.iterdir()] == ["1.spill"]


def test_a_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        file = write_file(tmp_path / "1.spill", content(10))
        directory = SpillDirectory(tmp_path / "deeper" / "down")
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(directory.owner_file.stat().st_mode) == 0o600
    directory.remove()


def damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "changed":
        data[-1] ^= 1
    elif how == "cut off":
        del data[-1:]
    elif how == "beginning":
        data[3] ^= 1
    elif how == "length":
        data[16] ^= 1
    elif how == "header":
        del data[20:]
    if how == "cannot be opened":
        path.unlink()
    else:
        path.write_bytes(data)


@pytest.mark.parametrize(("how", "words"), [
    ("changed", "checksum"), ("cut off", "cut off"), ("beginning", "beginning"), ("length", "beginning"),
    ("header", "beginning"), ("cannot be opened", "cannot be opened"),
])  # fmt: skip
def test_a_file_that_is_not_what_was_written_is_found_out(tmp_path: Path, how: str, words: str) -> None:
    file = write_file(tmp_path / "1.spill", content(1000))
    damage(file.path, how)
    with pytest.raises(BackendError, match=words) as caught:
        read_file(file, np.empty(1000, np.uint8))
    assert str(file.path) in str(caught.value)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for function in ("write", "pwrite", "replace"):

        def fail(*args: object) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, function, fail)
        with pytest.raises(OSError, match="No space"):
            write_file(tmp_path / "1.spill", content(100))
        monkeypatch.undo()
        assert list(tmp_path.iterdir()) == []


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "pwrite", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "1.spill", content(100))
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "1.part").write_text("somebody else's")
    with pytest.raises(FileExistsError):
        write_file(tmp_path / "1.spill", content(100))


# The folder.


def test_the_folder_goes_with_its_store(tmp_path: Path) -> None:
    store = HostStore(directory=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    store.close()
    store.close()
    assert list(tmp_path.iterdir()) == []
    HostStore(directory=tmp_path)
    assert list(tmp_path.iterdir()) == [], "dropped"


def test_what_somebody_put_there_is_left(tmp_path: Path) -> None:
    directory = SpillDirectory(tmp_path)
    directory.new_path().write_text("spilled")
    mine = directory.path / "notes.txt"
    mine.write_text("mine")
    with pytest.warns(CleanupWarning, match="could not be removed"):
        directory.remove()
    assert [path.name for path in directory.path.iterdir()] == ["notes.txt"]
    assert mine.read_text() == "mine"


def test_a_file_that_another_thread_is_just_writing_goes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of the process nobody waits for such a thread."""
    mine = SpillDirectory(tmp_path)
    late = mine.new_path().with_suffix(".part")
    mine.new_path().write_text("spilled")
    original = directory_module._remove_content
    calls: list[int] = []

    def remove_content(folder: Path) -> int:
        removed = original(folder)
        if not calls:
            late.write_text("half")
        calls.append(removed)
        return removed

    monkeypatch.setattr(directory_module, "_remove_content", remove_content)
    mine.remove()
    assert calls == [1, 1]
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError, match="has been removed"):
        mine.new_path()


DYING = """
import os, sys
from lifetimes.host_store.directory import SpillDirectory
directory = SpillDirectory(sys.argv[1])
directory.new_path().write_text("spilled")
print(directory.path, flush=True)
if sys.argv[2] == "dies":
    os._exit(1)
sys.stdin.read()
"""


def test_only_the_dead_are_cleaned_up_after(tmp_path: Path) -> None:
    def start(how: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", DYING, str(tmp_path), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    alive = start("lives")
    assert alive.stdout is not None
    its_folder = Path(alive.stdout.readline().strip())
    dead = start("dies")
    left = Path(dead.communicate("", 30)[0].strip())
    assert list(left.iterdir()), "what a dead process leaves"
    mine = SpillDirectory(tmp_path)
    assert not left.exists()
    assert not left.with_suffix(".owner").exists()
    assert list(its_folder.iterdir()), "the living keep theirs"
    assert mine.path.exists()
    alive.communicate("", 30)
    assert clean(tmp_path) == 1
    mine.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_only_looks_like_ours_is_left_alone(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "1.spill").write_text("precious")
    parent = tmp_path / "spill"
    parent.mkdir()
    name = "lifetimes-123-0123456789abcdef"
    (parent / f"{name}.owner").write_text("")
    (parent / name).symlink_to(outside)
    (parent / "lifetimes-x.owner").write_text("")
    (parent / "lifetimes-5-0123456789abcdef.owner").symlink_to(outside / "1.spill")
    with pytest.warns(CleanupWarning, match="could not be removed"):
        assert clean(parent) == 0
    assert (outside / "1.spill").read_text() == "precious"
    assert len(list(parent.iterdir())) == 4


def test_a_folder_that_is_taken_for_dead_in_between_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody's cleaning comes between the making of the owner file and its locking."""
    from lifetimes.host_store import directory as module

    lock, seen = module._lock, list[int]()

    def cleaned_before(owner: int, *, if_impossible: bool = False) -> bool:
        if if_impossible and not seen:
            seen.append(owner)
            (victim,) = tmp_path.glob("*.owner")
            victim.unlink()
        return lock(owner, if_impossible=if_impossible)

    monkeypatch.setattr(module, "_lock", cleaned_before)
    made = SpillDirectory(tmp_path)
    assert made.owner_file.exists()
    assert made.path.exists()
    made.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_place_where_nothing_can_be_written_is_refused_with_a_way_out(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for place in (file, file / "below", Path("/proc/nowhere")):
        with pytest.raises(BackendError, match="name a directory"):
            HostStore(directory=place)


def test_a_forked_child_deletes_nothing(tmp_path: Path) -> None:
    store = HostStore(directory=tmp_path)
    assert store.directory is not None
    store.directory.new_path().write_text("spilled")
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    child = os.fork()
    if not child:
        store.directory.remove()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert len(list(store.directory.path.iterdir())) == 1
    assert clean(tmp_path) == 0, "the lock is still ours"
    store.close()
