"""Where references begin: the variables of modules, those of calls that are running now, context variables.

Note [Locals].  The variables of a running call are not in any container that the collector knows; ``frame.f_locals`` is the
only way to them.  Before Python 3.13 that is a copy which stays with the frame, so a look at it would keep everything in it
alive until the call returns: exactly what a search for leaks must not do.  The copy is emptied again, unless somebody
else has it too (``locals()``), or a tracer is at work, which writes it back to the variables.
"""

from __future__ import annotations

import contextvars
import inspect
import os
import sys
import threading
from types import FrameType, ModuleType
from typing import Any, Final

__all__ = ["OURS", "Roots", "local_variables", "place_of"]

OURS: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep
"""Calls from here are those of the search itself."""
_REFERENCES: Final = 3
"""To a frame's copy of its variables that only the frame and `local_variables` know: theirs, ours, and the question's."""


class Roots:
    """The modules, the running calls and this thread's context of one moment, by the identity of what they hold.

    It keeps numbers and words only, nothing alive.
    """

    def __init__(self) -> None:
        self.modules: dict[int, str] = {}
        for name, module in list(sys.modules.items()):
            if issubclass(type(module), ModuleType):
                self.modules[id(vars(module))] = name
        self.variables: dict[int, str] = {}
        self.threads = {thread.ident: thread.name for thread in threading.enumerate()}
        me = threading.get_ident()
        for ident, frame in sys._current_frames().items():
            where = "" if ident == me else f" in thread {self.threads.get(ident, ident)!r}"
            self._walk(frame, where)
        for variable, value in contextvars.copy_context().items():
            self.variables.setdefault(id(value), f"context variable {variable.name!r}")

    def _walk(self, frame: FrameType | None, where: str) -> None:
        while frame is not None:
            if not frame.f_code.co_filename.startswith(OURS):
                for name, value in local_variables(frame).items():
                    self.variables.setdefault(id(value), f"local variable {name!r} of {place_of(frame)}{where}")
            frame = frame.f_back

    def module_of(self, namespace: object) -> str | None:
        """The name of the module whose variables these are; None for any other object."""
        name = self.modules.get(id(namespace))
        if name is not None or type(namespace) is not dict:
            return name
        # What `exec` ran in has no module, but the interpreter puts the builtins there.
        if "__builtins__" in namespace:
            given = namespace.get("__name__")
            return given if isinstance(given, str) else "exec"
        return None


def local_variables(frame: FrameType) -> dict[str, Any]:
    """The variables of a function's call; nothing for code whose variables are a dict of somebody's.  Note [Locals]."""
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return {}
    seen = frame.f_locals
    values = dict(seen)
    if sys.version_info < (3, 13) and sys.getrefcount(seen) <= _REFERENCES and not _traced(frame):
        seen.clear()
    return values


def place_of(frame: FrameType) -> str:
    """``function (file:line)``, the file without its folders."""
    code = frame.f_code
    return f"{code.co_qualname} ({os.path.basename(code.co_filename)}:{frame.f_lineno})"


def _traced(frame: FrameType) -> bool:
    return frame.f_trace is not None or sys.gettrace() is not None or threading.gettrace() is not None
