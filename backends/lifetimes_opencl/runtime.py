"""PyOpenCL, imported once, with what its import may warn of kept out of the user's program.

PyOpenCL and the pytools below it warn at import of packages that would make their caches faster, and `Kernel` imports one
more module of it when the first kernel is made.  All of that happens here, where the warnings can be dropped, and never
later.  The modules are taken as untyped: older and newer releases differ in their type stubs, not in these calls.
"""

from __future__ import annotations

import importlib
import os
import warnings
from typing import Any, Final

__all__ = ["COMPLETE", "PROCESS", "STATUS", "cl", "raw"]


def _import(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


cl: Any = _import("pyopencl")
"""The package."""
raw: Any = _import("pyopencl._cl")
"""The wrapper of the C interface below it.  ``cl.enqueue_copy`` asks what its arguments are for half a microsecond; we know."""
_import("pyopencl.invoker")

PROCESS: Final = os.getpid()
"""Where the runtime was used first.  In a forked child it has none of its threads, and work would never be done."""
STATUS: Final = cl.event_info.COMMAND_EXECUTION_STATUS
COMPLETE: Final = 0
"""The status of a command that is done; what waits or runs is above, what failed below."""
