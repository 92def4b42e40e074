"""`Lifetime`: a handle on a resource whose finalizers run once, in order, children first, whatever happens."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from itertools import starmap
from types import FunctionType, TracebackType
from typing import Any, Generic, NoReturn, Self, TypeVar, cast

from lifetimes import closing, failures, instrument, pending, reaper
from lifetimes._typing import Finalizer, Task
from lifetimes.cell import DROPPED, INHERITED, LIVE, MARKED, Cell, Pending, describe, enqueue, live, next_key
from lifetimes.errors import BusyError, ClosedError, OwnershipError
from lifetimes.holders import Export, Pin
from lifetimes.locks import held_here, locked, refuse_reentry
from lifetimes.reachable import refers_to
from lifetimes.reaper import drop, safepoint

__all__ = ["Lifetime"]

T = TypeVar("T")
R = TypeVar("R")


class Lifetime(Generic[T]):
    """Owns ``value`` until the handle is dropped or closed, then runs the finalizers, last attached first.

    ``finalizer(*args)`` is a frozen recipe: everything it needs is in its arguments, and it must not refer to this
    handle.  ``parents`` are released after this lifetime, in whatever order the handles go.  ``kind``, ``nbytes`` and
    ``label`` are for reports.  ``deferred=True`` keeps the release to safe points, for finalizers that take a lock
    under which the handle may be dropped.

    Errors: `TypeError` for a finalizer that cannot be called, `OwnershipError` for one bound to this very handle,
    `ClosedError` for a closed parent.
    Complexity: O(parents).  Threading: any thread may create, use, close and drop.

    >>> from lifetimes import Lifetime
    >>> context = Lifetime("ctx", print, "context destroyed", kind="context")
    >>> stream = Lifetime("stream", print, "stream destroyed", kind="stream", parents=[context])
    >>> del context          # still needed by the stream
    >>> with stream.use() as handle:
    ...     handle
    'stream'
    >>> stream.close()
    stream destroyed
    context destroyed
    """

    # Note [Speed].  __init__ and __del__ are one path, measured against weakref.finalize: no helper calls, no property,
    # no lock, no generator; slots assigned inline.
    __slots__ = ("__weakref__", "_cell", "_value")

    _cell: Cell
    _value: T

    def __init__(
        self,
        value: T,
        finalizer: Finalizer | None = None,
        *args: Any,
        kind: str = "object",
        nbytes: int = 0,
        label: str | None = None,
        parents: Sequence[Lifetime[Any]] = (),
        deferred: bool = False,
    ) -> None:
        if finalizer is not None and (finalizer.__class__ is not FunctionType or self.__class__ is not Lifetime):
            _check_finalizer(finalizer, args, self)  # nothing but a subclass has a handle to refer to, this early
        self._value = value
        key = next_key()
        self._cell = cell = Cell(self, enqueue)
        cell.key = key
        cell.kind = kind
        cell.nbytes = nbytes
        cell.label = label
        cell.deferred = deferred
        cell.finalizer = finalizer
        cell.args = args
        cell.added = None
        cell.holders = {}
        if not parents:
            cell.parents = ()
            cell.state = LIVE
            live[key] = cell
        else:
            try:
                parent = parents[0]._cell
                several = len(parents) > 1
                cell.parents = tuple([each._cell for each in parents]) if several else (parent,)
            except (AttributeError, LookupError, TypeError):
                raise TypeError(f"parents must be a sequence of lifetimes, not {parents!r}") from None
            cell.state = LIVE
            live[key] = cell  # first: from here on a release undoes what follows, however far an interrupt lets it come
            if several:
                _link(cell)
            else:
                parent.holders[key] = cell
                if parent.state:
                    _refuse_parent(cell, parent)
        if instrument.watchers:
            instrument.created(cell)

    __del__ = drop

    # What it is.

    @property
    def value(self) -> T:
        """The value.  Nothing keeps it alive beyond the handle: prefer `use`.  Errors: `ClosedError`."""
        self._require_open("its value was asked for")
        return self._value

    @property
    def closed(self) -> bool:
        """True from the moment of `close` (or `detach`) on, even while the release waits for work in flight."""
        return self._cell.state != LIVE and closing.settle_state(self._cell) != LIVE

    @property
    def key(self) -> int:
        """This lifetime's number: never reused in this process."""
        return self._cell.key

    @property
    def kind(self) -> str:
        """What sort of thing it is, for reports."""
        return self._cell.kind

    @property
    def nbytes(self) -> int:
        """Its size in bytes, for reports."""
        return self._cell.nbytes

    @property
    def label(self) -> str | None:
        """The name the user gave it; assign to rename."""
        return self._cell.label

    @label.setter
    def label(self, label: str | None) -> None:
        self._cell.label = label

    def __repr__(self) -> str:
        cell = getattr(self, "_cell", None)
        if cell is None:  # a message about what its constructor was given
            return f"<{type(self).__name__} in the making>"
        state = "" if cell.state == LIVE else f", {closing.state_in_words(cell)}"
        return f"<{type(self).__name__} {describe(cell)}{state}>"

    # Using it.

    def use(self, why: str = "") -> Pin[T]:
        """``with lt.use() as value:`` keeps the value, and everything it depends on, alive for the block.

        A pin is not a lock: several threads may use at once.  Leaving the block, by an exception too, unpins.
        ``why`` shows in the `BusyError` of whoever tries to close it meanwhile.
        Errors: `ClosedError`.
        """
        self._require_open("it was used")
        return Pin(self, why)

    def export(self, why: str = "export") -> Export[T]:
        """Hand the value to foreign code that says when it is done: ``export.release()``, from any thread, once.

        Until then the value and its parents stay; `close` leaves the lifetime "closing", and exit never frees it.
        Errors: `ClosedError`.
        """
        self._require_open("it was exported")
        return Export(self._cell, self._value, why)

    def after(self, task: Task) -> Self:
        """Do not release before ``task`` has finished.  Returns self.

        ``task.completed()`` is asked at safe points; raising means that the work failed, which is finished too.
        Errors: `TypeError` for an object without ``completed``, `ClosedError`.
        """
        if not callable(getattr(task, "completed", None)):
            raise TypeError(f"after() wants a task with a completed() method, not {type(task).__name__} {task!r}")
        self._require_open("work was put after it")
        cell = self._cell
        if len(cell.holders) > 8:
            pending.prune(cell)
        cell.holders[next_key()] = Pending(task)
        return self

    def add_finalizer(self, finalizer: Finalizer, *args: Any) -> None:
        """Attach one more; it runs before those attached earlier.

        Errors: `ClosedError` if the lifetime was closed (the finalizer is not run then), `OwnershipError` if the
        finalizer can reach this handle (as a bound method, a closure, a partial or an argument), which would keep the
        handle alive for ever.
        """
        _check_finalizer(finalizer, args, self)
        attached = _attach(self._cell, finalizer, args) if held_here() else locked(_attach, self._cell, finalizer, args)
        if not attached:
            self._refuse("a finalizer was added")

    def weak(self) -> weakref.ReferenceType[Self]:
        """A weak reference to the handle.  It may give None a little before the finalizers have run."""
        return weakref.ref(self)

    # Ending it.

    def close(self, wait: bool = False) -> None:
        """Release it and its children (youngest first) now.

        If anything in the subtree is pinned, `BusyError` says who holds it and nothing changes.  What still has work in
        flight or a live export stays "closing", its ancestors too, and is released later; ``wait=True`` waits for
        the work first.  Closing twice is fine.

        Errors: `BusyError`; what finalizers raised, as one `ExceptionGroup`, after all of them have run.
        Complexity: linear in the subtree.
        """
        failed = closing.close(self._cell, wait)
        try:
            safepoint()
        finally:
            failures.raise_all(failed, describe(self._cell))

    def __enter__(self) -> Self:
        self._require_open("it was entered")
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            failed = closing.close(self._cell, False)
        except BusyError as busy:
            error.add_note(f"while cleaning up: {busy}")
            return
        interrupted = failures.interrupt_among(failed) is not None
        failures.add_notes(error, failed)
        if interrupted:
            for _ in failures.interrupts:  # it strikes when ``error`` is on its way
                break

    def detach(self) -> T:
        """Give the value up: no finalizer will run.  Returns it.

        Errors: `BusyError` while pinned, exported or with live children, `ClosedError` when closed.
        """
        self._require_open("it was detached")
        if not closing.detach(self._cell):
            self._refuse("it was detached")
        return self._value

    # Other ways to make one.

    @classmethod
    def acquire(
        cls, create: Callable[..., R], *args: Any, finalizer: Callable[[R], object], **options: Any
    ) -> Lifetime[R]:
        """Create a resource and own it in one step: ``create(*args)`` becomes the value, ``finalizer(value)`` frees it.

        An interrupt (Ctrl-C) at any point either prevents the creation or leaves the resource owned; the constructor
        cannot promise that of what was created before it.  While ``create`` runs it is pinned, so that no parent can be
        closed.  ``options`` are those of the constructor.  A safe point.
        Errors: whatever ``create`` raises; nothing is owned then.

        >>> from lifetimes import Lifetime
        >>> buffer = Lifetime.acquire(bytearray, 16, finalizer=bytearray.clear, kind="buffer", nbytes=16)
        >>> len(buffer.value)
        16
        """
        safepoint()
        slot: list[R] = []
        lifetime = cast("Lifetime[R]", cls(None, **options))  # type: ignore[arg-type]
        _check_finalizer(finalizer, (), lifetime)
        cell = lifetime._cell
        cell.added = []
        cell.args = slot  # a list: called with what is in it, if anything is
        cell.finalizer = finalizer
        creating = lifetime.use("it is being created")
        try:
            with creating:  # a parent that is closed meanwhile would take it along, empty
                # One C call from the result of create() to its place in the slot: a plain assignment can lose it.
                slot.extend(starmap(create, (args,)))
                lifetime._value = slot[0]
        except BaseException:
            creating._unpin()  # an interrupt may have come between its entering and the block
            if not slot:
                lifetime.close()
            raise
        return lifetime

    @classmethod
    def borrow(
        cls,
        value: R,
        *,
        owner: object = None,
        on_release: Callable[[R], object] | None = None,
        **options: Any,
    ) -> Lifetime[R]:
        """Use a resource that somebody else owns: it is never freed here.

        ``owner`` is kept alive as long as the lifetime, and is a parent if it is a lifetime itself, so that closing it
        closes this one first.  ``on_release(value)`` tells when nothing here uses the value any more.
        """
        if on_release is not None and not callable(on_release):
            raise TypeError(f"on_release must be callable, not {type(on_release).__name__} {on_release!r}")
        if isinstance(owner, Lifetime):
            options["parents"] = (*options.get("parents", ()), owner)
        borrowed = cast("Lifetime[R]", cls(value, _let_go, owner, **options))  # type: ignore[arg-type]
        if on_release is not None:
            borrowed.add_finalizer(on_release, value)
        return borrowed

    # What it refuses.

    def _require_open(self, what: str) -> None:
        if self._cell.state != LIVE and closing.settle_state(self._cell) != LIVE:
            self._refuse(what)

    def _refuse(self, what: str) -> NoReturn:
        cell = self._cell
        if cell.state == INHERITED:
            raise ClosedError(
                f"{describe(cell)} belongs to the process that made it; {what} in a forked child. "
                "Create a new one here, or start workers with the 'spawn' method"
            )
        if cell.state == MARKED:
            raise refuse_reentry(f"{describe(cell)} is being closed; {what}: it")
        raise ClosedError(f"{describe(cell)} is {closing.state_in_words(cell)}, but {what}")

    def __copy__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be copied: its finalizers would run twice; share the handle instead")

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise TypeError(f"{self!r} cannot be copied: its finalizers would run twice; share the handle instead")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled: what it owns belongs to this process")


def _link(cell: Cell) -> None:
    for parent in cell.parents:
        parent.holders[cell.key] = cell
        if parent.state:
            _refuse_parent(cell, parent)


def _refuse_parent(cell: Cell, parent: Cell) -> None:
    """The parent is closed, or a `close` is deciding about it: if it really is closed, undo everything and raise."""
    if closing.settle_state(parent) == LIVE:
        return
    cell.finalizer = None  # what it would free is still the caller's
    cell.state = DROPPED
    reaper.release(cell, None)
    raise ClosedError(f"{describe(parent)} is {closing.state_in_words(parent)}: it cannot become a parent")


def _attach(cell: Cell, finalizer: Finalizer, args: tuple[Any, ...]) -> bool:
    """Under the lock, so that no close decides meanwhile.  False if the cell is closed."""
    if cell.state != LIVE:
        return False
    if cell.finalizer is None:
        cell.args = args
        cell.finalizer = finalizer
    elif cell.added is None:
        cell.added = [(finalizer, args)]
    else:
        cell.added.append((finalizer, args))
    return True


def _check_finalizer(finalizer: object, args: tuple[Any, ...], handle: object) -> None:
    if not callable(finalizer):
        raise TypeError(f"a finalizer must be callable, not {type(finalizer).__name__} {finalizer!r}")
    if refers_to(finalizer, handle) or refers_to(args, handle):
        raise OwnershipError(
            f"the finalizer {finalizer!r}, or one of its arguments, refers to the handle it is attached to, which would "
            "keep that alive for ever; pass the raw resource instead"
        )


def _let_go(owner: object) -> None:
    """The owner was kept alive as the argument of this."""
