"""A driver behind its context: made current for each call, and a wall once the context has gone.

The members are the upstream driver's own bound methods where nothing has to be made current, so the guard costs
nothing there.  Calls that create something are tried once more after an out of memory, when memory has been given back.

When the context is lost the members are replaced at once.  What gives something back does nothing, since the runtime
has taken everything already; what asks about order says that nothing is in flight any more; all others raise
`ClosedError`.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable
from functools import partial
from itertools import starmap
from typing import Any, Final, NoReturn

from lifetimes.backend import Driver, EventHandle, Handle, StreamHandle, SupportsContext
from lifetimes.cell import next_key
from lifetimes.errors import ClosedError, OutOfMemory

__all__ = ["GuardedDriver"]

_FACTS: Final = ("max_allocation", "name", "out_of_memory_codes", "synchronous", "target")
_CALLS: Final = (
    "allocate", "call", "call_now", "compile", "copy", "copy_in", "copy_out", "create_stream", "function", "launch", "load",
    "memory_info", "view",
)  # fmt: skip
_CREATE: Final = {
    "allocate": "free",
    "create_event": "destroy_event",
    "create_stream": "destroy_stream",
    "load": "unload",
}
"""What creates something, and what takes it back when the caller never learns of it."""
_LOST: Final[dict[str, object]] = {
    # Give back: there is nothing left to take.
    "close": None,
    "destroy_event": None,
    "destroy_stream": None,
    "free": None,
    "synchronize": None,
    "unload": None,
    # Order: all work has ended.
    "completed": True,
    "create_event": None,
    "record": None,
    "stream_wait": None,
    "wait": None,
}
"""What these calls answer once the context is lost."""


class GuardedDriver:
    """Composes over any driver.  ``generation`` is never reused: it tells contexts apart that share a raw handle.

    >>> from lifetimes.testing.sim import SimDriver
    >>> driver = GuardedDriver(SimDriver(contexts=True))
    >>> address = driver.allocate(64)     # in its own context, whatever thread this is
    >>> driver.lose("reset by somebody else")
    >>> driver.free(address)              # the context took it along
    >>> driver.allocate(64)
    Traceback (most recent call last):
    lifetimes.errors.ClosedError: the context closed: that of the back end 'sim' is gone (reset by somebody else)
    """

    def __init__(self, upstream: Driver) -> None:
        self.upstream = upstream
        self.generation = next_key()
        self.lost = ""
        self.relief: list[Callable[[], object]] = []
        """What gives memory back before the creation of a stream, event or module is tried once more."""
        # Every handle that there is.  An interrupt may take one from whoever asked for it, or was about to keep it, but
        # not from who destroys them in the end.
        self.streams: dict[StreamHandle, None] = {}
        self.events: dict[EventHandle, None] = {}
        self._context = upstream if isinstance(upstream, SupportsContext) else None
        for name in _FACTS:
            if hasattr(upstream, name):
                setattr(self, name, getattr(upstream, name))
        for name in {*_CALLS, *_LOST}:
            if hasattr(upstream, name):
                setattr(self, name, self._guarded(name))

    def _guarded(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self.upstream, name)
        context = self._context
        if name == "close":  # ends the context itself
            return method
        known = {"stream": self.streams, "event": self.events}.get(name.rpartition("_")[2])
        if name in _CREATE and (context is not None or name != "allocate"):
            # Memory itself is not tried again: the manager's ladder does that.
            relief = [] if name == "allocate" else self.relief
            return _creating(context, method, self._guarded(_CREATE[name]), relief, known)
        if context is not None:
            method = _in_context(context, method)
        return _forgetting(method, known) if name.startswith("destroy_") and known is not None else method

    def lose(self, why: str) -> None:
        """The context was destroyed or reset behind our back: no call reaches the driver any more."""
        self.lost = why
        refuse = _refusal(self.upstream.name, why)
        for name in _CALLS:
            if name in self.__dict__:
                setattr(self, name, refuse)
        for name, answer in _LOST.items():
            setattr(self, name, _saying(answer))
        self.streams.clear()
        self.events.clear()

    def __getattr__(self, name: str) -> Any:
        """What only this driver has: its calls run in its context, too, and end with it."""
        if name.startswith("__") or name == "upstream":
            raise AttributeError(name)
        member = getattr(self.upstream, name)
        if not callable(member):
            return member
        if self.lost:
            return _refusal(self.upstream.name, self.lost)
        return member if self._context is None else _in_context(self._context, member)

    def __repr__(self) -> str:
        return f"<guarded {self.upstream!r}>" if not self.lost else f"<lost context of {self.upstream.name!r}>"


def _call(
    context: SupportsContext | None, method: Callable[..., Any], args: tuple[Any, ...], results: list[Any]
) -> None:
    """One call in its context; the result is put into ``results``.

    What comes back goes into a list within one C call, so an interrupt can lose neither what was current before nor what
    was created.
    """
    previous: list[Handle] = []
    try:
        try:
            if context is not None:
                previous.extend(starmap(context.make_current, ((),)))
            results.extend(starmap(method, (args,)))
        finally:
            for each in previous:
                context.restore(each)  # type: ignore[union-attr]  # nothing was current before where there is none
            previous.clear()
    finally:  # once more, should an interrupt have struck on the way
        for each in previous:
            context.restore(each)  # type: ignore[union-attr]


def _in_context(context: SupportsContext, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        results: list[Any] = []
        _call(context, partial(method, **options) if options else method, args, results)
        return results[0]

    return call


def _creating(
    context: SupportsContext | None,
    create: Callable[..., Handle],
    undo: Callable[[Handle], object],
    relief: list[Callable[[], object]],
    known: dict[Handle, None] | None,
) -> Callable[..., Handle]:
    relieving: set[int] = set()  # threads that are at it: what gives memory back may create events itself

    def call(*args: Any) -> Handle:
        made: list[Handle] = []
        try:
            try:
                _call(context, create, args, made)
            except OutOfMemory:
                me = get_ident()
                if me in relieving or not relief:
                    raise
                relieving.add(me)
                try:
                    for give_back in relief:
                        give_back()
                finally:
                    relieving.discard(me)
                _call(context, create, args, made)
            if known is not None:
                known[made[0]] = None
        except BaseException:
            for each in made:  # an interrupt: the caller never learns of it
                undo(each)
            raise
        return made[0]

    return call


def _forgetting(destroy: Callable[[Handle], object], known: dict[Handle, None]) -> Callable[[Handle], None]:
    def call(handle: Handle) -> None:
        try:
            known.pop(handle, None)
        finally:  # whatever interrupts it: who is forgotten is destroyed
            destroy(handle)

    return call


def _refusal(name: str, why: str) -> Callable[..., NoReturn]:
    def refuse(*args: object, **options: object) -> NoReturn:
        raise ClosedError(f"the context closed: that of the back end {name!r} is gone ({why})")

    return refuse


def _saying(answer: object) -> Callable[..., object]:
    def say(*args: object) -> object:
        return answer

    return say
