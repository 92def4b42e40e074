"""`defer`: a block in which neither drops nor safe points release anything."""

from __future__ import annotations

from _thread import get_ident

from lifetimes.locks import busy, mark, unmark_down_to
from lifetimes.reaper import safepoint

__all__ = ["defer"]


class defer:  # noqa: N801 (reads like the statement it is)
    """``with defer():`` neither drops nor safe points on this thread release anything before the block ends.

    For code that holds a lock which finalizers take too.  The end of the outermost block is a safe point; an explicit
    `drain` inside releases at once.  Other threads are not affected.
    """

    __slots__ = ("_before", "_mark")

    def __init__(self) -> None:
        self._mark = 0

    def __enter__(self) -> None:
        if self._mark:
            raise RuntimeError("a defer() can be entered once at a time; write another for a block inside")
        me = ~get_ident()
        self._before = busy.count(me)
        self._mark = me
        try:
            mark(me)
        except BaseException:  # an interrupt: there will be no __exit__
            self._leave()
            raise

    def __exit__(self, *exc_info: object) -> None:
        same_thread = self._mark == ~get_ident()
        try:
            self._leave()
        finally:  # once more, should an interrupt have struck the line above
            self._leave()
        if same_thread:
            safepoint()

    def _leave(self) -> None:
        if getattr(self, "_mark", 0):  # an interrupt may have kept __init__ from setting it
            unmark_down_to(self._before, self._mark)
            self._mark = 0

    __del__ = _leave  # an interrupt between __enter__ and the block lets it die without __exit__
