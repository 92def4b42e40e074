"""Whatever order the handles go in, what they stand for goes once, children first, and nothing is left."""

from __future__ import annotations

import gc
import itertools
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lifetimes
from lifetimes.testing.sim import current_context
from tests.resource_log import KINDS, ReleaseLog, Watched, one_of_each, settled

FORMS = [{}, {"contexts": True}]
IDS = ["plain", "contexts"]
WORK = ["launch", "call", "nothing"]
ORDERS = list(itertools.permutations(KINDS))


def sample(count: int, seed: int = 0) -> list[tuple[str, ...]]:
    return random.Random(seed).sample(ORDERS, count)


def covering() -> Iterator[tuple[str, ...]]:
    """Each kind before each other one, at every distance."""
    yield KINDS
    yield KINDS[::-1]
    for first, last in itertools.permutations(KINDS, 2):
        yield (first, *(kind for kind in KINDS if kind not in (first, last)), last)


@pytest.mark.parametrize("form", FORMS, ids=IDS)
@pytest.mark.parametrize("work", WORK)
def test_every_order_of_dropping(form: dict[str, Any], work: str) -> None:
    """All 7! of them where there is most to go wrong, a sample elsewhere.  BUG-011 (JuliaGPU/OpenCL.jl#279)."""
    for order in ORDERS if work == "launch" and form else sample(200):
        log, watched = ReleaseLog(), Watched(**form)
        with log:
            handles = one_of_each(watched.driver, work)
            for kind in order:
                del handles[kind]
            assert watched.closes == (work == "nothing"), f"nobody waits, and without work nothing is put off: {order}"
            settled(watched.driver)
        assert not log.problems() + watched.problems(), order


@pytest.mark.parametrize("form", FORMS, ids=IDS)
def test_what_is_left_works_until_the_last_handle_goes(form: dict[str, Any]) -> None:
    for order in covering():
        watched = Watched(**form)
        handles = one_of_each(watched.driver)
        for kind in order:
            check(handles)
            del handles[kind]
        settled(watched.driver)
        assert not watched.problems(), order


def check(handles: dict[str, Any]) -> None:
    """Use everything that is left."""
    for kind, handle in handles.items():
        if kind in ("array", "view"):
            assert handle.numpy()[0] == {"array": 0.0, "view": 1.0}[kind]
        elif kind == "stream":
            assert handle.idle in (True, False)
        elif kind == "event":
            handle.wait()
        elif kind == "kernel":
            device = handle._device
            array = device.asarray([3.0, 4.0])
            handle.launch(array, array, size=2, modes="ru")
            assert array.numpy().tolist() == [6.0, 8.0]
        elif kind == "module":
            handle["nothing"].launch(size=1).wait()
        else:
            assert handle.statistics().arrays >= 0


@pytest.mark.parametrize("form", FORMS, ids=IDS)
@pytest.mark.parametrize("wait", [True, False], ids=["wait", "later"])
@pytest.mark.parametrize("work", WORK[:2])
def test_every_order_of_closing(form: dict[str, Any], work: str, wait: bool) -> None:
    """A parent that is closed closes its children first; closing those again is fine."""
    for order in [*covering(), *sample(60)]:
        log, watched = ReleaseLog(), Watched(**form)
        with log:
            handles = one_of_each(watched.driver, work)
            for kind in order:
                handles[kind].close(wait=wait)
                assert handles[kind].closed
            settled(watched.driver)
            assert not log.problems() + watched.problems(), order  # with every handle still there
            assert all(handle.closed for handle in handles.values())
            with pytest.raises(lifetimes.ClosedError):
                handles["view"].numpy()


@pytest.mark.parametrize("form", FORMS, ids=IDS)
def test_closing_and_dropping_mixed(form: dict[str, Any]) -> None:
    for number, order in enumerate(sample(120, seed=1)):
        log, watched = ReleaseLog(), Watched(**form)
        with log:
            handles = one_of_each(watched.driver)
            for place, kind in enumerate(order):
                handle = handles.pop(kind)
                if number >> place & 1:
                    handle.close()
                del handle
            settled(watched.driver)
        assert not log.problems() + watched.problems(), (number, order)


@pytest.mark.parametrize("form", FORMS, ids=IDS)
def test_inside_defer_the_queue_is_drained_in_a_right_order(form: dict[str, Any]) -> None:
    for order in covering():
        log, watched = ReleaseLog(), Watched(**form)
        with log:
            handles = one_of_each(watched.driver, work="nothing")
            with lifetimes.defer():
                for kind in order:
                    del handles[kind]
                assert not log.released
            settled(watched.driver)
        assert not log.problems() + watched.problems(), order


class Knot:
    """Part of a garbage cycle."""

    def __init__(self, thing: object) -> None:
        self.thing = thing
        self.next: object = self


@pytest.mark.parametrize("form", FORMS, ids=IDS)
@pytest.mark.parametrize("frozen", [False, True], ids=["gc", "frozen"])
def test_in_a_cycle(form: dict[str, Any], frozen: bool) -> None:
    """The collector meets the handles in whatever order the cycle was tied."""
    for order in list(covering())[::3]:  # each needs a collection, which is slow
        log, watched = ReleaseLog(), Watched(**form)
        with log:
            handles = one_of_each(watched.driver)
            knots = [Knot(handles.pop(kind)) for kind in order]
            for knot, other in zip(knots, knots[1:] + knots[:1], strict=True):
                knot.next = other
            del knot, other, knots
            if frozen:
                gc.freeze()
                gc.collect()
                assert not watched.closes, "what is frozen is not collected"
                gc.unfreeze()
            settled(watched.driver, collect=True)
        assert not log.problems() + watched.problems(), order


def held_by_a_closure(handles: dict[str, Any]) -> Callable[[], None]:
    def closure() -> object:
        return handles

    kept: list[object] = [closure]
    return kept.clear


def held_by_a_module(handles: dict[str, Any]) -> Callable[[], None]:
    module = types.ModuleType("holds_resources")
    vars(module).update(handles)
    sys.modules[module.__name__] = module

    def let_go() -> None:
        del sys.modules["holds_resources"]

    return let_go


def held_by_a_traceback(handles: dict[str, Any]) -> Callable[[], None]:
    def fail(context: Any, stream: Any, event: Any, module: Any, kernel: Any, array: Any, view: Any) -> None:
        raise ValueError("kept")

    kept: list[BaseException] = []
    try:
        fail(**handles)
    except ValueError as error:
        kept.append(error)
    return kept.clear


def held_by_a_generator(handles: dict[str, Any]) -> Callable[[], None]:
    def generator() -> Iterator[None]:
        with handles["context"].use(read=[handles["view"]]):
            yield

    kept = [generator()]
    next(kept[0])
    return kept.clear


def held_by_defaults(handles: dict[str, Any]) -> Callable[[], None]:
    def function(**kept: object) -> None: ...

    function.__kwdefaults__ = dict(handles)
    kept = [function]
    return kept.clear


@pytest.mark.parametrize(
    "hold", [held_by_a_closure, held_by_a_module, held_by_a_traceback, held_by_a_generator, held_by_defaults]
)
@pytest.mark.parametrize("form", FORMS, ids=IDS)
def test_whoever_holds_them(form: dict[str, Any], hold: Callable[[dict[str, Any]], Callable[[], None]]) -> None:
    log, watched = ReleaseLog(), Watched(**form)
    with log:
        let_go = hold(one_of_each(watched.driver))
        settled(watched.driver, collect=True)
        assert not watched.closes
        let_go()
        settled(watched.driver, collect=True)
    assert not log.problems() + watched.problems()


def test_a_last_reference_dropped_by_the_collector_on_a_thread_with_another_context() -> None:
    """BUG-014 (NVIDIA/cuda-python#2497): the unload runs in its own context, and the thread gets its own back."""
    watched, other = Watched(contexts=True), Watched(contexts=True)
    handles = one_of_each(watched.driver, work="nothing")
    knot = Knot(handles)
    mine = other.driver.make_current()
    before = current_context()
    handles = {}
    del knot
    gc.collect()
    lifetimes.drain()
    assert current_context() == before == other.driver.context
    assert watched.closes == 1
    other.driver.restore(mine)
    assert not watched.problems()
    other.driver.close()


# The checks are checked.


def test_a_planted_wrong_order_is_found() -> None:
    log = ReleaseLog()
    with log:
        parent = lifetimes.Lifetime("parent")
        child = lifetimes.Lifetime("child", parents=[parent])
        del child, parent
    log.released.reverse()
    assert "went before its child" in str(log.problems())
    log.released += log.released[:1]
    assert "released twice" in str(log.problems())
    log.released.clear()
    assert str(log.problems()).count("never released") == 2


def test_planted_faults_of_a_driver_log_are_found() -> None:
    watched = Watched(contexts=True)
    driver = watched.driver
    previous = driver.make_current()
    stream, address = driver.create_stream(), driver.allocate(16)
    driver.destroy_stream(stream)
    driver.free(address)
    driver.create_event()
    driver.close()
    found = str(watched.problems())
    for what in ("given back by nobody", "was left current", "never given back", "before the last memory"):
        assert what in found
    driver.restore(previous)
    driver.log.append(("free", address))
    assert f"free of {address}" in str(watched.problems())
