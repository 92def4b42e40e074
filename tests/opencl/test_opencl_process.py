"""Threads, forks and the end of the process, over a runtime with threads and exit handlers of its own."""

from __future__ import annotations

import os
import sys

import pytest

from tests.opencl.here import require, run_python

HEAD = """
import os, sys, threading, warnings
import numpy as np
import lifetimes
import lifetimes_opencl
SOURCE = "__kernel void twice(__global float *x) { x[get_global_id(0)] *= 2; }"
"""


@pytest.mark.parametrize(
    ("level", "state"),
    [("driver", "busy"), ("driver", "waiting"), ("driver", "dropped"), ("device", "idle"), ("device", "waiting"),
     ("device", "dropped"), ("device", "closed")],
)  # fmt: skip
def test_the_end_of_the_process_is_silent(level: str, state: str) -> None:
    require()
    result = run_python(
        HEAD
        + f"""
state = {state!r}
driver = lifetimes_opencl.backend.open()
device = lifetimes.open(driver) if {level!r} == "device" else None
source = device.driver if device else driver
stream, other, event = source.create_stream(), source.create_stream(), source.create_event()
address, data = source.allocate(8 << 20), np.zeros(8 << 20, np.uint8)
gate = threading.Event()
if state == "waiting":
    source.call(gate.wait, (0.2,), stream)
    source.record(event, stream)
    source.stream_wait(other, event)
if device:
    arrays = [device.asarray(np.arange(1000, dtype=np.float32)) for _ in range(4)]
    kernel = device.compile(SOURCE)["twice"]
    for array in arrays:
        kernel.launch(array, size=1000, modes="u")
for _ in range(10 if state == "busy" else 1):
    source.copy_in(address, data, stream)
    source.copy_out(data, address, other)
if state == "dropped":
    del driver, source, device
if state == "closed":
    (device or driver).close()
"""
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


FORK = (
    HEAD
    + """
warnings.simplefilter("ignore", DeprecationWarning)  # CPython's own, about forking with threads
from lifetimes.errors import ClosedError
driver = lifetimes_opencl.backend.open()
device = lifetimes.open(lifetimes_opencl.backend.open(), memory_limit="1MiB")
array = device.asarray(np.arange(1000, dtype=np.float32))
kernel = device.compile(SOURCE)["twice"]
kernel.launch(array, size=1000, modes="u")
stream, event, address = driver.create_stream(), driver.create_event(), driver.allocate(100_000)
driver.copy_in(address, np.full(100_000, 5, np.uint8), stream)
gate = threading.Event()
driver.call(gate.wait, (20,), stream)  # a function that runs while we fork
driver.record(event, stream)
child = os.fork()
if child == 0:
    for call in (lambda: driver.allocate(1), lambda: driver.free(address), lambda: driver.wait(event),
                 lambda: driver.completed(event), lambda: driver.synchronize(stream), driver.memory_info,
                 driver.create_stream, lambda: array.numpy(), lambda: device.asarray([1])):
        try:
            call()
            print("not refused")
        except ClosedError as error:
            assert "fork" in str(error) or "inherited" in str(error), error
    driver.close()
    del array, kernel
    print("child", flush=True)
    END
_, status = os.waitpid(child, 0)
gate.set()
driver.wait(event)
print("parent", status, int(driver.view(address, 1)[0]), array.numpy()[1], flush=True)
driver.close()
device.close()
"""
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("end", ["sys.exit(0)", "os._exit(0)", "driver = device = stream = event = None; sys.exit(0)"])
def test_a_forked_child_is_refused_and_ends_in_silence(end: str) -> None:
    require()
    result = run_python(FORK.replace("END", end))
    assert result.stdout.split("\n") == ["child", "parent 0 5 2.0", ""]
    assert (result.returncode, result.stderr) == (0, "")


def test_no_thread_is_started_at_exit() -> None:
    require()
    result = run_python(
        HEAD
        + """
import atexit
driver = lifetimes_opencl.backend.open()
import lifetimes_opencl.calls as calls
stream, event, address = driver.create_stream(), driver.create_event(), driver.allocate(100)

def late():
    before = threading.active_count()
    driver.copy_in(address, np.full(100, 5, np.uint8), stream)
    driver.call(lambda: print("ran on", threading.current_thread().name), (), stream)
    driver.record(event, stream)
    driver.wait(event)
    print(int(driver.view(address, 1)[0]), threading.active_count() - before)
    driver.close()

atexit.unregister(calls._exiting.append)
atexit.register(late)
atexit.register(calls._exiting.append, True)  # as for a hook that was registered before ours
"""
    )
    assert (result.stdout, result.stderr, result.returncode) == ("ran on MainThread\n5 0\n", "", 0)


def test_a_child_that_executes_another_program_is_none_of_our_business() -> None:
    require()
    result = run_python(
        HEAD
        + f"""
import subprocess
with lifetimes.open("opencl") as device:
    x = device.asarray([1.0, 2.0])
    print(subprocess.run([{sys.executable!r}, "-c", "print('hello')"], capture_output=True, text=True).stdout, end="")
    print(x.numpy().sum())
"""
    )
    assert (result.stdout, result.stderr, result.returncode) == ("hello\n3.0\n", "", 0)
