"""What is kept of an error that a command raised, until an event tells it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence

from lifetimes.errors import BackendError

__all__ = ["Failure"]


class Failure:
    """An error and the text of its traceback, without the frames.

    The frames would keep the command's arguments alive, arrays among them, until somebody asks the event; so each
    traceback in the chain of causes is turned into text and dropped.
    """

    __slots__ = ("error", "text")

    def __init__(self, error: BaseException) -> None:
        self.text = "".join(traceback.format_exception(error))
        for link in _chain(error):
            link.__traceback__ = None
        self.error = error

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"

    def as_error(self, others: Sequence[Failure] = ()) -> BackendError:
        """A new `BackendError` from this failure; the ``others`` of the same event are notes on it.

        >>> error = Failure(ValueError("no such row")).as_error()
        >>> print(error, "<-", repr(error.__cause__))
        a command on a host stream failed: ValueError: no such row <- ValueError('no such row')
        """
        told = BackendError(f"a command on a host stream failed: {self}")
        told.__cause__ = self.error
        told.add_note(f"where it failed:\n{self.text}")
        for other in others:
            told.add_note(f"a later command before the same event failed too: {other}")
        return told


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, what it came from, and the members of groups, each once."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        link = todo.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            yield link
            todo += [link.__cause__, link.__context__]
            if isinstance(link, BaseExceptionGroup):
                todo += link.exceptions
