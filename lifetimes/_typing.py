"""Types shared by all layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

Finalizer: TypeAlias = Callable[..., object]
HostArray: TypeAlias = npt.NDArray[Any]
Mode: TypeAlias = Literal["r", "rw", "w"]
Nbytes: TypeAlias = int
Shape: TypeAlias = tuple[int, ...]
ByteView: TypeAlias = npt.NDArray[np.uint8]


@runtime_checkable
class Task(Protocol):
    """Work in flight.  ``completed`` is True once it has finished and raises when it failed (which is finished too)."""

    def completed(self) -> bool: ...


class StandingTask(Task, Protocol):
    """Whatever is enqueued on something, now or later.  ``idle`` is True if none of it is known to be in flight; it asks
    no driver and takes no lock."""

    def idle(self) -> bool: ...
