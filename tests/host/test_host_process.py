"""Threads, forks and the end of the process."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
import weakref
from textwrap import dedent

import numpy as np
import pytest

from lifetimes.errors import CleanupWarning
from lifetimes_host import HostDriver
from lifetimes_host import driver as driver_module

SECONDS = 20.0


def workers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("lifetimes-host-stream-")}


def busy_driver() -> tuple[HostDriver, threading.Thread]:
    """A driver with one worker thread, which has done something."""
    before = workers()
    driver = HostDriver(1 << 20)
    stream = driver.create_stream()
    driver.copy_in(driver.allocate(100_000), np.zeros(100_000, np.uint8), stream)
    driver.synchronize(stream)
    (worker,) = workers() - before
    return driver, worker


def run_python(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a script as a process of its own, everything that it could complain about turned on."""
    head = "import os, sys, threading\nimport numpy as np\nfrom lifetimes_host import HostDriver\n"
    command = [sys.executable, "-X", "dev", "-W", "error", *options, "-c", head + dedent(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_close_ends_the_threads() -> None:
    driver, worker = busy_driver()
    driver.close()
    assert not worker.is_alive()


def test_a_dropped_driver_ends_its_threads() -> None:
    driver, worker = busy_driver()
    alive = weakref.ref(driver)
    del driver
    assert alive() is None
    worker.join(SECONDS)
    assert not worker.is_alive()


def test_a_dropped_driver_ends_the_threads_of_streams_that_somebody_still_holds() -> None:
    driver = HostDriver(1 << 20)
    before = workers()
    stream = driver.create_stream()
    driver.call(int, (), stream)
    driver.synchronize(stream)
    (worker,) = workers() - before
    del driver
    worker.join(SECONDS)
    assert not worker.is_alive()
    assert "stopped" in repr(stream)


def test_close_does_what_is_queued_first() -> None:
    driver, done = HostDriver(1 << 20), list[int]()
    stream = driver.create_stream()
    for number in range(100):
        driver.call(done.append, (number,), stream)
    driver.close()
    assert done == list(range(100))


def test_a_command_may_close_its_driver() -> None:
    driver, before = HostDriver(1 << 20), workers()
    stream, closed = driver.create_stream(), threading.Event()

    def close() -> None:
        driver.close()
        closed.set()

    driver.call(close, (), stream)
    assert closed.wait(SECONDS)
    for worker in workers() - before:
        worker.join(SECONDS)
        assert not worker.is_alive()


def test_a_command_that_does_not_end_is_left_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "JOIN_SECONDS", 0.01)
    driver, before = HostDriver(1 << 20), workers()
    gate = threading.Event()
    for _ in range(2):
        driver.call(gate.wait, (SECONDS,), driver.create_stream())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        driver.close()
    assert [(w.category, "2 host streams" in str(w.message)) for w in caught] == [(CleanupWarning, True)]
    gate.set()
    for worker in workers() - before:
        worker.join(SECONDS)


def test_a_forked_child_is_refused_and_closes_in_silence() -> None:
    result = run_python(
        """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # CPython's own, about forking with threads
        from lifetimes.errors import ClosedError
        driver = HostDriver(1 << 20)
        stream, event, address = driver.create_stream(), driver.create_event(), driver.allocate(100_000)
        driver.copy_in(address, np.full(100_000, 5, np.uint8), stream)
        gate = threading.Event()
        driver.call(gate.wait, (20,), stream)  # a worker that runs while we fork
        driver.record(event, stream)
        driver._memory._lock.acquire()         # a lock that is held while we fork
        child = os.fork()
        if child == 0:
            for call in (lambda: driver.allocate(1), lambda: driver.free(address), lambda: driver.wait(event),
                         lambda: driver.completed(event), lambda: driver.synchronize(stream), driver.memory_info,
                         driver.create_stream):
                try:
                    call()
                    print("not refused")
                except ClosedError as error:
                    assert f"inherited from process {os.getppid()}" in str(error), error
            driver.close()
            own = HostDriver(1 << 20)  # a new one works
            stream, found = own.create_stream(), np.zeros(100_000, np.uint8)
            address = own.allocate(100_000)
            own.copy_in(address, np.full(100_000, 6, np.uint8), stream)
            own.copy_out(found, address, stream)
            own.synchronize(stream)
            own.close()
            print("child", int(found[0]))
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        driver._memory._lock.release()
        gate.set()
        driver.wait(event)
        print("parent", status, int(driver.view(address, 1)[0]))
        driver.close()
        """
    )
    assert result.stdout.split("\n") == ["child 6", "parent 0 5", ""]
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("state", ["idle", "busy", "waiting", "closed"])
def test_the_end_of_the_process_is_silent(state: str) -> None:
    result = run_python(
        f"""
        state = {state!r}
        driver = HostDriver(64 << 20)
        stream, other, event = driver.create_stream(), driver.create_stream(), driver.create_event()
        address, data = driver.allocate(32 << 20), np.zeros(32 << 20, np.uint8)
        gate = threading.Event()
        if state == "waiting":
            driver.call(gate.wait, (20,), stream)
            driver.record(event, stream)
            driver.stream_wait(other, event)
        for _ in range(10 if state == "busy" else 1):
            driver.copy_in(address, data, stream)
            driver.copy_in(address, data, other)
        if state == "closed":
            driver.close()
        """
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_no_thread_is_started_at_exit() -> None:
    result = run_python(
        """
        import atexit
        driver = HostDriver(1 << 20)
        stream, event, address = driver.create_stream(), driver.create_event(), driver.allocate(100_000)

        def late():
            before = threading.active_count()
            driver.copy_in(address, np.full(100_000, 5, np.uint8), stream)
            driver.call(lambda: print("ran on", threading.current_thread().name), (), stream)
            driver.record(event, stream)
            driver.wait(event)
            print(int(driver.view(address, 1)[0]), threading.active_count() - before)
            driver.close()

        import lifetimes_host.lanes as lanes
        atexit.unregister(lanes._exiting.append)
        atexit.register(late)
        atexit.register(lanes._exiting.append, True)  # as for a hook that was registered before ours
        """
    )
    assert result.stdout == "ran on MainThread\n5 0\n"
    assert (result.returncode, result.stderr) == (0, "")
