"""Many threads, and kernels that take several: no state of a call outside of the call, nothing lost, nothing early."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import lifetimes
from lifetimes.compiler import settings
from lifetimes.compiler.team import run_together

RANDOM = np.random.default_rng(11)


@pytest.fixture
def device() -> Iterator[lifetimes.Device]:
    with lifetimes.open("host", memory_limit="128MiB") as opened:
        yield opened


@pytest.mark.parametrize("threads", [1, 8])
def test_one_function_called_from_many_threads(device: lifetimes.Device, threads: int) -> None:
    """BUG-037 (pydata/numexpr#569): 16 threads with a thousand calls each, sizes and numbers of their own, one function."""
    function = lifetimes.jit(lambda x, a: (x * a + 1, np.sum(x * a)))
    wrong: list[Any] = []

    def work(number: int) -> None:
        random = np.random.default_rng(number)
        lengths = [*random.integers(1, 200, 8), 40_000 + number]
        given = [(x, device.asarray(x)) for x in (random.normal(size=length) for length in lengths)]
        for turn in range(1000):
            x, placed = given[turn % 8 if turn % 50 else 8]
            mapped, total = function(placed, float(number))
            if not np.array_equal(mapped.numpy(), x * number + 1):
                wrong.append((number, turn, "mapped"))
            if abs(float(total.numpy()) - (x * number).sum()) > 1e-9 * (1 + np.abs(x).sum() * number):
                wrong.append((number, turn, "total"))

    with settings.using(threads=threads):
        workers = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for each in workers:
            each.start()
        for each in workers:
            each.join()
    assert not wrong


def test_long_kernels_return_at_once_and_are_waited_for_when_read(device: lifetimes.Device) -> None:
    x = RANDOM.uniform(0.5, 1.5, 1_500_000)
    function = lifetimes.jit(lambda x: np.abs(np.sin(np.cos(np.tan(np.exp(x))))) ** 0.3)
    given = device.asarray(x)
    with settings.using(threads=1):
        results = [function(given) for _ in range(3)]
        wanted = np.abs(np.sin(np.cos(np.tan(np.exp(x))))) ** 0.3
        for each in results:
            np.testing.assert_allclose(each.numpy(), wanted, rtol=1e-8)


def test_results_of_enqueued_kernels_feed_the_next(device: lifetimes.Device) -> None:
    """Dropped while they are still computed, and their memory taken for the next one."""
    function = lifetimes.jit(lambda x, y: np.sin(x) * 0.5 + y)
    x = RANDOM.normal(size=1_000_000)
    y = device.asarray(x)
    wanted = x.copy()
    for _ in range(6):
        y = function(y, y)
        wanted = np.sin(wanted) * 0.5 + wanted
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-10, atol=1e-12)


def test_the_function_goes_while_its_kernel_runs(device: lifetimes.Device) -> None:
    """The code stays until the kernel has ended."""
    x = RANDOM.normal(size=2_000_000)
    given = device.asarray(x)
    function = lifetimes.jit(lambda x: np.exp(np.sin(x)) + np.cos(x) * np.sqrt(np.abs(x)))
    with settings.using(threads=1):
        result = function(given)
        del function
        lifetimes.drain()
        wanted = np.exp(np.sin(x)) + np.cos(x) * np.sqrt(np.abs(x))
        np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-12, atol=1e-12)


# The team.


def test_every_part_is_run_once() -> None:
    for threads in (1, 2, 7):
        done: list[int] = []
        run_together([(done.append, (number,)) for number in range(100)], threads)
        assert sorted(done) == list(range(100))


def test_parts_run_while_the_caller_waits() -> None:
    """Two parts that need each other: one must be a helper's."""
    first, second = threading.Event(), threading.Event()

    def one() -> None:
        first.set()
        assert second.wait(30)

    def two() -> None:
        second.set()
        assert first.wait(30)

    run_together([(one, ()), (two, ())], 2)


def test_an_interrupt_waits_for_what_has_begun() -> None:
    """What has begun writes to memory that the caller frees; what has not begun does not begin any more."""
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()
    late: list[int] = []

    def part() -> None:
        if threading.current_thread() is threading.main_thread():
            assert begun.wait(30)  # the other part is with the helper
            release.set()
            raise KeyboardInterrupt
        begun.set()
        assert release.wait(30)
        ended.set()

    parts: list[Any] = [(part, ()), (part, ()), (late.append, (1,))]
    with pytest.raises(KeyboardInterrupt):
        run_together(parts, 2)
    assert ended.is_set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_computes_with_helpers_of_its_own() -> None:
    program = """
import os, warnings, numpy as np, lifetimes
from lifetimes.compiler import settings
warnings.simplefilter("ignore", DeprecationWarning)
settings.set_threads(3)
function = lifetimes.jit(lambda x: np.sin(x) + 1)
x = np.ones(300_000)
def compute():
    with lifetimes.open("host", memory_limit="64MiB") as device:
        return float(function(device.asarray(x)).numpy().sum())
before = compute()
child = os.fork()
if not child:
    os._exit(0 if compute() == before else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("0", "")


def test_a_process_ends_quietly_with_kernels_in_flight() -> None:
    program = """
import numpy as np, lifetimes
device = lifetimes.open("host", memory_limit="256MiB")
function = lifetimes.jit(lambda x: np.exp(np.sin(x)) + np.tan(x))
x = device.asarray(np.ones(3_000_000))
results = [function(x) for _ in range(3)]
print("done")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "done", "")
