"""PyOpenCL: contexts, queues, buffers, images, programs, kernels, events and pooled memory of an unmodified program.

Note [Substitutes].  PyOpenCL's classes are written in C++: they cannot be watched by weak references, and assigning to their
``__init__`` changes nothing.  But their subclasses are ordinary.  So the names ``pyopencl.Buffer`` and so on are bound to
subclasses whose instances carry a `Lifetime`, which goes when they go.

Note [Returned].  What C++ functions return (events, pooled and sub-buffers) is of the original class.  The tracker holds
these itself and looks at their reference counts from time to time: when nobody else refers to one, it is let go.
So they live a little longer, until the next sweep, which comes with every `SWEEP` new ones.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from lifetimes.cell import Cell, enqueue
from lifetimes.leaks import search
from lifetimes.leaks.paths import HIDDEN
from lifetimes.leaks.reasons import stand_ins
from lifetimes.leaks.tracking.substitutes import StandIn, Substitutes, subclass_of
from lifetimes.lifetime import Lifetime
from lifetimes.origins import hide, unhide
from lifetimes.reaper import drain

if TYPE_CHECKING:
    from lifetimes.leaks.tracking import Tracker

__all__ = ["LibraryTracker"]

SWEEP: Final = 64
"""New events and pooled buffers between two sweeps."""
ALONE: Final = 2
"""References to an object that only our list has: the list's, and the question's."""
CLASSES: Final = {
    "Context": "context",
    "CommandQueue": "queue",
    "Buffer": "buffer",
    "Image": "image",
    "Program": "program",
    "Kernel": "kernel",
    "Sampler": "sampler",
    "UserEvent": "event",
    "SVMAllocation": "svm",
}
"""What is created by calling the class, and the kind it is reported as."""
PARENTS: Final = {
    "queue": ("Context",),
    "buffer": ("Context", "Buffer"),
    "image": ("Context",),
    "program": ("Context",),
    "kernel": ("Program",),
    "sampler": ("Context",),
    "event": ("Context", "CommandQueue"),
    "svm": ("Context",),
}
"""Whom the runtime keeps alive for such a thing, among the arguments that made it."""
STATUS: Final = {3: "queued", 2: "submitted", 1: "running"}
MAKERS: Final = ("ImmediateAllocator", "DeferredAllocator", "MemoryPool", "SVMPool", "SVMAllocator")
"""Classes of `pyopencl.tools` whose instances are called for memory."""


class LibraryTracker:
    """Tracks PyOpenCL from ``start`` to ``stop``."""

    name = "pyopencl"

    def __init__(self) -> None:
        self._substitutes = Substitutes("pyopencl")
        # Note [Returned].  Entries [object, its lifetime]; a list, so that emptying one drops both.
        self._returned: dict[int, list[Any]] = {}
        self._unfinished: list[Cell] = []  # what waits for an event that nobody holds
        self._since_sweep = 0
        self._sweeping = False
        self._by_handle: weakref.WeakValueDictionary[tuple[str, int], Any] = weakref.WeakValueDictionary()
        self._folders: list[str] = []
        self._cl: Any = None

    def start(self) -> None:
        """From now on.  Errors: `ImportError` without PyOpenCL."""
        import pyopencl
        import pyopencl.array
        import pyopencl.tools
        import pytools

        self._cl = pyopencl
        self._folders = [os.path.dirname(module.__file__ or "") for module in (pyopencl, pytools)]
        self._folders.append("<generated")  # the invokers of kernels
        for folder in self._folders:
            hide(folder)
        search.ignored.append(self._returned)
        for name, kind in CLASSES.items():
            original = getattr(pyopencl, name, None)
            if original is not None:
                self._substitutes.put(original, self._class(original, kind))
        for name in MAKERS:
            original = getattr(pyopencl.tools, name, None)
            if original is not None:
                self._substitutes.put(original, self._maker(original))
        for module in (pyopencl._cl, pyopencl):
            for name, function in list(vars(module).items()):
                if name.lstrip("_").startswith("enqueue_") and callable(function) and not isinstance(function, type):
                    self._substitutes.put(function, self._function(function))

    def stop(self) -> None:
        """New objects are not tracked any more, nor what only the tracker itself held."""
        self._substitutes.take_back()
        for folder in self._folders:
            unhide(folder)
        for entry in list(self._returned.values()):
            stand_ins.pop(entry[1].key, None)
            entry.clear()
        self._returned.clear()
        for cell in self._unfinished:  # they only stand for something: nobody has to wait for them at exit
            cell.holders.clear()
            enqueue(cell)
        self._unfinished.clear()
        drain()

    def settle(self) -> None:
        """Empty PyOpenCL's own caches of kernels, which are nobody's leak."""
        self._cl.tools.clear_first_arg_caches()
        self.sweep()

    def sweep(self) -> None:
        """Let go of the events and pooled buffers that nobody else refers to and whose work is done."""
        if self._sweeping:
            return
        self._sweeping = True
        try:
            self._since_sweep = 0
            for number, entry in list(self._returned.items()):
                if sys.getrefcount(entry[0]) == ALONE:
                    self._let_go(number, entry)
        finally:
            self._sweeping = False

    def _let_go(self, number: int, entry: list[Any]) -> None:
        handle = entry[1]
        if isinstance(entry[0], self._cl._cl.Event) and not _completed(entry[0]):
            # Nobody waits for it, and it has not happened: the lifetime stays until it does.
            handle.after(_Completion(entry[0]))
            self._unfinished.append(handle._cell)
        self._returned.pop(number, None)
        stand_ins.pop(handle.key, None)
        entry.clear()

    def _class(self, original: type, kind: str) -> StandIn:
        """The substitute of a class.  Note [Substitutes]."""
        tracker = self

        def __init__(self: Any, *args: Any, **options: Any) -> None:
            original.__init__(self, *args, **options)  # type: ignore[misc]  # of a class that is known at run time only
            setattr(self, HIDDEN, tracker._lifetime(self, kind, args))

        def release(self: Any, *args: Any, **options: Any) -> Any:
            result = original.release(self, *args, **options)  # type: ignore[attr-defined]
            self.__dict__.pop(HIDDEN, None)
            return result

        members: dict[str, Any] = {"__init__": __init__}
        if hasattr(original, "release"):
            members["release"] = release
        for name in ("get_sub_region", "__getitem__"):
            if hasattr(original, name) and kind == "buffer":
                members[name] = self._method(original, name)
        return subclass_of(original, **members)

    def _maker(self, original: type) -> StandIn:
        """The substitute of a class whose instances give memory."""
        members = {name: self._method(original, name) for name in ("__call__", "allocate") if hasattr(original, name)}
        return subclass_of(original, **members)

    def _method(self, original: type, name: str) -> Callable[..., Any]:
        function = getattr(original, name)
        tracker = self

        def call(self: Any, *args: Any, **options: Any) -> Any:
            return tracker._watch(function(self, *args, **options), (self, *args))

        call.__name__ = call.__qualname__ = name
        return call

    def _function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The substitute of a function that returns an event, or a tuple with one."""
        watch = self._watch

        def enqueue(*args: Any, **options: Any) -> Any:
            result = function(*args, **options)
            if type(result) is tuple:
                for each in result:
                    watch(each, args)
                return result
            return watch(result, args)

        enqueue.__name__ = enqueue.__qualname__ = getattr(function, "__name__", "enqueue")
        enqueue.__doc__ = function.__doc__
        return enqueue

    def _watch(self, thing: Any, args: tuple[Any, ...]) -> Any:
        """Track something that a function returned.  Note [Returned]."""
        kind = self._kind(thing)
        if kind is not None and id(thing) not in self._returned and not hasattr(thing, HIDDEN):
            handle = self._lifetime(thing, kind, args)
            self._returned[id(thing)] = entry = [thing, handle]
            stand_ins[handle.key] = lambda: entry[0] if entry else None
            self._since_sweep += 1
            if self._since_sweep >= SWEEP:
                self.sweep()
        return thing

    def _kind(self, thing: Any) -> str | None:
        raw = self._cl._cl
        if isinstance(thing, raw.Event):
            return "event"
        if isinstance(thing, raw.MemoryObjectHolder):
            return "buffer"
        if isinstance(thing, raw.SVMPointer) and not isinstance(thing, raw.SVM):
            return "svm"
        return None

    def _lifetime(self, thing: Any, kind: str, args: tuple[Any, ...]) -> Lifetime[None]:
        parents = []
        for each in args[:2]:
            parent = self._known(each) if type(each).__name__ in PARENTS.get(kind, ()) else None
            if parent is not None and parent not in parents:
                parents.append(parent)
        handle: Lifetime[None] = Lifetime(
            None, kind=f"cl.{kind}", nbytes=_size(thing, kind), label=_label(thing, kind), parents=parents
        )
        if kind in ("context", "queue"):
            self._by_handle[type(thing).__name__, thing.int_ptr] = thing
        return handle

    def _known(self, thing: Any) -> Lifetime[Any] | None:
        """The lifetime of an argument, also of one that the library wrapped anew (``queue.context``)."""
        handle = getattr(thing, "__dict__", {}).get(HIDDEN)
        if handle is None and type(thing).__name__ in ("Context", "CommandQueue"):
            known = self._by_handle.get((type(thing).__name__, thing.int_ptr))
            handle = getattr(known, "__dict__", {}).get(HIDDEN)
        return handle if isinstance(handle, Lifetime) and not handle.closed else None


class _Completion:
    """An event as work in flight."""

    def __init__(self, event: Any) -> None:
        self.event = event

    def completed(self) -> bool:
        """Whether it has happened; one that failed has."""
        return _completed(self.event)

    def __repr__(self) -> str:
        status = self.event.command_execution_status
        return f"an event that has not happened yet (it is {STATUS.get(status, status)})"


def _completed(event: Any) -> bool:
    try:
        return bool(event.command_execution_status <= 0)  # CL_COMPLETE is 0, errors are negative
    except Exception:  # the context is gone
        return True


def _size(thing: Any, kind: str) -> int:
    return int(getattr(thing, "size", 0)) if kind in ("buffer", "image", "svm") else 0


def _label(thing: Any, kind: str) -> str | None:
    return str(thing.function_name) if kind == "kernel" else None


_tracker: type[Tracker] = LibraryTracker
