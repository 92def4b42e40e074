"""The same program on every other Python that is installed with what the library needs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.lifetimes.helpers import run_script

VERSIONS = ("3.11", "3.12", "3.13", "3.14", "3.13t", "3.14t")
NEEDS = "import judy, numpy, rich, sortedcontainers"

PROGRAM = """
import random, signal
from itertools import count

# Chains, cycles, threads, interrupts; each handle is freed once, children first.
numbers, log = count(), []
def make(*parents, **options):
    return Lifetime.acquire(numbers.__next__, finalizer=log.append, parents=parents, **options)
class Node(Lifetime):
    __slots__ = ("other",)
def family():
    root = Node.acquire(numbers.__next__, finalizer=log.append)
    root.other = [make(root), make(root, deferred=True), root]
    with root.use():
        try: root.close()
        except lifetimes.BusyError: pass
        else: raise AssertionError
def churn():
    for _ in range(300):
        family()
        with lifetimes.defer(): make(make())
        make().close()
threads = [threading.Thread(target=churn) for _ in range(4)]
for thread in threads: thread.start()
churn()
for thread in threads: thread.join()

def strike(*_): raise KeyboardInterrupt
sys.unraisablehook = lambda info: None
signal.signal(signal.SIGALRM, strike)
strikes = 0
while strikes < 100:
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
            while True: make(make()).close()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        strikes += 1
signal.setitimer(signal.ITIMER_REAL, 0)
signal.signal(signal.SIGALRM, signal.SIG_IGN)
gc.collect()
while lifetimes.drain(): gc.collect()
made = next(numbers)
assert sorted(log) == list(range(made)), f"{made} made, {len(log)} freed, {len(set(log))} different"
assert not lifetimes.live()
lifetimes.reaper.check_invariants()
parent = own("parent")
child = own("child", parent)
del parent
if os.fork() == 0:
    del child
    os._exit(0)
os.wait()
print("well", sys.version_info[:2])
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_program(version: str, tmp_path: Path) -> None:
    python = shutil.which(f"python{version}")
    if python is None:
        pytest.skip(f"there is no python{version} here")
    if Path(python).resolve() == Path(sys.executable).resolve():
        python = sys.executable  # with its environment
    probe = subprocess.run([python, "-c", NEEDS], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"python{version} cannot import what the library needs: {probe.stderr.strip().splitlines()[-1]}")
    ended = run_script(PROGRAM, tmp_path, python=python, timeout=100)
    assert (ended.code, ended.err) == (0, ""), ended
    assert ended.out.startswith("well")
    assert ended.freed == ["child", "parent"]


def test_the_same_program_here(tmp_path: Path) -> None:
    ended = run_script(PROGRAM, tmp_path, timeout=100)
    assert (ended.code, ended.err, ended.freed) == (0, "", ["child", "parent"]), ended
