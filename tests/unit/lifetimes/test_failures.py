"""One channel for each place where a finalizer may fail, and nothing dropped."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

import lifetimes
from lifetimes import CleanupWarning, Lifetime, instrument
from lifetimes.failures import interrupts
from tests.unit.lifetimes.helpers import Strike, check_quiet, interrupt, unraisable


def fail(word: str) -> None:
    raise ValueError(word)


def ctrl_c(log: list[Any]) -> None:
    log.append("began")
    raise KeyboardInterrupt


def test_close_runs_everything_and_raises_one_group() -> None:
    log: list[Any] = []
    parent = Lifetime(None, fail, "parent", kind="parent")
    children = [Lifetime(None, log.append, number, parents=[parent]) for number in range(2)]
    children[1].add_finalizer(fail, "child")
    with pytest.raises(ExceptionGroup, match=r"2 finalizer\(s\) failed while closing parent #\d+") as caught:
        parent.close()
    assert log == [1, 0]
    assert [str(error) for error in caught.value.exceptions] == ["child", "parent"]
    note = caught.value.exceptions[1].__notes__[0]
    assert "finalizer fail of parent #" in note
    assert "test_failures.py:" in note
    parent.close()


def test_a_with_block_that_ends_well_raises_the_group() -> None:
    with pytest.raises(ExceptionGroup), Lifetime(None, fail, "x"):
        pass


def test_with_an_exception_in_flight_failures_become_its_notes() -> None:
    log: list[Any] = []
    with pytest.raises(KeyError) as caught, Lifetime(None, fail, "x") as lifetime:
        lifetime.add_finalizer(log.append, "ran")
        raise KeyError("mine")
    assert log == ["ran"]
    assert len(caught.value.__notes__) == 1
    assert "while cleaning up: finalizer fail of" in caught.value.__notes__[0]


def test_with_an_exception_in_flight_a_refused_close_becomes_its_note() -> None:
    lifetime = Lifetime(None)
    with pytest.raises(KeyError) as caught, lifetime:
        pin = lifetime.use("still")
        pin.__enter__()
        raise KeyError("mine")
    assert "cannot be closed while it is in use" in caught.value.__notes__[0]
    assert not lifetime.closed
    del pin


def drop() -> None:
    Lifetime(None, fail, "x", label="mine")


def drain() -> None:
    with lifetimes.defer():
        Lifetime(None, fail, "x", label="mine")
        lifetimes.drain()


def safe_point() -> None:
    with lifetimes.defer():
        Lifetime(None, fail, "x", label="mine")


@pytest.mark.parametrize("place", [drop, drain, safe_point])
def test_where_nobody_can_be_raised_to_it_is_a_warning(place: Callable[[], None]) -> None:
    with pytest.warns(
        CleanupWarning, match=r"finalizer fail of object 'mine' #\d+ failed: ValueError: x \(at .*others ran"
    ):
        place()


@pytest.mark.parametrize("place", [drop, drain, safe_point])
def test_a_warning_that_is_an_error_goes_to_the_unraisable_hook(place: Callable[[], None]) -> None:
    """With the finalizer's own error as its cause."""
    with warnings.catch_warnings(), unraisable() as found:
        warnings.simplefilter("error")
        place()
    assert [type(error) for error in found] == [CleanupWarning]
    assert isinstance(found[0].__cause__, ValueError)


def test_a_warning_hook_that_raises_goes_to_the_unraisable_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    def show(*args: Any, **options: Any) -> None:
        raise OSError("no screen")

    monkeypatch.setattr(warnings, "showwarning", show)
    with warnings.catch_warnings(), unraisable() as found:
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", show)
        drop()
    assert [str(error) for error in found] == ["no screen"]


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


def test_an_error_that_cannot_be_put_in_words_is_told_all_the_same() -> None:
    def finalize() -> None:
        raise Unspeakable

    with pytest.warns(CleanupWarning, match="Unspeakable, whose text raises RuntimeError"):
        Lifetime(None, finalize)


def test_system_exit_in_a_finalizer_ends_nothing() -> None:
    with pytest.warns(CleanupWarning, match="SystemExit: 3"):
        Lifetime(None, sys.exit, 3)
    with pytest.raises(BaseExceptionGroup):
        Lifetime(None, sys.exit, 3).close()


# An interrupt.


@pytest.mark.parametrize("place", ["drop", "drain", "close", "block", "failing block"])
def test_an_interrupt_inside_a_finalizer_is_delivered_when_the_others_have_run(place: str) -> None:
    log: list[Any] = []
    held = [Lifetime(None, log.append, "first")]
    held[0].add_finalizer(ctrl_c, log)
    held[0].add_finalizer(log.append, "last")
    other = Lifetime(None, log.append, "other", parents=held, deferred=place == "drain")

    def end() -> None:
        nonlocal other
        if place in ("drop", "drain"):
            held.clear()
            del other
            if place == "drain":
                assert log == []
                lifetimes.drain()
        elif place == "close":
            held[0].close()
        elif place == "block":
            with held[0]:
                pass
        else:
            with pytest.raises(ValueError), held[0]:
                raise ValueError
        for _ in range(3):  # __del__ cannot raise; what it sends strikes in the code around
            log.append("went on")

    with pytest.raises(KeyboardInterrupt):
        end()
    assert log[:4] == ["other", "last", "began", "first"]
    assert log.count("went on") < 3
    check_quiet()


def test_an_interrupt_before_the_first_instruction_of_a_finalizer_does_not_lose_it() -> None:
    """Signals are looked for where a Python function begins: there it has freed nothing yet."""
    for step in range(3):
        log: list[Any] = []

        def finalize(name: str, log: list[Any] = log) -> None:
            log.append(name)

        lifetime = Lifetime(None, finalize, "first")
        lifetime.add_finalizer(finalize, "second")
        lifetime.add_finalizer(finalize, "third")
        entries = Strike(step, interrupt, also=(finalize,))
        entries.package = "no file of ours"
        with pytest.raises(KeyboardInterrupt) as caught:
            entries.run(lifetime.close)
        assert entries.where is not None
        assert entries.where[0] == "finalize"
        assert log == ["third", "second", "first"]
        assert any("while" in note for note in caught.value.__notes__)


def test_other_failures_beside_an_interrupt_are_its_notes() -> None:
    lifetime = Lifetime(None, fail, "x")
    lifetime.add_finalizer(ctrl_c, [])
    with pytest.raises(KeyboardInterrupt) as caught:
        lifetime.close()
    assert any("finalizer fail" in note for note in caught.value.__notes__)


def test_other_failures_beside_an_interrupt_are_warnings_of_a_drop() -> None:
    lifetime = Lifetime(None, fail, "x")
    lifetime.add_finalizer(ctrl_c, [])

    def end() -> None:
        nonlocal lifetime
        del lifetime
        for _ in range(3):
            pass

    with pytest.warns(CleanupWarning, match="finalizer fail"), pytest.raises(KeyboardInterrupt):
        end()


def listen(name: str, key: int, details: dict[str, Any]) -> None:
    """Somebody who hears every event."""


@pytest.mark.parametrize("watched", [False, True])
def test_failures_before_a_torn_loop_are_told_by_the_next_drain(watched: bool) -> None:
    """Nothing is dropped: what a release had noted when it was torn is told later, whoever is told of the release."""
    log: list[Any] = []
    with instrument.listening(listen) if watched else nullcontext():
        tear_a_loop(log)


def tear_a_loop(log: list[Any]) -> None:
    for step in range(2000):
        strike = Strike(step, interrupt, signals=True)
        with unraisable(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            parent = Lifetime(None, log.append, "parent")
            held = [Lifetime(None, fail, "x", parents=[parent]), parent]
            del parent
            try:
                strike.run(held.clear)
                for _ in range(3):
                    pass
            except KeyboardInterrupt:
                pass
            held.clear()
            lifetimes.drain()
        if strike.where is None:
            break
        assert len(caught) == 1 or strike.where[0] in TELLING, (step, strike.where, caught)
    assert step > 30
    assert log == ["parent"] * (step + 1)


TELLING = ("report", "warn", "in_words", "error_in_words", "describe", "take", "drop", "_release_some")
"""The functions that tell: an interrupt in the middle of telling may end it, or come too late to prevent it.  And those
to which failures have just been returned: no signal strikes there, since the return of a Python function is no place
where CPython looks for one, but this trace function cannot tell it from other calls."""


def test_the_iterator_that_delivers_does_not_end() -> None:
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            next(interrupts)
