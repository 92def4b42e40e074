"""What a lifetime refuses, with the reason and the way out."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import lifetimes
from lifetimes import ClosedError, Lifetime, OwnershipError
from lifetimes.cell import live
from lifetimes.reachable import refers_to


class Resource(Lifetime[Any]):
    """What users write: a class of their own with a method that frees."""

    __slots__ = ("__dict__",)

    def free(self, *args: Any) -> None:
        raise AssertionError("never attached")


def closure(handle: Resource) -> Callable[[], Any]:
    return lambda: handle


def nested_closure(handle: Resource) -> Callable[[], Any]:
    inner = closure(handle)
    return lambda: inner


def default(handle: Resource) -> Callable[..., Any]:
    def finalize(handle: Any = handle) -> None: ...

    return finalize


def keyword_default(handle: Resource) -> Callable[..., Any]:
    def finalize(*, handle: Any = handle) -> None: ...

    return finalize


STRONG: dict[str, Callable[[Resource], tuple[Any, ...]]] = {
    "bound method": lambda handle: (handle.free,),
    "the handle itself": lambda handle: (handle,),
    "lambda": lambda handle: (closure(handle),),
    "lambda in a lambda": lambda handle: (nested_closure(handle),),
    "default": lambda handle: (default(handle),),
    "keyword default": lambda handle: (keyword_default(handle),),
    "partial": lambda handle: (functools.partial(print, handle),),
    "partial by keyword": lambda handle: (functools.partial(print, sep=handle),),
    "partial of a method": lambda handle: (functools.partial(handle.free, 1),),
    "method of a container in C": lambda handle: ([handle].clear,),
    "argument": lambda handle: (print, handle),
    "method as argument": lambda handle: (print, handle.free),
    "in a list": lambda handle: (print, [handle]),
    "in a tuple in a list": lambda handle: (print, [(1, handle)]),
    "in a set": lambda handle: (print, {handle}),
    "in a frozenset": lambda handle: (print, frozenset([handle])),
    "value of a dict": lambda handle: (print, {"x": handle}),
    "key of a dict": lambda handle: (print, {handle: "x"}),
}

WEAK: dict[str, Callable[[Resource], tuple[Any, ...]]] = {
    "weak reference": lambda handle: (print, weakref.ref(handle)),
    "weak proxy": lambda handle: (print, weakref.proxy(handle)),
    "weak method": lambda handle: (print, weakref.WeakMethod(handle.free)),
    "partial of a weak reference": lambda handle: (functools.partial(print, weakref.ref(handle)),),
    "the value": lambda handle: (print, handle.value),
    "the class": lambda handle: (print, Resource),
    "a function of the class": lambda handle: (int, Resource.free),
}


class Callable_(Resource):
    __slots__ = ()

    def __call__(self) -> None: ...


@pytest.mark.parametrize("form", STRONG)
def test_a_finalizer_that_keeps_its_handle_alive_is_refused(form: str) -> None:
    """DiamondLightSource/httomo#265: a bound method as finalizer; the object is cleaned up only at exit."""
    handle = Callable_("value") if form == "the handle itself" else Resource("value")
    weak = handle.weak()
    with pytest.raises(OwnershipError, match=r"refers to the handle it is attached to.*pass the raw resource"):
        handle.add_finalizer(*STRONG[form](handle))
    del handle
    gc.collect()  # the pieces of the refused recipe may be cycles of their own
    assert weak() is None


@pytest.mark.parametrize("form", STRONG)
def test_the_constructor_of_a_subclass_refuses_it_too(form: str) -> None:
    """DiamondLightSource/httomo#265: ``super().__init__(value, self.free)``."""

    class Own(Callable_):
        __slots__ = ()

        def __init__(self) -> None:
            super().__init__("value", *STRONG[form](self))

    before = len(live)
    with pytest.raises(OwnershipError):
        Own()
    gc.collect()
    assert len(live) == before


@pytest.mark.parametrize("form", WEAK)
@pytest.mark.filterwarnings("ignore::lifetimes.CleanupWarning")
def test_a_weak_form_is_accepted_and_the_object_dies(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """DiamondLightSource/httomo#265.  What is weakly referred to is dead by then: the finalizer gets None."""
    handle = Resource("value")
    handle.add_finalizer(*WEAK[form](handle))
    weak = handle.weak()
    with lifetimes.defer():
        del handle
        assert weak() is None
    if form == "weak reference":
        assert "dead" in capsys.readouterr().out


def test_a_closure_that_gets_its_handle_only_later_is_not_seen() -> None:
    """The limit of the check: the variable is empty when it is looked at.  Then a report tells who holds it."""

    def make() -> Any:
        def finalize() -> None:
            print(handle)

        handle = Lifetime(None, finalize)
        return handle.weak(), handle.key, finalize

    weak, key, finalize = make()
    gc.collect()
    assert weak() is not None
    assert key in live
    live[key].finalizer = None
    del finalize
    gc.collect()
    lifetimes.drain()
    assert key not in live


def test_the_search_ends_in_cycles_and_at_a_depth() -> None:
    loop: list[Any] = []
    loop.append(loop)
    deep: Any = "target"
    for _ in range(50):
        deep = [deep]
    assert not refers_to(loop, object())
    assert not refers_to(deep, "target")
    assert not refers_to(gc, object())
    assert refers_to([[[["target"]]]], "target")


@pytest.mark.parametrize("bad", [None, 5, "free", [print]])
def test_a_finalizer_that_cannot_be_called(bad: Any) -> None:
    before = len(live)
    if bad is not None:
        with pytest.raises(TypeError, match=f"must be callable, not {type(bad).__name__}"):
            Lifetime(None, bad)
    with pytest.raises(TypeError, match=f"must be callable, not {type(bad).__name__}"):
        Lifetime(None).add_finalizer(bad)
    with pytest.raises(TypeError, match="must be callable"):
        Lifetime.acquire(pytest.fail, "created although nothing could free it", finalizer=bad)
    if bad is not None:
        with pytest.raises(TypeError, match="on_release must be callable"):
            Lifetime.borrow(1, on_release=bad)
    assert len(live) == before


@pytest.mark.parametrize("bad", [5, Lifetime, [None], [1, 2], object(), "ab", {1: 2}])
def test_parents_that_are_no_lifetimes(bad: Any) -> None:
    before, log = len(live), list[str]()
    with pytest.raises(TypeError, match="parents must be a sequence of lifetimes"):
        Lifetime(None, log.append, "freed", parents=bad)
    assert len(live) == before
    assert log == []


def test_one_lifetime_instead_of_a_sequence_of_them() -> None:
    parent = Lifetime(None)
    with pytest.raises(TypeError, match="parents must be a sequence of lifetimes, not <Lifetime"):
        Lifetime(None, parents=parent)  # type: ignore[arg-type]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_closed_parent(place: int) -> None:
    """The child is not made, its finalizer does not run, and its other parents do not wait for it."""
    log: list[str] = []
    parents = [Lifetime(number, log.append, str(number), kind="context") for number in range(3)]
    parents[place].close()
    assert log.pop() == str(place)
    with pytest.raises(ClosedError, match=r"context #\d+ is closed: it cannot become a parent") as caught:
        Lifetime(None, log.append, "child", parents=parents)
    with pytest.raises(ClosedError) as again:
        Lifetime(None, log.append, "child", parents=parents[place : place + 1])
    kept = [caught.value, again.value]  # with their frames, and so with the child that was not made
    parents.clear()
    lifetimes.drain()
    assert sorted(log) == sorted({"0", "1", "2"} - {str(place)})
    assert len(kept) == 2


@pytest.mark.parametrize("how", ["detached", "closing"])
def test_a_parent_on_its_way_out(how: str) -> None:
    parent = Lifetime(None)
    if how == "detached":
        parent.detach()
    else:
        export = parent.export()
        parent.close()
    with pytest.raises(ClosedError, match=how):
        Lifetime(None, parents=[parent])
    if how == "closing":
        export.release()


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, lambda x: copy.deepcopy([x])])
def test_copies(copier: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="cannot be copied: its finalizers would run twice; share the handle"):
        copier(Lifetime("value"))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(protocol: int) -> None:
    with pytest.raises(TypeError, match="cannot be pickled: what it owns belongs to this process"):
        pickle.dumps(Lifetime("value"), protocol)


def test_work_without_completed() -> None:
    with pytest.raises(TypeError, match=r"wants a task with a completed\(\) method, not int 5"):
        Lifetime(None).after(5)  # type: ignore[arg-type]


def test_a_half_made_lifetime_is_dropped_quietly() -> None:
    """__init__ was never called, or raised before there was anything to release."""
    before = len(live)
    Lifetime.__new__(Lifetime)

    class Failing(Lifetime[Any]):
        def __init__(self) -> None:
            raise ValueError

    with pytest.raises(ValueError):
        Failing()
    assert len(live) == before
