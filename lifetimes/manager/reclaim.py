"""Giving memory back on demand, and asking others to do so: the reclaim hooks."""

from __future__ import annotations

import gc
import weakref
from _thread import get_ident
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lifetimes import reaper
from lifetimes.failures import warn
from lifetimes.locks import lock

if TYPE_CHECKING:
    from lifetimes.manager.core import Manager

__all__ = ["LEVELS", "Hook", "Reclaimer"]

LEVELS: Final = ("idle", "wait", "collect", "evict")
"""How far `Manager.reclaim` goes, each level beyond the one before: give back idle blocks; wait for work in flight;
collect garbage; evict every array that is not in use."""

Hook: TypeAlias = Callable[[str], object]
"""Told the level (``"hooks"`` when an allocation is short of memory); what it returns says whether it gave anything up."""


class Reclaimer:
    """The hooks of one manager.

    A hook is held weakly: it goes with the function, or for a bound method with the object.  Hooks run without any lock
    and may use the manager, allocate, register and unregister; one that fails is a `CleanupWarning` and the others run.
    While they run, an allocation on the same thread does not ask them again.
    """

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self._hooks: list[weakref.ReferenceType[Any]] = []
        self._asking: dict[int, None] = {}

    def add(self, hook: Hook) -> None:
        """Ask ``hook`` from now on.  Twice is once."""
        if not callable(hook):
            raise TypeError(f"a reclaim hook is called with the level; {type(hook).__name__} {hook!r} cannot be called")
        reference = weakref.WeakMethod(hook) if isinstance(hook, MethodType) else weakref.ref(hook)
        if reference not in self._hooks:
            self._hooks.append(reference)

    def remove(self, hook: Hook) -> None:
        """Do not ask ``hook`` any more; an unknown one is ignored."""
        self._hooks[:] = [reference for reference in self._hooks if reference() not in (None, hook)]

    def ask(self, level: str) -> bool:
        """Ask every hook; whether one gave anything up, or memory came free meanwhile."""
        me = get_ident()
        if not self._hooks or me in self._asking:
            return False
        memory = self.manager.memory
        before = (memory.reserved, memory.pool.held_bytes)
        given = False
        interrupt: BaseException | None = None
        try:
            self._asking[me] = None
            for reference in list(self._hooks):
                hook = reference()
                if hook is None:
                    continue
                try:
                    given = bool(hook(level)) or given
                except Exception as error:
                    warn(f"the reclaim hook {hook!r} failed: {type(error).__name__}: {error}; the others ran", error)
                except BaseException as error:
                    interrupt = error
                del hook
        finally:
            if me in self._asking:  # no call, so no interrupt in between
                del self._asking[me]
        if interrupt is not None:
            raise interrupt
        return given or (memory.reserved, memory.pool.held_bytes) != before

    def reclaim(self, level: str) -> int:
        """See `Manager.reclaim`."""
        if level not in LEVELS:
            raise ValueError(f"a level is one of {', '.join(LEVELS)}, not {level!r}")
        manager = self.manager
        before = manager.memory.reserved
        self.ask(level)
        reaper.safepoint()
        if level in ("collect", "evict"):
            gc.collect()
            reaper.safepoint()
        if level == "evict":
            manager.evictor.evict_some(1 << 63)
        if level != "idle":
            while manager.evictor.wait_oldest():
                pass
            with lock:
                flying = manager.memory.pool.in_flight()
            for block in flying:
                for timeline, sequence in block.tickets:
                    timeline.wait(sequence)
        manager.evictor.settle()
        manager.memory.purge()
        manager.host_store.trim()
        return max(before - manager.memory.reserved, 0)
