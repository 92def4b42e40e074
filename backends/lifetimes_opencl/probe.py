"""Run as a program: try every OpenCL device with a kernel of three elements.

A line of JSON before each device and one after it, so that the reader knows where the process ended if a runtime ends it.
The argument is how many devices to pass over.  Nothing of lifetimes is imported here.
"""

from __future__ import annotations

import json
import shutil
import sys
import uuid
from typing import Any

SOURCE = "__kernel void NAME(__global int *x) { x[get_global_id(0)] *= 2; }"


def tell(**row: object) -> None:
    """Write a line for the reader."""
    print("\n" + json.dumps(row), flush=True)


def kernel_name() -> str:
    """PoCL links with a program of the system, and ends the process without it.  What it has in its cache hides that."""
    return "twice" if shutil.which("ld") else f"twice_{uuid.uuid4().hex}"


def run_three(cl: Any, numpy: Any, device: Any) -> None:
    """Errors: whatever goes wrong."""
    name = kernel_name()
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    program = cl._cl._Program(context, SOURCE.replace("NAME", name))
    program._build(b"", [device])
    numbers = numpy.arange(3, dtype=numpy.int32)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, numbers.nbytes)
    cl.enqueue_copy(queue, buffer, numbers)
    cl.Kernel(program, name)(queue, (3,), None, buffer)
    cl.enqueue_copy(queue, numbers, buffer)
    if numbers.tolist() != [0, 2, 4]:
        raise ValueError(f"twice [0, 1, 2] came out as {numbers.tolist()}")


def main(passed_over: int) -> None:
    """Every platform, every device."""
    import numpy
    import pyopencl as cl

    try:
        platforms = cl.get_platforms()
    except cl.LogicError as error:
        if "PLATFORM_NOT_FOUND" not in str(error):
            raise
        platforms = []
    tell(platforms=[[platform.name, platform.version] for platform in platforms])
    count = 0
    for platform_index, platform in enumerate(platforms):
        try:
            devices = platform.get_devices()
        except cl.Error:  # a platform without devices may say so by an error
            continue
        for device_index, device in enumerate(devices):
            count += 1
            if count <= passed_over:
                continue
            tell(
                begin=True,
                platform_index=platform_index,
                device_index=device_index,
                platform=platform.name.strip(),
                platform_version=platform.version.strip(),
                device=device.name.strip(),
                driver_version=device.driver_version.strip(),
                total_memory=int(device.global_mem_size),
            )
            try:
                run_three(cl, numpy, device)
            except Exception as error:
                tell(problem=f"{type(error).__name__}: {error}")
            else:
                tell(problem="")
    tell(end=True)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except Exception as error:
        tell(failure=f"{type(error).__name__}: {error}")
