"""A random program of lifetimes, with an obvious model as the oracle.

    class MyMachine(LifetimesMachine):
        def make(self, *args, **options):
            return my_package.Handle(*args, **options)

    TestMyMachine = MyMachine.TestCase

The model is a list of nodes and one rule: a node whose handle is gone, or that was closed, is released as soon as no
child, pin, export or unfinished work holds it, and no sooner.  After each step the two are compared and the registry
checks its invariants.  Needs Hypothesis, which is why the package does not import this by itself.
"""

from __future__ import annotations

import gc
import itertools
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lifetimes import BusyError, CleanupWarning, ClosedError, Lifetime, defer, drain
from lifetimes.cell import live
from lifetimes.reaper import check_invariants
from lifetimes.testing.disturb import interrupt, run_disturbed

__all__ = ["LifetimesMachine", "Node", "Work"]


class Work:
    """A task that finishes, or fails, when the machine says so."""

    def __init__(self) -> None:
        self.state = "running"

    def completed(self) -> bool:
        """Whether it has finished.  Errors: `OSError` when it failed."""
        if self.state == "failed":
            raise OSError("planned failure of work in flight")
        return self.state == "finished"


@dataclass(eq=False)
class Node:
    """What the model knows of one lifetime."""

    number: int
    parents: list[Node]
    deferred: bool
    handle: Any = None
    dropped: bool = False
    closed: bool = False
    gone: str = ""
    """``"released"`` or ``"detached"``."""
    finalizers: list[str] = field(default_factory=list)
    """The names that its finalizers log, in the order attached."""
    children: list[Node] = field(default_factory=list)
    pins: list[Any] = field(default_factory=list)
    exports: list[Any] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)

    @property
    def open(self) -> bool:
        """Whether it can be used: there is a handle, and nobody closed it."""
        return self.handle is not None and not self.closed and not self.gone

    def subtree(self) -> list[Node]:
        """Itself and what is below it, as far as it is there."""
        found = {self.number: self}
        for child in self.children:
            if not child.gone:
                found.update((node.number, node) for node in child.subtree())
        return list(found.values())

    def ready(self) -> bool:
        """Whether nothing keeps it any more."""
        out = (self.dropped or self.closed) and not self.gone
        running = any(work.state == "running" for work in self.works)
        return out and not (self.pins or self.exports or running or any(not child.gone for child in self.children))


class LifetimesMachine(RuleBasedStateMachine):
    """Creates, drops, closes, uses, exports, detaches, collects; work in flight, failing finalizers, interrupts."""

    most = 25
    """So many lifetimes are alive at most."""

    def make(self, *args: Any, **options: Any) -> Any:
        """A lifetime, made with the arguments of `Lifetime`; to be overridden by who tests a kind of his own."""
        return Lifetime(*args, **options)

    def run(self, call: Callable[[], Any]) -> Any:
        """Make one call of the library: here and now."""
        return call()

    def __init__(self) -> None:
        super().__init__()
        drain()
        self.before = set(live)
        self.nodes: list[Node] = []
        self.garbage: list[Node] = []
        self.log: list[str] = []
        self.told = 0  # failures of finalizers, by a warning or an exception
        self.numbers = itertools.count()
        self.collecting = gc.isenabled()
        gc.disable()
        gc.freeze()  # a collection looks at nothing but what the program makes

    # Finalizers.

    def fail(self, name: str) -> None:
        """A finalizer that fails when it has noted its name."""
        self.log.append(name)
        raise ValueError("planned failure of a finalizer")

    def attach(self, node: Node, fails: bool) -> tuple[Any, str]:
        """One more finalizer of a node: the function and its argument, the name to be noted."""
        name = f"{node.number}.{len(node.finalizers)}" + ("!" if fails else "")
        node.finalizers.append(name)
        return self.fail if fails else self.log.append, name

    def may_fail(self) -> bool:
        """Whether a finalizer that fails is still to come."""
        return any(name.endswith("!") for node in self.nodes if not node.gone for name in node.finalizers)

    # What is there.

    def pick(self, data: st.DataObject, nodes: list[Node]) -> Node:
        """One of them, the youngest most likely."""
        return nodes[-1 - data.draw(st.integers(0, len(nodes) - 1), label="which")]

    def opened(self) -> list[Node]:
        """Those that can be used."""
        return [node for node in self.nodes if node.open]

    def held(self) -> list[Node]:
        """Those with a handle, closed or not."""
        return [node for node in self.nodes if node.handle is not None]

    def quietly(self, call: Callable[[], Any]) -> Any:
        """Run it and count the failures that are told by a warning."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                return self.run(call)
            finally:
                told = [str(each.message) for each in caught if issubclass(each.category, CleanupWarning)]
                self.told += sum(each.startswith("finalizer") for each in told)

    # The rules.

    @rule(data=st.data(), parents=st.integers(0, 3), deferred=st.booleans(), fails=st.booleans(), cyclic=st.booleans())
    def create(self, data: st.DataObject, parents: int, deferred: bool, fails: bool, cyclic: bool) -> None:
        """One more, below some of those that are there, those that are closed as well: that is refused."""
        candidates = self.held()[-8:]
        if len(candidates) >= self.most:
            return
        chosen = [self.pick(data, candidates) for _ in range(parents)] if candidates else []
        node = Node(next(self.numbers), chosen, deferred)
        handles = [parent.handle for parent in chosen]
        fails = fails and cyclic  # rarely enough
        recipe = self.attach(node, fails)
        refused = any(not parent.open for parent in chosen)
        value: list[Any] = []
        try:
            made = self.quietly(lambda: self.make(value, *recipe, kind="model", parents=handles, deferred=deferred))
        except ClosedError:
            assert refused, "a parent that is open was refused"
            return
        assert not refused, "a parent that is closed was taken"
        if cyclic:
            value.append(made)
        node.handle = made
        for parent in set(chosen):
            parent.children.append(node)
        self.nodes.append(node)

    @precondition(lambda self: self.held())
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        """Let a handle go.  One that its own value refers to goes when the collector comes."""
        self.let_go(self.pick(data, self.held()), lambda held: held.clear())

    @precondition(lambda self: self.held() and self.alone() and not self.may_fail())  # Ctrl-C is for the main thread
    @rule(data=st.data(), step=st.integers(0, 400))
    def drop_interrupted(self, data: st.DataObject, step: int) -> None:
        """The same under a Ctrl-C at some step of it: it may strike anywhere, and changes nothing else.

        Only where all finalizers are written in C: one in Python may be struck itself, which is its own affair.
        """

        def clear(held: list[Any]) -> None:
            hook = sys.unraisablehook
            sys.unraisablehook = lambda info: None  # nobody can catch what strikes the first instruction of __del__
            try:
                run_disturbed(held.clear, step=step, act=interrupt)
                for _ in range(3):  # a Ctrl-C that was delivered again
                    pass
            except KeyboardInterrupt:
                held.clear()
            finally:
                sys.unraisablehook = hook

        self.let_go(self.pick(data, self.held()), clear)
        self.collect()  # who interrupts holds frames, and they hold handles

    def let_go(self, node: Node, clear: Callable[[list[Any]], None]) -> None:
        """Drop the handle of a node, in a way."""
        held = [node.handle]
        cyclic = bool(held[0]._value)
        node.handle = None
        if node.pins:  # a pin holds the handle
            self.quietly(held.clear)
        elif cyclic and node.gone != "detached":
            self.garbage.append(node)
            self.quietly(held.clear)
            return
        else:
            node.dropped = True
            self.quietly(lambda: clear(held))

    @rule()
    def collect(self) -> None:
        """Now the collector comes.  Nothing is released before the next safe point."""
        count = len(self.log)
        gc.collect()
        assert len(self.log) == count, "a finalizer ran inside the collection"
        for node in self.garbage[:]:
            if not (node.pins or node.exports):  # the value refers to the handle, and they hold the value
                node.dropped = True
                self.garbage.remove(node)

    @precondition(lambda self: self.held())
    @rule(data=st.data(), wait=st.booleans())
    def close(self, data: st.DataObject, wait: bool) -> None:
        """Close one with all below it; refused if anything of it is pinned."""
        node = self.pick(data, self.held())
        subtree = [] if node.gone else node.subtree()
        wait = wait and not any(
            work.state == "running" for each in subtree for work in each.works
        )  # or it waits for ever
        pinned = any(each.pins for each in subtree)
        failing = 0
        try:
            self.quietly(lambda: node.handle.close(wait))
        except BusyError:
            assert pinned, "a close was refused although nothing is pinned"
            return
        except ExceptionGroup as group:
            failing = len(group.exceptions)
        assert not pinned, "something was closed while it was pinned"
        self.told += failing
        for each in subtree:
            each.closed = True

    @precondition(lambda self: self.opened())
    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        """Begin a use."""
        node = self.pick(data, self.opened())
        pin = node.handle.use("model")
        assert self.run(pin.__enter__) is node.handle._value
        node.pins.append(pin)

    @precondition(lambda self: any(node.pins for node in self.nodes))
    @rule(data=st.data(), lost=st.booleans())
    def unpin(self, data: st.DataObject, lost: bool) -> None:
        """End one, or lose the object that would end it."""
        node = self.pick(data, [node for node in self.nodes if node.pins])
        pin = node.pins.pop(data.draw(st.integers(0, len(node.pins) - 1)))
        if node.handle is None and not node.pins:  # it was the last to hold the handle
            if pin._handle._value:
                self.garbage.append(node)
            else:
                node.dropped = True
        held = [pin]
        del pin
        if not lost:
            self.quietly(lambda: held[0].__exit__(None, None, None))
        self.quietly(held.clear)

    @precondition(lambda self: self.opened())
    @rule(data=st.data())
    def export(self, data: st.DataObject) -> None:
        """Give the value to somebody outside."""
        node = self.pick(data, self.opened())
        node.exports.append(self.run(lambda: node.handle.export("model")))

    @precondition(lambda self: any(node.exports for node in self.nodes))
    @rule(data=st.data())
    def release_export(self, data: st.DataObject) -> None:
        """He is done with it."""
        node = self.pick(data, [node for node in self.nodes if node.exports])
        held = [node.exports.pop()]
        self.quietly(held[0].release)
        held[0].release()
        self.quietly(held.clear)

    @precondition(lambda self: self.opened())
    @rule(data=st.data())
    def work(self, data: st.DataObject) -> None:
        """Put work in flight."""
        node, work = self.pick(data, self.opened()), Work()
        self.run(lambda: node.handle.after(work))
        node.works.append(work)

    @precondition(lambda self: any(work.state == "running" for node in self.nodes for work in node.works))
    @rule(data=st.data(), state=st.sampled_from(["finished", "finished", "failed"]))
    def finish(self, data: st.DataObject, state: str) -> None:
        """It finishes, or fails, which counts as finished."""
        running = [work for node in self.nodes for work in node.works if work.state == "running"]
        data.draw(st.sampled_from(running)).state = state

    @precondition(lambda self: self.opened())
    @rule(data=st.data(), fails=st.booleans())
    def add_finalizer(self, data: st.DataObject, fails: bool) -> None:
        """Attach one more."""
        node = self.pick(data, self.opened())
        recipe = self.attach(node, fails)
        self.run(lambda: node.handle.add_finalizer(*recipe))

    @precondition(lambda self: self.opened())
    @rule(data=st.data())
    def detach(self, data: st.DataObject) -> None:
        """Give the value up; refused while something holds it."""
        node = self.pick(data, self.opened())
        held = bool(node.pins or node.exports or any(not child.gone for child in node.children))
        try:
            value = self.run(node.handle.detach)
        except BusyError:
            assert held, "a detach was refused although nothing holds it"
            return
        assert not held, "something was detached while it was held"
        assert value is node.handle._value
        value.clear()
        node.gone = "detached"

    @precondition(lambda self: any(not node.open for node in self.held()))
    @rule(data=st.data())
    def use_after_close(self, data: st.DataObject) -> None:
        """Everything says that it is closed."""
        node = self.pick(data, [node for node in self.held() if not node.open])
        assert node.handle.closed
        for call in (node.handle.use, node.handle.export, node.handle.detach, lambda: node.handle.value):
            try:
                self.run(call)
            except ClosedError:
                continue
            raise AssertionError("a closed lifetime was used")

    @rule(limit=st.integers(0, 5))
    def drain_a_few(self, limit: int) -> None:
        """At most so many."""
        assert self.quietly(lambda: drain(limit)) <= limit

    @precondition(lambda self: self.held())
    @rule(data=st.data())
    def drop_deferring(self, data: st.DataObject) -> None:
        """Inside ``with defer():`` nothing is released."""
        node = self.pick(data, self.held())

        def block(held: list[Any]) -> None:
            with defer():
                count = len(self.log)
                held.clear()
                assert self.alone() is False or len(self.log) == count

        self.let_go(node, block)

    def alone(self) -> bool:
        """Whether no other thread may release something at any time."""
        return True

    # What must hold.

    def expected(self) -> None:
        """Follow the one rule of the model until nothing changes: children first, so from the youngest."""
        changed = True
        while changed:
            changed = False
            for node in reversed(self.nodes):
                if node.ready():
                    node.gone = "released"
                    changed = True

    @invariant()
    def the_log_agrees(self) -> None:
        """Released is what the model says, each finalizer once, last attached first, children first."""
        self.quietly(drain)
        self.expected()
        check_invariants()
        released = [node for node in self.nodes if node.gone == "released"]
        names = [name for node in released for name in node.finalizers]
        assert sorted(self.log) == sorted(names), f"logged {self.log}, expected {names}"
        at = {name: index for index, name in enumerate(self.log)}
        for node in released:
            order = [at[name] for name in node.finalizers]
            assert order == sorted(order, reverse=True), f"finalizers of {node.number} ran in the order {order}"
            for child in node.children:
                if child.gone == "released":
                    assert max(at[name] for name in child.finalizers) < min(order), (
                        f"{node.number} before {child.number}"
                    )
        failed = sum(name.endswith("!") for name in self.log)
        assert self.told == failed or not self.alone(), f"{failed} failures, of which {self.told} were told"
        alive = {node.number for node in self.nodes if not node.gone}
        assert len(set(live) - self.before) == len(alive)

    def teardown(self) -> None:
        """Let everything go; nothing is left."""
        for node in self.nodes:
            for work in node.works:
                work.state = "finished" if work.state == "running" else work.state
            node.pins.clear()
            node.exports.clear()
            node.handle = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
            drain()
        gc.unfreeze()
        if self.collecting:
            gc.enable()
        assert set(live) <= self.before
        check_invariants()
