"""The end of the process and the other end of a fork, with a manager in the middle of its work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PRELUDE = """
import os, sys, threading
import numpy as np
import lifetimes
from lifetimes.manager import Manager
from lifetimes_host import HostDriver
folder = sys.argv[1]
driver = HostDriver(1 << 22)
manager = Manager(driver, memory_limit="64KiB", host_limit="64KiB", spill_dir=folder)
keys = [manager.add(np.full(16384, at, np.uint8)) for at in range(20)]
for key in keys:
    with manager.use(key, "rw") as address:
        driver.view(address, 16384)[0] += 100
def check():
    for at, key in enumerate(keys):
        out = manager.read(key, np.empty(16384, np.uint8))
        assert out[0] == at + 100 and (out[1:] == at).all(), at
"""

ENDINGS = {
    "never closed": "check()",
    "closed": "check(); manager.close()",
    "an array pinned": "use = manager.use(keys[0]); use.__enter__()",
    "an error": "check()\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    sys.exit(0)",
    "a cycle": "manager.me = manager; del manager, keys",
    "an interrupt in a body": """
try:
    with manager.use(keys[0]):
        raise KeyboardInterrupt
except KeyboardInterrupt:
    pass
check()
assert manager.statistics().pinned == 0
manager.check_invariants()
""",
    "a thread still at it": """
def work():
    try:
        while True:
            for key in keys:
                with manager.use(key):
                    pass
    except lifetimes.LifetimesError:
        pass  # at the end of the process its files have gone
thread = threading.Thread(target=work, daemon=True)
thread.start()
""",
}


def run(tmp_path: Path, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", PRELUDE + program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_process_ends_quietly_and_leaves_no_file(tmp_path: Path, ending: str) -> None:
    done = run(tmp_path, ENDINGS[ending])
    assert done.stderr == ""
    assert done.returncode == 0
    if ending != "a thread still at it":  # which may be writing a file at that very moment; the next process cleans up
        assert list(tmp_path.iterdir()) == []


FORK = """
child = os.fork()
if not child:
    try:
        with manager.use(keys[0]):
            os._exit(1)
    except lifetimes.ClosedError as error:
        assert "fork" in str(error)
    out = np.empty(16384, np.uint8)
    for call, args in ((manager.add, (1,)), (manager.evict, (keys[0],)), (manager.read, (keys[0], out))):
        try:
            call(*args)
        except lifetimes.ClosedError:
            continue
        os._exit(2)
    manager.close()
    assert manager.statistics().limit == 65536
    driver = HostDriver(1 << 20)
    with Manager(driver) as mine:
        key = mine.add(np.arange(10))
        with mine.use(key):
            pass
        assert mine.read(key, np.empty(10, np.int64)).sum() == 45
    {end}
assert os.waitpid(child, 0)[1] == 0
check()
manager.check_invariants()
manager.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)"])
def test_a_forked_child_releases_nothing_of_its_parents(tmp_path: Path, end: str) -> None:
    done = run(tmp_path, FORK.replace("{end}", end))
    assert done.stderr == ""
    assert done.returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_while_another_thread_is_inside_does_not_hang_the_child(tmp_path: Path) -> None:
    program = """
stop = []
def work():
    while not stop:
        for key in keys:
            with manager.use(key, "rw"):
                pass
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
for _ in range(5):
    child = os.fork()
    if not child:
        manager.close()
        with Manager(HostDriver(1 << 20)) as mine:
            mine.read(mine.add(np.arange(10)), np.empty(10, np.int64))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.append(1)
for thread in threads:
    thread.join()
check()
manager.close()
"""
    done = run(tmp_path, program)
    assert done.stderr == ""
    assert done.returncode == 0
    assert list(tmp_path.iterdir()) == []
