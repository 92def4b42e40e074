"""The peers: libraries that come with the extra ``bench``.  A row whose peer is not there is skipped, and says so."""

from __future__ import annotations

import importlib
import shutil
from typing import Any, NoReturn

import pytest

__all__ = ["pocl_queue", "require"]


def require(name: str) -> Any:
    """The module of that name, or skip the row."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0]:
            raise  # it is there, and broken
        skip(f"{name} is not installed; make bench installs it")


def pocl_queue() -> Any:
    """A PyOpenCL command queue on PoCL, that of the package index before one of the system; or skip the row."""
    cl = require("pyopencl")
    if shutil.which("ld") is None:  # PoCL would not raise but end the process
        skip("PoCL needs the linker ld, which is not on the PATH; binutils has it")
    try:
        platforms = cl.get_platforms()
    except cl.LogicError as error:
        skip(f"there is no OpenCL platform ({error}); make bench installs pocl-binary-distribution, which brings one")
    pocls = [platform for platform in platforms if platform.name == "Portable Computing Language"]
    if not pocls:
        names = ", ".join(platform.name for platform in platforms)
        skip(f"PoCL is not among the OpenCL platforms ({names}); make bench installs pocl-binary-distribution")
    # The package index has PoCL 3.0; what a system brings may have any version and often comes first.
    pocls.sort(key=lambda platform: "PoCL 3.0" not in platform.version)
    return cl.CommandQueue(cl.Context(pocls[0].get_devices()[:1]))


def skip(reason: str) -> NoReturn:
    """Skip the row, in words."""
    pytest.skip(reason)
