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


FORKED = (
    HEAD
    + """
warnings.simplefilter("ignore", DeprecationWarning)  # CPython's own, about forking with threads
import gc, signal
from lifetimes_opencl.runtime import cl
driver = lifetimes_opencl.backend.open()
stream, event, address = driver.create_stream(), driver.create_event(), driver.allocate(1000)
module = driver.load(driver.compile(SOURCE))
kernel = driver.function(module, "twice")
driver.launch(kernel, (16,), (address,), stream)
driver.copy_in(address, np.zeros(1000, np.uint8), stream)
driver.record(event, stream)
watched = [cl.Event.from_int_ptr(event.mark.event.int_ptr), cl.CommandQueue.from_int_ptr(stream.queue.int_ptr),
           kernel.spare[0].get_info(cl.kernel_info.PROGRAM)]
driver.wait(event)
child = os.fork()
counts = lambda: [each.reference_count for each in watched]
before = counts()  # here, where no thread of the runtime changes them
if child == 0:
    signal.alarm(20)
    WHAT
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_releases_nothing_that_it_drops() -> None:
    """The runtime's release calls wait for locks, and a thread that is not in the child may have held one."""
    require()
    what = "del driver, stream, event, module, kernel; gc.collect(); print(counts() == before, flush=True)"
    result = run_python(FORKED.replace("WHAT", what))
    assert (result.stdout, result.stderr, result.returncode) == ("True\n0\n", "", 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_device_opened_in_a_forked_child_is_refused_in_words() -> None:
    """With the threads of the runtime left behind, the first copy would wait for ever."""
    require()
    what = """
    for call in (lambda: lifetimes.open("opencl"), lambda: lifetimes_opencl.adopt(watched[1])):
        try:
            call()
        except lifetimes.errors.BackendError as error:
            print("forked" in str(error) and "spawn" in str(error), flush=True)
    """
    result = run_python(FORKED.replace("WHAT", what.strip()))
    assert (result.stdout, result.stderr, result.returncode) == ("True\nTrue\n0\n", "", 0)


@pytest.mark.parametrize(
    ("memory", "what"),
    [("fine", "driver.launch(kernel, (16,), (address,), stream)"),
     ("fine", "driver.launch(kernel, (16,), (address + 4,), stream)"),
     ("buffers", "driver.launch(kernel, (16,), (address + 4,), stream)"),
     ("buffers", "driver.copy_in(address, np.zeros(100, np.uint8), stream)"),
     ("fine", "driver.record(event, stream); driver.destroy_event(event)"),
     ("fine", "driver.record(event, stream); driver.record(event, other)"),
     ("fine", "release_other = hold_back(driver, other); driver.record(event, other); driver.stream_wait(stream, event)"),
     ("fine", "driver.call(int, (), stream); driver.call(int, (), stream)")],
)  # fmt: skip
def test_work_behind_a_command_that_fails_does_not_end_the_process(memory: str, what: str) -> None:
    """PoCL 3.0 does that when nobody holds the event of what fails, or what failed waited for an event."""
    require()
    result = run_python(
        HEAD
        + f"""
from tests.opencl.here import hold_back
driver = lifetimes_opencl.backend.open(memory={memory!r})
stream, other, event, last = driver.create_stream(), driver.create_stream(), driver.create_event(), driver.create_event()
address, module = driver.allocate(1000), driver.load(driver.compile(SOURCE))
kernel, release_other = driver.function(module, "twice"), int
release = hold_back(driver, stream)
{what}
driver.record(last, stream)
release(-5)
try:
    driver.wait(last)
except lifetimes.errors.BackendError as error:
    print("work before an event failed" in str(error))
driver.synchronize(stream)
release_other()
driver.synchronize(other)
driver.launch(kernel, (16,), (address,), stream)
driver.synchronize(stream)
driver.close()
print("goes on")
"""
    )
    assert (result.stdout, result.returncode) == ("True\ngoes on\n", 0), result.stderr


def test_memory_that_is_freed_under_a_running_kernel_does_not_end_the_process() -> None:
    """The protocol forbids it; the memory lives until the kernel is done."""
    require()
    result = run_python(
        HEAD
        + """
from tests.opencl.here import hold_back
driver = lifetimes_opencl.backend.open(memory="fine")
stream, module = driver.create_stream(), driver.load(driver.compile(SOURCE))
kernel, address = driver.function(module, "twice"), driver.allocate(64 << 20)
view = driver.view(address, 64 << 20)
view[:] = 0
import weakref
block = weakref.ref(driver.blocks.get(address).array)
del view
release = hold_back(driver, stream)
driver.launch(kernel, (16 << 20,), (address,), stream)
driver.free(address)
print(block() is not None)
release()
driver.synchronize(stream)
driver.launch(kernel, (1,), (driver.allocate(256),), stream)  # the runtime's kernel forgets its old arguments
driver.synchronize(stream)
print(block() is None)
"""
    )
    assert (result.stdout, result.stderr, result.returncode) == ("True\nTrue\n", "", 0)


def test_two_devices_of_one_runtime_work_at_once_and_in_one_context() -> None:
    """PoCL has as many as it is told to."""
    require()
    result = run_python(
        HEAD
        + """
from lifetimes_opencl.runtime import cl
print(len(lifetimes_opencl.backend.devices()))
with lifetimes.open("opencl", "*basic*", memory_limit="1MiB") as one, \
        lifetimes.open("opencl", "*pthread*", memory_limit="1MiB") as other:
    kernels = [device.compile(SOURCE)["twice"] for device in (one, other)]
    arrays = [one.asarray(np.full(50_000, number, np.float32)) for number in range(10)]
    there = [array.to_device(other) for array in arrays]
    for here, far in zip(arrays, there):
        kernels[0].launch(here, size=50_000, modes="u")
        kernels[1].launch(far, size=50_000, modes="u")
        kernels[1].launch(far, size=50_000, modes="u")
    print(all((array.numpy() == 2 * number).all() for number, array in enumerate(arrays)))
    print(all((array.numpy() == 4 * number).all() for number, array in enumerate(there)))
both = cl.Context(cl.get_platforms()[0].get_devices())
for number, device in enumerate(both.devices):
    with lifetimes.open(lifetimes_opencl.adopt(cl.CommandQueue(both, device))) as ours:
        x = ours.asarray(np.ones(16, np.float32))
        ours.compile(SOURCE)["twice"].launch(x, size=16, modes="u")
        print(ours.driver.device == device, x.numpy()[0])
""",
        POCL_DEVICES="pthread basic",
    )
    assert result.stdout.split("\n") == ["2", "True", "True", "True 2.0", "True 2.0", ""], result.stderr
    assert (result.stderr, result.returncode) == ("", 0)
