"""The same foreign handle gives the same object.

Keys are (back end, context generation, kind, handle): a raw handle alone is reused, a generation never.  The map holds its
objects weakly, and an entry leaves it before the handle may be reused: `forget` is the finalizer attached last, so it
runs first.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from lifetimes.lifetime import Lifetime
from lifetimes.locks import lock

__all__ = ["Identity", "IdentityMap"]

L = TypeVar("L", bound=Lifetime[Any])
Identity: TypeAlias = tuple[str, int, str, object]


class IdentityMap:
    """Foreign handles and the live lifetimes that stand for them.

    Threading: any thread.  Locks: the library's, for one look-up; objects are made without it.  Handles are compared under
    it, which is why they should be plain ones: integers, strings, or objects compared by identity.

    >>> from lifetimes import Lifetime
    >>> known = IdentityMap()
    >>> make = lambda: Lifetime.borrow(0x1)
    >>> a = known.get_or_make(("sim", 1, "stream", 0x1), make)
    >>> known.get_or_make(("sim", 1, "stream", 0x1), make) is a
    True
    >>> a.close()
    >>> len(known)
    0
    """

    def __init__(self) -> None:
        self._known: dict[Identity, tuple[int, weakref.ReferenceType[Any]]] = {}

    def get_or_make(self, identity: Identity, make: Callable[[], L]) -> L:
        """The live object of that handle; else a new one from ``make``.  Two threads get the same one."""
        with lock:
            found = self._alive(identity)
        if found is not None:
            return found  # type: ignore[no-any-return]
        made = make()
        made.add_finalizer(self.forget, identity, made.key)
        with lock:
            found = self._alive(identity)
            if found is None:
                self._known[identity] = (made.key, weakref.ref(made))
                return made
        made.close()
        return found  # type: ignore[no-any-return]

    def forget(self, identity: Identity, key: int) -> None:
        """Take the entry out, if it is still the one of the lifetime numbered ``key``."""
        with lock:
            known = self._known.get(identity)
            if known is not None and known[0] == key:
                self._known.pop(identity)

    def _alive(self, identity: Identity) -> Any:
        known = self._known.get(identity)
        found = None if known is None else known[1]()
        return None if found is None or found.closed else found

    def __len__(self) -> int:
        return len(self._known)
