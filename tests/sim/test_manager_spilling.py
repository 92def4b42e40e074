"""Host memory runs short: copies that are elsewhere too go first, then those not used for longest, to files."""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lifetimes.entry import DISK
from lifetimes.errors import BrokenError, BusyError, CleanupWarning, ClosedError, OutOfMemory, OwnershipError
from lifetimes.host_store import HostStore
from lifetimes.host_store import spill as spilling
from lifetimes.manager import transfer
from tests.unit.memory.scene import SIZE, Gate, Scene, Thread


def spilling_scene(folder: Path, blocks: int = 2, host: int = 3, **options: Any) -> Scene:
    return Scene(blocks, host_limit=host * SIZE, spill_dir=folder, **options)


def files(scene: Scene) -> list[str]:
    return sorted(path.name for path in scene.manager.host_store.directory.path.iterdir())  # type: ignore[union-attr]


def test_more_arrays_than_device_and_host_together(tmp_path: Path) -> None:
    scene = spilling_scene(tmp_path)
    keys = scene.adds(20)
    scene.check()
    statistics = scene.manager.statistics()
    assert statistics.spilled == 17
    assert statistics.spilled_bytes == 17 * SIZE
    assert scene.manager.host_store.statistics().peak_bytes <= 3 * SIZE
    for round_ in range(3):
        for key in keys:
            scene.write(key, (round_ * 20 + key) % 100)
        scene.check()
    assert [scene.value(key) for key in keys] == [(40 + key) % 100 for key in keys]
    assert [scene.on_device(key) for key in keys] == [(40 + key) % 100 for key in keys]
    assert scene.manager.statistics().peak_spilled_bytes >= 15 * SIZE
    scene.close()
    assert list(tmp_path.iterdir()) == []


def test_the_copy_not_used_for_longest_goes_to_disk(tmp_path: Path) -> None:
    scene = spilling_scene(tmp_path, blocks=1)
    a, b, c = scene.adds(3)
    scene.touch(a)
    assert scene.manager.evict(a)
    scene.add(4)
    assert [scene.entry(key).host is None for key in (a, b, c)] == [False, True, False]
    scene.close()


def test_copies_that_are_on_the_device_too_go_before_anything_is_written(tmp_path: Path) -> None:
    scene = spilling_scene(tmp_path)
    clean, dirty, away = scene.adds(3)
    scene.touch(clean)
    scene.write(dirty, 9)
    scene.driver.run_until_idle()
    scene.manager.transfer.done(1)
    scene.manager.stream.done(scene.manager.stream.issued)
    scene.adds(2, first=50)
    assert files(scene) == []
    assert scene.entry(clean).host is scene.entry(dirty).host is None
    assert scene.manager.statistics().dirty == 2, "the clean one would have to be copied back now"
    assert [scene.value(key) for key in (clean, dirty, away)] == [1, 9, 3]
    scene.close()


def test_what_was_read_from_a_file_and_not_changed_is_not_written_again(tmp_path: Path) -> None:
    scene = spilling_scene(tmp_path)
    keys = scene.adds(12)
    for _ in range(3):
        assert [scene.on_device(key) for key in keys] == list(range(1, 13))
    written = scene.manager.host_store.statistics().written_bytes
    assert written <= 12 * SIZE
    scene.write(keys[0], 99)
    assert scene.entry(keys[0]).file is None, "void from the first write on"
    for key in keys[1:]:
        scene.touch(key)
    assert scene.value(keys[0]) == 99
    scene.close()


def test_a_file_goes_with_its_array(tmp_path: Path) -> None:
    scene = spilling_scene(tmp_path)
    keys = scene.adds(8)
    assert len(files(scene)) == 5
    for key in keys:
        scene.manager.release(key)
    scene.manager.host_store.settle()
    assert files(scene) == []
    assert scene.manager.host_store.statistics().disk_bytes == 0
    scene.close()


def test_reading_from_disk_needs_no_memory_but_the_callers(tmp_path: Path) -> None:
    scene = spilling_scene(tmp_path, host=1)
    a, b = scene.adds(2)
    used = scene.manager.host_store.statistics()
    assert scene.value(a) == 1
    assert scene.manager.host_store.statistics().used_bytes == used.used_bytes
    assert scene.manager.statistics().spilled == 1
    assert scene.value(b) == 2
    scene.close()


def test_overwriting_what_is_on_disk_reads_no_file(tmp_path: Path) -> None:
    scene = spilling_scene(tmp_path)
    keys = scene.adds(5)
    read = scene.manager.host_store.statistics().read_bytes
    scene.write(keys[0], 42, "w")
    assert scene.manager.host_store.statistics().read_bytes == read
    assert scene.value(keys[0]) == 42
    scene.close()


def test_a_working_set_larger_than_host_memory_is_brought_one_by_one(tmp_path: Path) -> None:
    scene = spilling_scene(tmp_path, blocks=8, host=2)
    keys = scene.adds(8)
    with scene.manager.use_many([(key, "r") for key in keys]):
        scene.check()
    assert [scene.on_device(key) for key in keys] == list(range(1, 9))
    scene.close()


def test_borrowed_memory_does_not_count_and_is_not_spilled(tmp_path: Path) -> None:
    scene = spilling_scene(tmp_path, host=1)
    sources = [np.full(SIZE, at, np.uint8) for at in range(5)]
    keys = [scene.manager.add(source, copy=False) for source in sources]
    assert files(scene) == []
    assert [scene.on_device(key) for key in keys] == list(range(5))
    scene.write(keys[0], 77)
    scene.manager.evict(keys[0])
    assert scene.value(keys[0]) == 77
    scene.close()


def test_without_files_a_full_host_is_an_error_that_says_so_and_loses_nothing() -> None:
    scene = Scene(blocks=2, host_limit=2 * SIZE)
    a, b = scene.adds(2)
    with pytest.raises(OutOfMemory, match="no spill directory"):
        scene.add(3)
    scene.write(a, 11)
    scene.write(b, 12)
    third = scene.add(3)
    fourth = scene.add(4)
    with pytest.raises(OutOfMemory):
        scene.touch(third)
    scene.check()
    assert [scene.value(key) for key in (a, b, third, fourth)] == [11, 12, 3, 4]
    scene.close()


def test_a_copy_stays_until_the_upload_made_from_it_is_known_to_have_succeeded() -> None:
    scene = Scene(blocks=2, host_limit=2 * SIZE)
    a, b = scene.adds(2)
    scene.driver.faults.fail("copy_in", at="completion")
    scene.touch(a)
    with pytest.raises(OutOfMemory):
        scene.add(3)
    assert [scene.value(a), scene.value(b)] == [1, 2]
    scene.touch(a)
    scene.add(3)
    scene.close()


def test_nothing_lands_in_host_memory_that_is_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, gate = Scene(), Gate()
    key = scene.add(1)

    def copyto(destination: np.ndarray, source: np.ndarray) -> None:
        gate.stop()
        np.copyto(destination, source)

    with monkeypatch.context() as patch:
        patch.setattr(transfer, "np", SimpleNamespace(uint8=np.uint8, copyto=copyto))
        reader = Thread(scene.value, key)
        gate.wait()
    scene.write(key, 2)
    assert not scene.manager.evict(key), "it is in use"
    scene.touch(*scene.adds(4, first=50))
    assert scene.resident(key) == [True]
    gate.open()
    assert reader.join() == 1
    assert scene.manager.evict(key)
    assert scene.value(key) == 2
    scene.close()


# Trouble with files.


def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)


def test_a_full_disk_is_an_error_that_says_so_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = spilling_scene(tmp_path)
    keys = scene.adds(3)
    for at, key in enumerate(keys[:2]):
        scene.write(key, 60 + at)
    more = scene.adds(2, first=50)
    full_disk(monkeypatch)
    with pytest.raises(OutOfMemory, match="No space left on device"):
        scene.add(99)
    with pytest.raises(OutOfMemory, match="No space left on device"):
        scene.touch(more[0])
    scene.check()
    monkeypatch.undo()
    assert scene.value(scene.add(99)) == 99
    assert [scene.value(key) for key in (*keys, *more)] == [60, 61, 3, 50, 51]
    scene.close()


@pytest.mark.parametrize("how", ["deleted", "changed", "emptied"])
@pytest.mark.parametrize("what", ["use", "read", "prefetch"])
def test_a_damaged_file_breaks_its_array_and_says_which_file(tmp_path: Path, how: str, what: str) -> None:
    scene = spilling_scene(tmp_path)
    keys = scene.adds(5)
    path = scene.entry(keys[0]).file.path
    if how == "deleted":
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes(b"" if how == "emptied" else data[:-1] + bytes([data[-1] ^ 255]))
    if what == "prefetch":
        assert not scene.manager.prefetch(keys[0])
    for _ in range(2):
        with pytest.raises(BrokenError, match=path.name):
            scene.touch(keys[0]) if what == "use" else scene.value(keys[0])
    scene.check()
    assert scene.manager.statistics().broken == 1
    assert [scene.value(key) for key in keys[1:]] == [2, 3, 4, 5]
    scene.write(keys[0], 42, "w")
    assert scene.value(keys[0]) == 42
    scene.close()


def test_no_memory_to_load_into_leaves_it_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = spilling_scene(tmp_path, blocks=4)
    keys = scene.adds(4)
    assert scene.entry(keys[0]).state == DISK
    full_disk(monkeypatch)
    with pytest.raises(OutOfMemory, match="host memory"):
        scene.touch(keys[0])
    scene.check()
    assert scene.entry(keys[0]).state == DISK
    assert scene.value(keys[0]) == 1
    monkeypatch.undo()
    assert scene.on_device(keys[0]) == 1
    scene.close()


# Several managers, several threads.


def test_managers_share_a_store_and_spill_each_others_copies(tmp_path: Path) -> None:
    store = HostStore(4 * SIZE, tmp_path)
    one, two = (Scene(blocks=2, host_store=store) for _ in range(2))
    first = one.adds(4)
    second = two.adds(4, first=50)
    assert one.manager.statistics().spilled == 4
    assert [one.value(key) for key in first] == [1, 2, 3, 4]
    assert [two.on_device(key) for key in second] == [50, 51, 52, 53]
    one.check()
    two.check()
    with pytest.raises(BusyError, match="release them"):
        store.close()
    one.close()
    assert [two.value(key) for key in second] == [50, 51, 52, 53]
    two.close()
    assert store.statistics().used_bytes == 0
    store.close()
    assert list(tmp_path.iterdir()) == []


RACERS: list[tuple[str, Callable[[Scene, int], object]]] = [
    ("use", lambda scene, key: scene.touch(key)),
    ("read", lambda scene, key: scene.value(key)),
    ("write", lambda scene, key: scene.write(key, 1, "w")),
    ("release", lambda scene, key: scene.manager.release(key)),
    ("evict", lambda scene, key: scene.manager.evict(key)),
    ("prefetch", lambda scene, key: scene.manager.prefetch(key)),
    ("close", lambda scene, key: scene.manager.close()),
]


@pytest.mark.parametrize("stage", ["write", "read"])
@pytest.mark.parametrize(("name", "racer"), RACERS)
def test_an_array_on_its_way_to_or_from_a_file_while_somebody_else_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, name: str, racer: Callable[[Scene, int], object]
) -> None:
    scene = spilling_scene(tmp_path)
    keys = scene.adds(3 if stage == "write" else 5)
    gate = Gate()
    function = f"{stage}_file"
    original = getattr(spilling, function)

    def stopped(*args: Any) -> Any:
        if not gate.reached.is_set():
            gate.stop()
        return original(*args)

    monkeypatch.setattr(spilling, function, stopped)
    first = Thread(scene.add, 9) if stage == "write" else Thread(scene.touch, keys[0])
    gate.wait()
    second = Thread(racer, scene, keys[0])
    second._thread.join(0.05)
    gate.open()
    for thread in (first, second):
        if name in ("close", "release"):  # which the other may be told of
            try:
                thread.join()
            except (BusyError, ClosedError, OwnershipError):
                pass
        else:
            thread.join()
    if not scene.manager.closed:
        scene.check()
        assert [scene.value(key) for key in keys[1:]] == [*range(2, len(keys) + 1)]
        if name != "release":
            assert scene.value(keys[0]) == 1
    scene.manager.close()
    assert scene.driver.live_blocks == {}
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_write_leaves_the_copy_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = spilling_scene(tmp_path)
    keys = scene.adds(3)

    def interrupted(*args: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "pwrite", interrupted)
    with pytest.raises(KeyboardInterrupt):
        scene.add(9)
    monkeypatch.undo()
    scene.check()
    assert files(scene) == []
    assert [scene.value(key) for key in keys] == [1, 2, 3]
    scene.add(9)
    scene.close()


def test_many_threads_over_two_tiers(tmp_path: Path) -> None:
    scene = spilling_scene(tmp_path, blocks=6, host=6)
    keys = scene.adds(24)
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        mine = keys[seed::4]
        for at in range(60):
            key = mine[at % len(mine)]
            value = 1 + (seed + at) % 100
            try:
                scene.manager.write(key, np.full(SIZE, value, np.uint8))
                assert scene.value(key) == value
                scene.touch(mine[(at + 3) % len(mine)])
            except BaseException as error:
                errors.append(error)
                raise

    with warnings.catch_warnings():
        warnings.simplefilter("error", CleanupWarning)
        threads = [Thread(work, seed) for seed in range(4)]
        for thread in threads:
            thread.join()
    assert not errors
    scene.check()
    assert scene.manager.host_store.statistics().peak_bytes <= 6 * SIZE
    scene.close()
