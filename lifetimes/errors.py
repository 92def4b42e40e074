"""The errors of lifetimes: few, one base, each also a builtin.

Every message shows the value that was wrong and the way out.  The base lets a caller catch everything of this
library; the builtin lets code that has never heard of it do the usual thing (``except MemoryError``).
"""

from __future__ import annotations

__all__ = [
    "BackendError",
    "BrokenError",
    "BusyError",
    "CleanupWarning",
    "ClosedError",
    "CompileError",
    "InternalError",
    "LeakWarning",
    "LifetimesError",
    "MissingRule",
    "OutOfMemory",
    "OwnershipError",
    "TraceError",
    "VerifyError",
]


class LifetimesError(Exception):
    """The base of every error that lifetimes raises on purpose.

    >>> issubclass(OutOfMemory, LifetimesError) and issubclass(OutOfMemory, MemoryError)
    True
    """


class ClosedError(LifetimesError, RuntimeError):
    """A lifetime, device or manager was used after it was closed (or by a process that only inherited it)."""


class BusyError(LifetimesError, RuntimeError):
    """The thing is pinned, in transition, or the library was re-entered while this thread is inside it."""


class BrokenError(LifetimesError, RuntimeError):
    """The content is lost: the work that last wrote it failed on the device."""


class OwnershipError(LifetimesError, ValueError):
    """An object was given to a device, context or manager that does not own it."""


class OutOfMemory(LifetimesError, MemoryError):
    """No device memory could be had after every rung of the allocation ladder was tried.

    A driver raises it for exactly the error codes that it publishes as out of memory, and for nothing else:
    it is the only error that an allocation is retried for.
    """


class BackendError(LifetimesError, OSError):
    """The driver or its runtime refused a call, or a back end cannot be used here."""


class CompileError(LifetimesError, RuntimeError):
    """A program did not compile.  Carries the source and the compiler's log."""


class TraceError(LifetimesError, TypeError):
    """A Python function cannot be traced (it branches on a traced value, mixes devices, and so on)."""


class VerifyError(LifetimesError, ValueError):
    """A program in the intermediate form breaks a rule of that form."""


class MissingRule(LifetimesError, NotImplementedError):  # noqa: N818 (a rule is missing; "MissingRuleError" says no more)
    """An operation has no rule for this type, target or derivative."""


class InternalError(LifetimesError, RuntimeError):
    """A bug in lifetimes itself.  The message holds the state; please report it."""


class LeakWarning(ResourceWarning):
    """Something was still alive where nothing should have been."""


class CleanupWarning(RuntimeWarning):
    """A finalizer failed on a path that has no caller to raise to."""
