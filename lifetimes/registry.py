"""Back ends by name: found lazily, failures kept with their reason."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

from lifetimes.errors import BackendError

if TYPE_CHECKING:
    from lifetimes.backend import Backend

__all__ = ["GROUP", "Found", "find", "find_all", "names", "register"]

GROUP: Final = "lifetimes.backends"
"""The entry-point group in which a package announces a back end: ``name = "module:object"``."""

_BUILT_IN: Final = {
    "host": "lifetimes_host:backend",
    "opencl": "lifetimes_opencl:backend",
    "sim": "lifetimes.testing.sim:backend",
}
_registered: dict[str, Backend] = {}


@dataclass(frozen=True, slots=True)
class Found:
    """A back end by name, or why it could not be loaded."""

    name: str
    backend: Backend | None
    problem: str = ""


def register(backend: Backend) -> None:
    """Make a back end known under its own ``name``.  Errors: `ValueError` when the name is taken by another one."""
    known = _registered.get(backend.name)
    if known is not None and known is not backend:
        raise ValueError(f"the name {backend.name!r} is taken by the back end {known!r}")
    _registered[backend.name] = backend


def names() -> tuple[str, ...]:
    """Every name that `find` knows: built in, registered, and announced by installed packages."""
    return tuple(dict.fromkeys([*_BUILT_IN, *_registered, *_announced()]))


def find(name: str) -> Backend:
    """The back end of that name.

    Errors: `BackendError` that names those there are, or says why this one could not be loaded.
    Complexity: built-in names need no search of installed packages.

    >>> find("host").name
    'host'
    """
    if name in _registered:
        return _registered[name]
    path = _BUILT_IN.get(name) or _announced().get(name)
    if path is None:
        raise BackendError(
            f"no back end is called {name!r}; there are {', '.join(map(repr, names()))}. "
            f"A package brings one by announcing it in the entry-point group {GROUP!r}"
        )
    module, _, attribute = path.partition(":")
    try:
        backend: Backend = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise BackendError(
            f"the back end {name!r} ({path}) could not be loaded: {type(error).__name__}: {error}"
        ) from error
    _registered[name] = backend
    return backend


def find_all() -> list[Found]:
    """Each name with its back end or the reason why it cannot be loaded."""
    found = []
    for name in names():
        try:
            found.append(Found(name, find(name)))
        except BackendError as error:
            found.append(Found(name, None, str(error)))
    return found


def _announced() -> dict[str, str]:
    return {point.name: point.value for point in entry_points(group=GROUP)}
