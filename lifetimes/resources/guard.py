"""A driver behind its context: made current for each call, and a wall once the context has gone.

The members are the upstream driver's own bound methods where nothing has to be made current, so the guard costs
nothing there.  When the context is lost they are replaced at once: calls that give something back do nothing (the
runtime has taken everything already), all others raise `ClosedError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from lifetimes.backend import Driver, SupportsContext
from lifetimes.cell import next_key
from lifetimes.errors import ClosedError

__all__ = ["GuardedDriver"]

_CALLS: Final = (
    "allocate", "call", "compile", "completed", "copy", "copy_in", "copy_out", "create_event", "create_stream",
    "function", "launch", "load", "memory_info", "record", "stream_wait", "view", "wait",
)  # fmt: skip
_GIVE_BACK: Final = ("close", "destroy_event", "destroy_stream", "free", "synchronize", "unload")
_FACTS: Final = ("max_allocation", "name", "out_of_memory_codes", "target")


class GuardedDriver:
    """Composes over any driver.  ``generation`` is never reused: it tells contexts apart that share a raw handle.

    >>> from lifetimes.testing.sim import SimDriver
    >>> driver = GuardedDriver(SimDriver(contexts=True))
    >>> address = driver.allocate(64)     # in its own context, whatever thread this is
    >>> driver.lose("reset by somebody else")
    >>> driver.free(address)              # the context took it along
    >>> driver.allocate(64)
    Traceback (most recent call last):
    lifetimes.errors.ClosedError: the context of the back end 'sim' is gone (reset by somebody else)
    """

    def __init__(self, upstream: Driver) -> None:
        self.upstream = upstream
        self.generation = next_key()
        self.lost = ""
        for name in _FACTS:
            if hasattr(upstream, name):
                setattr(self, name, getattr(upstream, name))
        for name in (*_CALLS, *_GIVE_BACK):
            method = getattr(upstream, name, None)
            if method is not None:
                if isinstance(upstream, SupportsContext) and name != "close":
                    method = _in_context(upstream, method)
                setattr(self, name, method)

    def lose(self, why: str) -> None:
        """The context was destroyed or reset behind our back: no call reaches the driver any more."""
        self.lost = why

        def refuse(*args: object) -> NoReturn:
            raise ClosedError(f"the context of the back end {self.upstream.name!r} is gone ({why})")

        for name in _CALLS:
            if name in self.__dict__:
                setattr(self, name, refuse)
        for name in _GIVE_BACK:
            setattr(self, name, _nothing)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "upstream":
            raise AttributeError(name)
        return getattr(self.upstream, name)

    def __repr__(self) -> str:
        return f"<guarded {self.upstream!r}>" if not self.lost else f"<lost context of {self.upstream.name!r}>"


def _in_context(upstream: SupportsContext, method: Callable[..., Any]) -> Callable[..., Any]:
    make_current, restore = upstream.make_current, upstream.restore

    def call(*args: Any, **options: Any) -> Any:
        previous = make_current()
        try:
            return method(*args, **options)
        finally:
            restore(previous)

    return call


def _nothing(*args: object) -> None:
    return
