"""Arrays of one device pinned together: as lifetimes, so that nobody closes them, and in the manager, so that they stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from lifetimes.errors import BusyError
from lifetimes.lifetime import Lifetime

if TYPE_CHECKING:
    from lifetimes._typing import Mode
    from lifetimes.holders import Pin
    from lifetimes.manager import Manager
    from lifetimes.manager.use import UseMany
    from lifetimes.resources.array import Array
    from lifetimes.timeline import Timeline

__all__ = ["ArraysInUse", "parse_modes"]

_LETTERS: Final[dict[str, Mode]] = {"r": "r", "w": "w", "u": "rw"}


class ArraysInUse:
    """A ``with`` block over arrays and a stream; gives the arrays' device addresses.  Made by `Device.use`.

    Errors: `BusyError` when entered twice, `ValueError` for writing through a view that repeats elements.
    """

    __slots__ = ("_manager", "_pairs", "_pins", "_stream", "_use", "timeline")

    def __init__(
        self, manager: Manager, pairs: Sequence[tuple[Array, Mode]], stream: object, timeline: Timeline
    ) -> None:
        for array, mode in pairs:
            if mode != "r" and array.repeats:
                raise ValueError(
                    f"{array!r} repeats elements (strides {array.strides}) and can only be read; "
                    'say so with read=[...] or modes="r"'
                )
        self._manager = manager
        self._pairs = pairs
        self._stream = stream
        self.timeline = timeline
        self._pins: list[Pin[Any]] = []
        self._use: UseMany | None = None

    def __enter__(self) -> tuple[int, ...]:
        if self._pins or self._use is not None:
            raise BusyError("a use can be entered once; call use() again for another block")
        try:
            # Each thing is noted before it is entered, so that an interrupt in between leaves nothing pinned.
            if isinstance(self._stream, Lifetime):
                self._pins.append(self._stream.use("device.use"))
            self._pins += [array.use("device.use") for array, _ in self._pairs]
            for pin in self._pins:
                pin.__enter__()
            # Overwriting a part is not overwriting the whole: the rest of the storage must be there.
            pairs: list[tuple[int, Mode]] = [
                (array.key, "rw" if mode == "w" and not array.whole else mode) for array, mode in self._pairs
            ]
            self._use = use = self._manager.use_many(pairs, self.timeline)
            addresses = use.__enter__()
            starts = tuple([address + array.offset for address, (array, _) in zip(addresses, self._pairs, strict=True)])
        except BaseException:
            self._leave()
            raise
        return starts

    def __exit__(self, *exc_info: object) -> None:
        try:
            self._leave()
        except BaseException:  # an interrupt, perhaps half-way
            self._leave()
            raise

    def _leave(self) -> None:
        """Let everything go.  Doing it twice does no harm."""
        try:
            if self._use is not None:
                self._use.__exit__()
        finally:
            for pin in self._pins:
                pin.__exit__()


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
