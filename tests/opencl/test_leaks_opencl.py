"""An unmodified PyOpenCL program: every kind of handle it leaks is named by its line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lifetimes.leaks.document import load
from tests.opencl.here import PIP_POCL, require

PROGRAM = """
import numpy as np
import pyopencl as cl
import pyopencl.array
import pyopencl.tools

(platform,) = [each for each in cl.get_platforms() if POCL in each.version][:1]
context = cl.Context(platform.get_devices()[:1])
queue = cl.CommandQueue(context)
source = "__kernel void f(__global float *a) { a[get_global_id(0)] += 1; }"
kept, events, cache = [], [], {}

def leaks():
    kept.append(cl.Buffer(context, cl.mem_flags.READ_WRITE, 4096))  # leak: buffer
    cache["sum"] = cl.array.zeros(queue, 1000, np.float32) + 1  # leak: array
    other = cl.CommandQueue(context)  # leak: queue
    kept.append(lambda: other)
    kernel = cl.Program(context, source).build().f  # leak: program
    kept.append(kernel)
    pool = cl.tools.MemoryPool(cl.tools.ImmediateAllocator(queue))
    kept.append(pool.allocate(5000))  # leak: pooled
    kept.append(cl.Buffer(context, cl.mem_flags.READ_WRITE, 8192).get_sub_region(0, 1024))  # leak: sub-buffer
    events.append(cl.enqueue_marker(queue))  # leak: event
    cache["deep"] = [[[[[[[[cl.enqueue_marker(queue)]]]]]]]]  # leak: deep
    gate = cl.UserEvent(context)  # leak: never
    cl.enqueue_marker(cl.CommandQueue(context), wait_for=[gate])  # leak: never completed
    kept.append(gate)

def fine():
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 1 << 16)
    assert isinstance(buffer, cl.Buffer) and type(buffer) == cl.Buffer
    cl.enqueue_copy(queue, buffer, np.arange(16, dtype=np.float32)).wait()
    array = cl.array.to_device(queue, np.arange(100, dtype=np.float32))
    assert (array * 2).get()[3] == 6
    program = cl.Program(context, source).build()
    program.f(queue, (16,), None, buffer).wait()
    out = np.empty(16, np.float32)
    cl.enqueue_copy(queue, out, buffer)
    assert out[3] == 4
    early = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4096)
    early.release()
    kept_longer.append(early)

kept_longer = []
for _ in range(30):
    fine()
if LEAK:
    leaks()
queue.finish()
"""


def line_of(mark: str) -> int:
    (found,) = [number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith(f"# leak: {mark}")]
    return found


def track(tmp_path: Path, leak: bool) -> tuple[int, Any, str]:
    require()
    script = tmp_path / "simulate.py"
    script.write_text(PROGRAM.replace("LEAK", repr(leak)).replace("POCL", repr(PIP_POCL)))
    words = ["leaks", "--track", "pyopencl", "--json", str(tmp_path / "report.json"), str(script)]
    done = subprocess.run(
        [sys.executable, "-m", "lifetimes", *words], cwd=tmp_path, capture_output=True, text=True, timeout=110
    )
    return done.returncode, load(tmp_path / "report.json") if (tmp_path / "report.json").exists() else None, done.stderr


def test_a_clean_program_leaks_nothing(tmp_path: Path) -> None:
    status, report, stderr = track(tmp_path, leak=False)
    assert stderr.splitlines()[-1] == "lifetimes leaks: nothing leaked", stderr
    assert status == 0
    assert {row.kind for row in report.others} <= {"cl.context", "cl.queue"}


def test_every_leak_is_named_by_its_line(tmp_path: Path) -> None:
    status, report, stderr = track(tmp_path, leak=True)
    assert status == 1, stderr
    leaked = {(row.kind, int(row.origin.split(":")[1].split()[0])): row for row in report.leaks}
    wanted = {
        ("cl.buffer", "buffer"): (4096, "kept[0]"),
        ("cl.buffer", "array"): (4000, "cache['sum']"),
        ("cl.queue", "queue"): (0, "closure variable 'other' of leaks.<locals>.<lambda> (simulate.py:"),
        ("cl.kernel", "program"): (0, "kept[2]"),
        ("cl.buffer", "pooled"): (5000, "kept[3]"),
        ("cl.event", "event"): (0, "events[0]"),
        ("cl.event", "deep"): (0, "cache['deep'][0][0][0][0][0][0][0][0]"),
        ("cl.event", "never"): (0, "kept[5]"),
        ("cl.event", "never completed"): (0, "work in flight: an event that has not happened yet"),
    }
    for (kind, mark), (nbytes, holder) in wanted.items():
        row = leaked[kind, line_of(mark)]
        assert nbytes <= row.nbytes <= nbytes * 1.25  # a pool rounds up
        assert row.origin == f"{tmp_path / 'simulate.py'}:{line_of(mark)} in leaks"
        assert holder in report.reasons[row.key].held_by
        assert f"simulate.py:{line_of(mark)} in leaks" in stderr
    sub = [row for row in report.leaks if row.nbytes == 1024]
    assert [row.origin.split(":")[1] for row in sub] == [f"{line_of('sub-buffer')} in leaks"]
    # What these need is there, and is not counted.
    others = {row.kind for row in report.others}
    assert {"cl.context", "cl.queue", "cl.program"} <= others


def test_tracking_ends_and_leaves_the_library_as_it_was() -> None:
    require()
    cl: Any = pytest.importorskip("pyopencl")
    import pyopencl._cl as raw

    from lifetimes import live
    from lifetimes.leaks.tracking import tracking

    before = {name: value for module in (cl, raw) for name, value in vars(module).items()}
    with tracking("pyopencl") as (tracker,):
        assert cl.Buffer is not before["Buffer"]
        platform = next(each for each in cl.get_platforms() if PIP_POCL in each.version)
        context = cl.Context(platform.get_devices()[:1])
        queue = cl.CommandQueue(context)
        held = [cl.enqueue_marker(queue) for _ in range(200)]
        assert len(live(kind="cl.event")) == 200
        held.clear()
        queue.finish()
        tracker.sweep()
        assert live(kind="cl.event") == []
        event = cl.enqueue_marker(queue)
        tracker.sweep()
        assert len(live(kind="cl.event")) == 1
        del event, queue, context
    after = {name: value for module in (cl, raw) for name, value in vars(module).items()}
    assert all(after[name] is value for name, value in before.items())
    assert live(kind="cl.*") == []
