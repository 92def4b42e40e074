"""Arrays of one device pinned together: as lifetimes, so that nobody closes them, and in the manager, so that they stay."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lifetimes._typing import Mode
    from lifetimes.manager import Manager
    from lifetimes.resources.array import Array
    from lifetimes.timeline import Timeline

__all__ = ["ArraysInUse", "parse_modes"]

_LETTERS: Final[dict[str, Mode]] = {"r": "r", "w": "w", "u": "rw"}


class ArraysInUse:
    """A ``with`` block over arrays; gives their device addresses.  Made by `Device.use`."""

    __slots__ = ("_manager", "_pairs", "_stack", "timeline")

    def __init__(self, manager: Manager, pairs: Sequence[tuple[Array, Mode]], timeline: Timeline) -> None:
        self._manager = manager
        self._pairs = pairs
        self._stack = ExitStack()
        self.timeline = timeline

    def __enter__(self) -> tuple[int, ...]:
        with ExitStack() as stack:
            # Overwriting a part is not overwriting the whole: the rest of the storage must be there.
            pairs = [
                (stack.enter_context(array.use("device.use")), "rw" if mode == "w" and not array.whole else mode)
                for array, mode in self._pairs
            ]
            addresses = stack.enter_context(self._manager.use_many(pairs, self.timeline))
            self._stack = stack.pop_all()
        return tuple([address + array.offset for address, (array, _) in zip(addresses, self._pairs, strict=True)])

    def __exit__(self, *exc_info: Any) -> None:
        self._stack.__exit__(*exc_info)


def parse_modes(modes: str | Sequence[Mode] | None, count: int) -> list[Mode]:
    """One mode for each of ``count`` arrays, from letters (``r`` read, ``w`` overwrite, ``u`` update) or mode names.

    >>> parse_modes("ruw", 3), parse_modes(None, 1)
    (['r', 'rw', 'w'], ['rw'])
    >>> parse_modes("r", 2)
    Traceback (most recent call last):
    ValueError: modes 'r' is for 1 arrays, but there are 2; it needs one for each
    """
    if modes is None:
        return ["rw"] * count
    if len(modes) != count:
        raise ValueError(f"modes {modes!r} is for {len(modes)} arrays, but there are {count}; it needs one for each")
    if not isinstance(modes, str):
        return list(modes)
    for letter in modes:
        if letter not in _LETTERS:
            raise ValueError(f'modes {modes!r}: {letter!r} is none of "r" (read), "w" (overwrite) and "u" (update)')
    return [_LETTERS[letter] for letter in modes]
