"""Children before parents, each once, whatever order the last references go in and whatever held them."""

from __future__ import annotations

import gc
import itertools
import sys
from pathlib import Path
from typing import Any

import pytest

import lifetimes
from lifetimes import Lifetime
from tests.unit.lifetimes.helpers import check_quiet, no_collector, run_script

PARENTS = {
    "context": (),
    "stream": ("context",),
    "event": ("context", "stream"),
    "module": ("context",),
    "kernel": ("module",),
    "array": ("context", "stream"),
    "view": ("array",),
}
"""What a device is made of, and what each part needs."""


class Node(Lifetime[str]):
    """A lifetime that may refer to anything, itself too."""

    __slots__ = ("refers_to",)

    refers_to: Any


def build(log: list[str]) -> dict[str, Node]:
    made: dict[str, Node] = {}
    for name, parents in PARENTS.items():
        made[name] = Node(name, log.append, name, kind=name, parents=[made[parent] for parent in parents])
    return made


def check_order(log: list[str], names: Any = PARENTS) -> None:
    """Each once, and none before what is built on it."""
    assert sorted(log) == sorted(names)
    for name, parents in PARENTS.items():
        for parent in parents:
            if name in log and parent in log:
                assert log.index(name) < log.index(parent), log


def released_too_early(log: list[str], alive: set[str]) -> list[str]:
    """What is gone although something alive needs it."""
    needed = {ancestor for name in alive for ancestor in ancestors(name)}
    return [name for name in log if name in needed]


def ancestors(name: str) -> set[str]:
    return {name}.union(*(ancestors(parent) for parent in PARENTS[name]))


def test_every_order_of_dropping() -> None:
    """JuliaGPU/OpenCL.jl#279, libocca/occa#58: the collector visits a context before what was made in it."""
    for order in itertools.permutations(PARENTS):
        log: list[str] = []
        made = build(log)
        for name in order:
            del made[name]
            assert not released_too_early(log, set(made)), (order, log)
        check_order(log)
    check_quiet()


def test_what_nobody_needs_any_more_is_released_at_once() -> None:
    """Not only in the right order but at the first moment when it is right."""
    for order in itertools.islice(itertools.permutations(PARENTS), 0, None, 7):
        log: list[str] = []
        made = build(log)
        for name in order:
            del made[name]
            needed = {ancestor for each in made for ancestor in ancestors(each)}
            assert set(log) == set(PARENTS) - needed


@pytest.mark.parametrize("shape", ["ring", "each itself", "child and parent", "by the value"])
def test_every_order_in_cycles(shape: str) -> None:
    """The collector finds all of them at once, in whatever order they were made into garbage."""
    with no_collector():
        for order in itertools.islice(itertools.permutations(PARENTS), 0, None, 1 if shape == "ring" else 11):
            log: list[str] = []
            made = build(log)
            names = list(order)
            for number, name in enumerate(names):
                if shape == "ring":
                    made[name].refers_to = made[names[number - 1]]
                elif shape == "each itself":
                    made[name].refers_to = made[name]
                elif shape == "by the value":
                    made[name]._value = [made[name]]  # type: ignore[assignment]  # the value holds its own handle
                else:
                    made[name].refers_to = [made[parent] for parent in PARENTS[name]]
                    for parent in PARENTS[name]:
                        made[parent].refers_to = made[name]
                    made["view"].refers_to = [made["array"], made["view"]]
            for name in names:
                del made[name]
            dropped = list(log)  # not all are part of a cycle in each shape
            gc.collect(0)
            assert log == dropped, "a finalizer ran inside the collection"
            lifetimes.drain()
            check_order(log)


def test_close_of_each_node_closes_what_is_below_it_and_nothing_else() -> None:
    for name in PARENTS:
        log: list[str] = []
        made = build(log)
        made[name].close()
        below = {each for each in PARENTS if name in ancestors(each)}
        check_order(log, below)
        assert {each for each, node in made.items() if node.closed} == below
        made.clear()
        check_order(log)


def test_children_are_closed_youngest_first() -> None:
    log: list[int] = []
    parent = Lifetime("parent")
    children = [Lifetime(number, log.append, number, parents=[parent]) for number in range(20)]
    parent.close()
    assert log == list(range(19, -1, -1))
    assert all(child.closed for child in children)


def test_a_kernel_that_outlives_the_handles_of_its_module_and_context() -> None:
    """libocca/occa#58: a module unloaded after its context was destroyed."""
    log: list[str] = []
    context = Lifetime("context", log.append, "destroy context")
    module = Lifetime("module", log.append, "unload module", parents=[context])
    kernel = Lifetime("kernel", log.append, "free kernel", parents=[module])
    del context
    gc.collect()
    lifetimes.drain()
    assert log == []
    del module
    gc.collect()
    lifetimes.drain()
    assert log == []
    del kernel
    assert log == ["free kernel", "unload module", "destroy context"]


def test_an_exception_that_is_kept_keeps_what_its_frames_hold() -> None:
    log: list[str] = []

    def fail() -> None:
        made = build(log)
        raise ValueError(len(made))

    with pytest.raises(ValueError, match="7") as caught:
        fail()
    assert log == []
    error = caught.value
    del caught
    error.__traceback__ = None
    gc.collect()
    lifetimes.drain()
    check_order(log)


def test_frozen_objects_and_those_of_modules() -> None:
    log: list[str] = []
    made = build(log)
    made["view"].refers_to = made
    sys.modules["tests.made_for_one_test"] = made  # type: ignore[assignment]
    gc.freeze()
    try:
        del made
        gc.collect()
        lifetimes.drain()
        assert log == []
        del sys.modules["tests.made_for_one_test"]
    finally:
        gc.unfreeze()
    gc.collect()
    lifetimes.drain()
    check_order(log)


HOLDERS = {
    "module globals": "kept = made",
    "a cycle": "for node in made.values(): node.refers_to = node\nmade['context'].refers_to = made",
    "a cycle through the module": "made['view'].refers_to = sys.modules['__main__']\nkept = made",
    "closures": "kept = [lambda node=node: node for node in made.values()] + [lambda: kept]",
    "sys.modules": "sys.modules['kept'] = made\nsys.modules['self'] = made['view']",
    "a frozen collector": "made['view'].refers_to = made\nkept = made\ngc.collect()\ngc.freeze()",
    "a traceback": "try:\n    1 / (0 * len(made))\nexcept ZeroDivisionError as error:\n    kept = error",
    "a default argument": "def kept(made=made): pass",
    "builtins": "import builtins\nbuiltins.kept = made",
    "a thread's locals": "kept = threading.local()\nkept.made = made",
    "a generator": "def wait(made):\n    yield\nkept = wait(made)\nnext(kept)",
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_at_exit(holder: str, tmp_path: Path) -> None:
    """JuliaGPU/OpenCL.jl#279: queues and contexts destroyed at exit before the buffers that need them."""
    script = f"""
class Node(Lifetime):
    __slots__ = ("refers_to",)
context = Node("context", free, "context")
queue = Node("queue", free, "queue", parents=[context])
module = Node("module", free, "module", parents=[context])
made = dict(context=context, queue=queue, module=module, kernel=Node("kernel", free, "kernel", parents=[module]))
for number in range(50):
    made[f"buffer{{number}}"] = buffer = Node("", free, f"buffer{{number}}", parents=[context, queue])
    made[f"view{{number}}"] = Node("", free, f"view{{number}}", parents=[buffer])
made["view"] = buffer
{HOLDERS[holder]}
del context, queue, module, buffer, made
"""
    ended = run_script(script, tmp_path)
    assert (ended.code, ended.err) == (0, "")
    at = {name: number for number, name in enumerate(ended.freed)}
    assert len(ended.freed) == len(at) == 104
    for number in range(50):
        assert at[f"view{number}"] < at[f"buffer{number}"] < at["queue"] < at["context"]
    assert at["kernel"] < at["module"] < at["context"]
