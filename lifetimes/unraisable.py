"""The last channel: an exception that has no caller to go to, told through ``sys.unraisablehook``."""

from __future__ import annotations

__all__ = ["tell"]


def tell(error: BaseException, what: str) -> None:
    """Hand ``error`` to ``sys.unraisablehook``, with ``what`` as a note.

    The hook's argument cannot be made in Python (the default hook refuses any other type), but the interpreter makes one
    for whatever a ``__del__`` raises.

    >>> import sys
    >>> heard = []
    >>> old, sys.unraisablehook = sys.unraisablehook, lambda args: heard.append((args.exc_value, args.exc_value.__notes__))
    >>> tell(ValueError("lost"), "while releasing x")
    >>> sys.unraisablehook = old
    >>> heard
    [(ValueError('lost'), ['while releasing x'])]
    """
    error.add_note(what)
    _Messenger(error)


class _Messenger:
    """Raises its error when it dies, which is at once."""

    __slots__ = ("_error",)

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __del__(self) -> None:
        raise self._error
