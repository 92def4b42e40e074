"""The check behind every test is itself tested, with leaks planted on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

CONFTEST = (Path(__file__).parent / "conftest.py").read_text()

STAND_IN = """
# A library of the same name with just what the check reads.  Collected garbage is alive until it is drained.
from types import SimpleNamespace

class Tracked:
    alive, queue = {}, []

    def __init__(self):
        self.key = id(self)
        Tracked.alive[self.key] = SimpleNamespace(key=self.key, kind="planted", line="here")

    def __del__(self):
        Tracked.queue.append(self.key)

def live():
    return tuple(Tracked.alive.values())

def drain():
    while Tracked.queue:
        del Tracked.alive[Tracked.queue.pop()]
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """A suite of its own under the real conftest, over the stand-in library."""
    pytester.makeini("[pytest]\nmarkers =\n    sim: x\n    host: x\n    opencl: x\n    cuda: x\n")
    pytester.makeconftest(CONFTEST.replace("JOIN_SECONDS = 2.0", "JOIN_SECONDS = 0.1"))
    pytester.makepyfile(lifetimes=STAND_IN)
    return pytester


def test_a_planted_leak_fails_its_test_and_no_other(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import lifetimes
        kept = []

        def test_clean():
            tracked = lifetimes.Tracked()
            del tracked
            lifetimes.drain()

        def test_leak():
            kept.append(lifetimes.Tracked())

        def test_cycle_after_the_leak_is_collected():
            tracked = lifetimes.Tracked()
            tracked.me = tracked

        def test_after_the_leak():
            pass

        def test_failure_holds_its_locals():
            tracked = lifetimes.Tracked()
            assert not tracked

        def test_after_the_failure():
            pass
        """
    )
    result = suite.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=5, errors=1, failed=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_leak*", "*left 1 live lifetimes*", "*kind='planted'*"])


def test_a_planted_worker_thread_fails_its_test(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import threading
        stop = threading.Event()

        def start(name):
            thread = threading.Thread(target=stop.wait, name=name, daemon=True)
            thread.start()

        def test_worker():
            start("lifetimes-host-7")

        def test_other_thread():
            start("somebody-else")

        def test_worker_from_before_is_not_blamed():
            pass
        """
    )
    result = suite.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_worker *", "*worker threads behind: lifetimes-host-7"])


def test_folders_mark_their_tests(suite: pytest.Pytester) -> None:
    for folder in ("sim", "host", "opencl", "cuda", "other"):
        (suite.path / folder).mkdir()
        (suite.path / folder / f"test_{folder}.py").write_text(f"def test_in_{folder}(): pass\n")
    for folder in ("sim", "host", "opencl", "cuda"):
        result = suite.runpytest_inprocess("-p", "no:cacheprovider", "-m", folder, "--collect-only", "-q")
        result.stdout.fnmatch_lines([f"*test_in_{folder}", "1/5 tests collected*"])
