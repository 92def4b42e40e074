"""Failures in the library's words: the runtime's error codes, and what a Python function on a stream has raised."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any, Final

from lifetimes.errors import BackendError, LifetimesError, OutOfMemory
from lifetimes_opencl.runtime import cl

__all__ = ["OUT_OF_MEMORY", "CallFailure", "code_name", "translate"]

MEM_OBJECT_ALLOCATION_FAILURE: Final = -4
OUT_OF_RESOURCES: Final = -5
INVALID_BUFFER_SIZE: Final = -61
OUT_OF_MEMORY: Final[frozenset[object]] = frozenset(
    {MEM_OBJECT_ALLOCATION_FAILURE, OUT_OF_RESOURCES, INVALID_BUFFER_SIZE}
)
"""What an allocation may answer when there is not enough memory.

The size of an allocation is checked before the runtime sees it, so an invalid size can only be one that is too large.
"""
GONE: Final = {-34: "context", -36: "command queue", -38: "memory object", -44: "program", -48: "kernel", -58: "event"}
"""Codes of handles that the runtime does not know (any more)."""


def code_name(code: int) -> str:
    """The name of a code as the standard has it, with the number.

    >>> code_name(-5)
    'OUT_OF_RESOURCES (-5)'
    """
    return f"{cl.status_code.to_string(code, 'unknown code %d')} ({code})"


def translate(error: Any, what: str, *, allocating: bool = False) -> LifetimesError:
    """The error to raise for a ``pyopencl.Error``: `OutOfMemory` for the published codes, else `BackendError`.

    Outside of an allocation only one code speaks of memory: that of a buffer whose memory is found at its first use.
    `OUT_OF_RESOURCES` is then about registers or local memory, and a retry would not help.
    """
    code = int(error.code)
    message = f"{what}: {error.routine} failed with {code_name(code)}"
    if code == MEM_OBJECT_ALLOCATION_FAILURE or (allocating and code in OUT_OF_MEMORY):
        return OutOfMemory(message)
    if code in GONE:
        message += f"; its {GONE[code]} is of another context, or was released by somebody else"
    return BackendError(message)


class CallFailure:
    """What a function on a stream raised, and the text of its traceback, without the frames.

    The frames would keep the function's arguments alive until somebody asks the event.
    """

    __slots__ = ("error", "text")

    def __init__(self, error: BaseException) -> None:
        self.text = "".join(traceback.format_exception(error))
        seen: set[int] = set()
        todo: list[BaseException | None] = [error]
        while todo:
            link = todo.pop()
            if link is None or id(link) in seen:
                continue
            seen.add(id(link))
            link.__traceback__ = None
            todo += [link.__cause__, link.__context__]
            if isinstance(link, BaseExceptionGroup):
                todo += link.exceptions
        self.error = error

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"

    def as_error(self, others: Sequence[CallFailure] = ()) -> BackendError:
        """A new error from this failure; the ``others`` of the same event are notes on it."""
        told = BackendError(f"a function on an OpenCL stream failed: {self}")
        told.__cause__ = self.error
        told.add_note(f"where it failed:\n{self.text}")
        for other in others:
            told.add_note(f"a later function before the same event failed too: {other}")
        return told
