"""A forked child owns nothing of what it inherited; what it makes itself is released as anywhere."""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path

import pytest

from tests.unit.lifetimes.helpers import Ended, run_script

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

FORK = """
parent = os.getpid()
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
held = [own("one"), own("two"), own("three")]
node = own("in a cycle")
cycle = [node]; cycle.append(cycle); del node
def child(body, leave):
    # Runs body in a child; the parent waits 2 seconds at most for exit code 0.
    pid = os.fork()
    if pid == 0:
        import faulthandler
        faulthandler.dump_traceback_later(2, exit=True)
        body()
        leave()
    deadline = time.monotonic() + 10
    _, status = os.waitpid(pid, 0)
    print("child ended with", os.waitstatus_to_exitcode(status))
def drop_everything():
    global cycle
    held.clear()
    cycle = None
    gc.collect()
    lifetimes.drain()
    print("child lives", len(lifetimes.live()), flush=True)
"""
FREED = ["in a cycle", "three", "two", "one"]


def check(ended: Ended, out: str, freed: list[str]) -> None:
    assert (ended.code, ended.err, ended.out) == (0, "", out), ended
    assert ended.freed == freed


@pytest.mark.parametrize("leave", ["sys.exit", "os._exit"])
def test_a_child_that_drops_everything_frees_nothing(leave: str, tmp_path: Path) -> None:
    """PaddlePaddle/Paddle#78171: a forked worker frees at exit what its parent still uses."""
    ended = run_script(FORK + f"child(drop_everything, lambda: {leave}(0))", tmp_path)
    check(ended, "child lives 0\nchild ended with 0\n", FREED)


def test_a_child_that_makes_its_own_frees_those(tmp_path: Path) -> None:
    """PaddlePaddle/Paddle#78171."""
    script = """
def body():
    mine = own("made in the child")
    global kept
    kept = own("kept by the child", mine)
    drop_everything()
    own("dropped by the child")
child(body, sys.exit)
"""
    ended = run_script(FORK + script, tmp_path)
    check(
        ended,
        "child lives 2\nchild ended with 0\n",
        ["dropped by the child", "kept by the child", "made in the child", *FREED],
    )


def test_using_what_was_inherited_says_so(tmp_path: Path) -> None:
    """PaddlePaddle/Paddle#78171: in words that help."""
    script = """
def body():
    for use in (held[0].use, held[0].detach, held[0].export, lambda: own("child", held[0])):
        try:
            use()
        except lifetimes.ClosedError as error:
            assert "forked" in str(error), error
            print(error)
        else:
            raise AssertionError
    held[0].close()
    assert held[0].closed
    with lifetimes.defer(): pass
child(body, sys.exit)
"""
    ended = run_script(FORK + script, tmp_path)
    assert ended.out.count("belongs to the process that made it") == 3
    assert "start workers with the 'spawn' method" in ended.out
    check(ended, ended.out, FREED)


STATES = {
    "another thread holds the lock": """
taken = threading.Event()
def hold():
    with lifetimes.locks.lock:
        taken.set()
        done.wait()
done = threading.Event()
thread = threading.Thread(target=hold)
thread.start()
taken.wait()
{fork}
done.set()
thread.join()
""",
    "this thread holds the lock": "with lifetimes.locks.lock:\n    {fork}\n",
    "another thread is in the middle of a drain": """
inside, done = threading.Event(), threading.Event()
def wait():
    inside.set()
    done.wait()
def drop():
    Lifetime(None, wait)
thread = threading.Thread(target=drop)
thread.start()
inside.wait()
{fork}
done.set()
thread.join()
""",
    "inside defer()": "with lifetimes.defer():\n    {fork}\n",
    "cells are queued": "with lifetimes.defer():\n    own('queued')\n    {fork}\n",
    "work is in flight": """
class Work:
    finished = False
    def completed(self):
        assert os.getpid() == parent
        return self.finished
own("busy").after(Work())
{fork}
Work.finished = True
lifetimes.drain()
""",
    "a value is in use": "with held[0].use():\n    {fork}\n",
    "a close is undecided": """
original = lifetimes.closing.held_by
def held_by(cells, holds):
    lifetimes.closing.held_by = original
    {fork}
    return original(cells, holds)
lifetimes.closing.held_by = held_by
own("closed").close()
""",
}


@pytest.mark.parametrize("state", STATES)
def test_a_fork_at_an_awkward_moment(state: str, tmp_path: Path) -> None:
    """The child exits with 0 within two seconds, frees nothing, and releases its own as usual."""
    script = """
def body():
    own("of the child")
    drop_everything()
    if not INSIDE: lifetimes.reaper.check_invariants()
"""
    inside = state in ("this thread holds the lock", "a close is undecided")  # then its own waits for a safe point, too
    script = f"INSIDE = {inside}" + script + STATES[state].format(fork="child(body, sys.exit)")
    ended = run_script(FORK + script, tmp_path)
    assert (ended.code, ended.err) == (0, ""), ended
    assert ended.out == f"child lives {int(inside)}\nchild ended with 0\n"
    assert ended.freed.count("of the child") == 1
    own = [name for name in ended.freed if name != "of the child"]
    extra = {"cells are queued": ["queued"], "work is in flight": ["busy"], "a close is undecided": ["closed"]}
    assert own == extra.get(state, []) + FREED


def test_a_fork_inside_a_finalizer(tmp_path: Path) -> None:
    """The finalizers that follow it are the parent's."""
    script = """
def fork():
    pid = os.fork()
    if pid: os.waitpid(pid, 0)
lifetime = own("first", held[0])
lifetime.add_finalizer(fork)
lifetime.add_finalizer(free, "last")
del lifetime
"""
    ended = run_script(FORK + script, tmp_path)
    assert (ended.code, ended.err) == (0, "")
    assert ended.freed == ["last", "first", *FREED]


def test_hooks_for_the_child(tmp_path: Path) -> None:
    """Held weakly, called in the child only; one that fails does not keep the others from being called."""
    script = """
class Thing:
    def __init__(self, name): self.name = name
    def forget_parent(self):
        print(self.name, os.getpid() != parent, flush=True)
        if self.name == "fails": raise ValueError("on purpose")
things = [Thing("fails"), Thing("kept")]
for thing in [*things, Thing("gone")]:
    lifetimes.shutdown.on_fork_in_child(thing)
del thing
warnings.simplefilter("ignore", lifetimes.CleanupWarning)
child(lambda: None, sys.exit)
"""
    ended = run_script(FORK + script, tmp_path)
    assert (ended.code, ended.err) == (0, "")
    assert sorted(ended.out.splitlines()) == ["child ended with 0", "fails True", "kept True"]


METHODS = [method for method in multiprocessing.get_all_start_methods() if method != "fork"] + ["fork"]


@pytest.mark.parametrize("method", [*METHODS, "os.fork"])
def test_a_file_lives_as_long_as_the_process_that_made_it(method: str, tmp_path: Path) -> None:
    """sagemath/sage#39201: exit handlers registered before a fork delete the parent's files when the child ends."""
    script = f"""
import multiprocessing, pathlib
path = pathlib.Path("guarded.txt")
def work(name):
    assert path.exists()
    Lifetime(None, free, name)
def guard():
    path.write_text("x")
    return Lifetime(path, os.unlink, path)
if __name__ == "__main__":
    guarded = guard()
    guarded.add_finalizer(free, "file of the parent")
    method = {method!r}
    for number in range(2):
        if method == "os.fork":
            pid = os.fork()
            if pid == 0:
                work("child")
                sys.exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        else:
            process = multiprocessing.get_context(method).Process(target=work, args=("child",))
            process.start()
            process.join(30)
            assert process.exitcode == 0, process
        assert path.exists()
"""
    ended = run_script(script, tmp_path)
    assert (ended.code, ended.err) == (0, "")
    assert ended.freed == ["child", "child", "file of the parent"]
    assert not (tmp_path / "guarded.txt").exists()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="older Pythons do not warn")
def test_the_only_warning_is_that_of_the_interpreter(tmp_path: Path) -> None:
    script = """
go = threading.Event()
thread = threading.Thread(target=go.wait)
thread.start()
if os.fork() == 0: os._exit(0)
os.wait()
go.set()
"""
    ended = run_script(script, tmp_path)
    assert ended.code == 0
    assert ended.err.count("Warning") == 1
    assert "multi-threaded, use of fork() may lead to deadlocks" in ended.err
