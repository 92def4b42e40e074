"""`jit`: a Python function over arrays, traced once for each layout of its arguments, compiled, and run on their device."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from types import MethodType
from typing import Any, Final, TypeAlias, overload

import numpy as np

from lifetimes.compiler import settings, target
from lifetimes.compiler.captures import Captures, frozen
from lifetimes.compiler.execute import Runner, extent
from lifetimes.compiler.flights import Flights
from lifetimes.compiler.passes.views import contiguous
from lifetimes.compiler.plan import KernelStep, make_plan
from lifetimes.compiler.reflect import Graph, JitStatistics
from lifetimes.compiler.settings import Settings
from lifetimes.compiler.spec import Spec
from lifetimes.compiler.trace import Traced, trace
from lifetimes.compiler.tracer import Trace
from lifetimes.compiler.tracer import _active as traces
from lifetimes.compiler.tree import LEAF, Tree, flatten
from lifetimes.device import Device
from lifetimes.errors import TraceError
from lifetimes.opening import current_device
from lifetimes.resources import Array
from lifetimes.resources.array import recording

__all__ = ["Jitted", "jit"]

MOST: Final = 256
"""Layouts that a function remembers; when there are more, the oldest go."""
NUMBERS: Final = (float, int, bool)


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """What is compiled for one layout.

    ``captured`` says of each captured array which of the captures it is, and which part of it if it is a view; or is it.
    """

    runner: Runner
    output: Tree
    captured: tuple[tuple[int, Any], ...]

    @property
    def device(self) -> Device | None:
        """That of the arrays that are known by themselves only, if there are any."""
        return next((held.device for at, held in self.captured if at < 0 and isinstance(held, Array)), None)

    def inputs(self, captured: Sequence[Any], device: Device) -> list[Any]:
        """The captured arrays as they are now.  Errors: `TraceError` for one of another device."""
        found = []
        for at, held in self.captured:
            if at < 0 and isinstance(held, Array):
                _same_device(device, held)
            found.append(
                _placed(device, held if at < 0 else captured[at] if held is None else captured[at]._part(*held))
            )
        return found


class Jitted:
    """A function that compiles itself.  Made by `jit`; called as the function is.

    Arguments are arrays of one device and numbers, also in tuples, lists and dicts; results are arrays of that device, packed
    as the function returns them.  NumPy arrays are copied to the device.  Inside of another traced function it is that
    function's part.

    Threading: any thread.  Who calls first with a new layout compiles; others who need the same wait for that.
    Locks: none while tracing, compiling and running.
    """

    def __init__(self, function: Callable[..., Any], static: Sequence[str | int] | dict[str, int] = ()) -> None:
        target.require_llvm()
        functools.update_wrapper(self, function)
        self._function = function
        self._static = static if isinstance(static, dict) else _static_names(function, static)
        self._captures: Captures | None = None
        self._entries: Flights[Any, Entry] = Flights()
        self._times: deque[tuple[float, float]] = deque(maxlen=4096)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method: a jitted function of its own for each object, which keeps it; attributes that it names are captured."""
        if instance is None:
            return self
        # A bound method has one argument less.
        static = {name: at - 1 for name, at in self._static.items() if at}
        bound = Jitted(MethodType(self._function, instance), static)
        kept = getattr(instance, "__dict__", None)
        if isinstance(kept, dict):  # found there first the next time; a class (of a class method) keeps nothing
            kept[self._function.__name__] = bound
        return bound

    def __repr__(self) -> str:
        return f"<jitted {getattr(self._function, '__qualname__', self._function)!s}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it.

        Errors: `TraceError` for what cannot be traced, `CompileError`, and those of the memory manager: `OutOfMemory`,
        `ClosedError`, `BrokenError`.
        """
        running = traces.get()
        if running:
            return self._function(*_lifted(running[-1], args), **_lifted(running[-1], kwargs))
        entry, device, inputs = (None if kwargs else self._known(args)) or self._looked_up(args, kwargs)
        results = entry.runner.run(device, inputs)
        return results[0] if entry.output is LEAF else entry.output.unflatten(results)

    def into(self, out: Any, /, *args: Any, **kwargs: Any) -> None:
        """Write the results into ``out``, packed as the function packs them, instead of new arrays.

        ``out`` may be views, and may share memory with the arguments: the results are those of a call.  Where it is safe
        they are written in place, else computed aside and copied.
        Errors: as a call; `ValueError` for another structure, shape or dtype, or a view that repeats elements.
        """
        if traces.get():
            raise TraceError("into() writes to an array, which cannot be traced: call the function and use its result")
        outs, given = ([out], LEAF) if out.__class__ is Array else flatten(out)
        found = None if kwargs else self._known(args)
        if found is None:
            found = self._looked_up(args, kwargs, next((each.device for each in outs if isinstance(each, Array)), None))
        entry, device, inputs = found
        if given is not entry.output and given != entry.output:
            raise ValueError("out is packed in another way than the function packs its results")
        entry.runner.write(device, inputs, outs)

    def _known(self, args: Sequence[Any]) -> tuple[Entry, Device, Sequence[Any]] | None:
        """What `_looked_up` gives for most calls, in as few steps as there can be; None for others.  The key is `_Call`'s."""
        captures = self._captures
        if captures is None or self._static:
            return None
        key: list[Any] = [settings.now]
        device: Device | None = None
        for value in args:
            if value.__class__ is Array:
                key.append(value._layout or value.layout)
                if device is not value._device:
                    if device is not None:
                        raise _two_devices(device, value._device)
                    device = value._device
            elif value.__class__ in NUMBERS:
                key.append(value.__class__)
            else:
                return None
        captured: list[Any] = []
        if captures.there:
            captured = captures.values()
            more, device = _captured_key(captured, device)
            key.append(more)
        slot = self._entries.look(tuple(key))
        if slot is None or not slot.value or device is None:
            return None
        entry = slot.value[0]
        return entry, device, [*args, *entry.inputs(captured, device)] if entry.captured else args

    def _looked_up(
        self, args: Sequence[Any], kwargs: dict[str, Any], otherwise: Device | None = None
    ) -> tuple[Entry, Device, Sequence[Any]]:
        """What is compiled for these arguments, now if need be; their device, or ``otherwise``; and the inputs of the plan."""
        call = _Call(self, args, kwargs)
        if any(isinstance(value, Spec) for value in call.leaves):
            raise TraceError(
                "a spec has no content to compute with: it is for ir(), lowered(), source() and assembly()"
            )
        entry, _ = self._entries.get(call.key, call.entry)
        if len(self._entries) > MOST:
            self._entries.shorten(MOST)
        device = call.device or entry.device or otherwise or current_device()
        inputs = [_placed(device, value) for value in call.leaves]
        return entry, device, [*inputs, *entry.inputs(call.captured, device)]

    # What it becomes.

    def ir(self, *args: Any, traced: bool = False, **kwargs: Any) -> str:
        """The graph for these arguments (arrays, numbers, or `lifetimes.spec`), simplified; or as it was traced.

        Errors: `TraceError`.

        >>> import lifetimes
        >>> print(jit(lambda x: x + x).ir(lifetimes.spec(3)))
        function(%0: float64[3]) {
          %1: float64[3] = add(%0, %0)
          return %1
        }
        """
        return self._graph(args, kwargs).ir(traced)

    def lowered(self, *args: Any, **kwargs: Any) -> str:
        """The loop nests that it is fused into, in the order in which they run."""
        return self._graph(args, kwargs).lowered()

    def source(self, *args: Any, whole_module: bool = True, **kwargs: Any) -> str:
        """The programs in LLVM's language; with ``whole_module=False`` only the functions."""
        return self._graph(args, kwargs).source(whole_module)

    def assembly(self, *args: Any, whole_module: bool = True, **kwargs: Any) -> str:
        """The machine code; with ``whole_module=False`` only the instructions."""
        return self._graph(args, kwargs).assembly(whole_module)

    def stats(self) -> JitStatistics:
        """What has been compiled so far, and how long that took.  Never compiles."""
        entries = [entry for _, entry in self._entries.finished()]
        kernels = {step.kernel for entry in entries for step in entry.runner.plan.steps if isinstance(step, KernelStep)}
        nbytes = sum(kernel.code.nbytes for kernel in kernels)
        times = list(self._times)
        seconds = (sum(traced for traced, _ in times), sum(after for _, after in times))
        return JitStatistics(len(entries), len(kernels), nbytes, len(times), seconds)

    def _graph(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Graph:
        call = _Call(self, args, kwargs)
        traced = call.traced()
        return Graph(traced.function, tuple(call.strides(traced)), call.settings.target)

    def clear(self) -> None:
        """Forget what was compiled; what runs keeps what it needs."""
        self._entries.clear()


class _Call:
    """One call, taken apart: leaves and their structure, what is static, what is captured; and the key of all that."""

    def __init__(self, jitted: Jitted, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.jitted = jitted
        self.settings: Settings = settings.now
        self.static, self.args, self.kwargs = _without(jitted._static, args, kwargs)
        self.leaves, self.tree = flatten((tuple(self.args), self.kwargs))
        captures = jitted._captures
        if captures is None:
            captures = jitted._captures = Captures(jitted._function)
        self.captured = captures.values()
        self.device: Device | None = None
        leaves = [self._array_key(value) or _number_key(value) for value in self.leaves]
        captured, self.device = _captured_key(self.captured, self.device)
        plain = all(each.kind is None for each in self.tree.children[0].children)
        self.key: Any = (self.settings, *leaves, captured) if captured else (self.settings, *leaves)
        if self.kwargs or self.static or not plain:
            static = tuple([(at, frozen(value)) for at, value in self.static])
            self.key = (self.settings, self.tree, static, tuple(leaves), captured)

    def _array_key(self, value: Any) -> Any:
        """The layout of an array, None for anything else.  Errors: `TraceError` for a second device."""
        if isinstance(value, np.ndarray):
            return (np.ndarray, value.dtype, value.shape)
        if not isinstance(value, Array):
            return None
        if not value.dtype.isnative:
            raise TraceError(f"{value!r} has the byte order of another machine: make an array of its native copy")
        self.device = _same_device(self.device, value)
        return value.layout

    def entry(self) -> Entry:
        """Trace and compile."""
        begin = perf_counter()
        traced = self.traced()
        after = perf_counter()
        plan = make_plan(traced.function, self.strides(traced), self.settings)
        self.jitted._times.append((after - begin, perf_counter() - after))
        return Entry(Runner(plan), traced.output, tuple([self._source(value) for value in traced.captured]))

    def traced(self) -> Traced:
        """The graph of the function for these arguments."""
        token = recording.set(True)
        try:
            return trace(_with(self.jitted._function, self.static), self.args, self.kwargs)
        finally:
            recording.reset(token)

    def strides(self, traced: Traced) -> list[tuple[int, ...] | None]:
        """Those of the graph's parameters, in elements; None for a number."""
        return [_strides_of(value) for value in (*self.leaves, *traced.captured)]

    def _source(self, value: Any) -> tuple[int, Any]:
        """Where a captured array comes from at each call: a closure or global, or a view of one; if it is not known, itself."""
        for at, each in enumerate(self.captured):
            if each is value:
                return (at, None)
        if isinstance(value, np.ndarray):  # what was made of a capture stays what it was: its content is in the key
            made = any(isinstance(each, np.ndarray) and np.may_share_memory(each, value) for each in self.captured)
            return (-1, value.copy() if made else value)
        whole = [at for at, each in enumerate(self.captured) if isinstance(each, Array) and _is_part(value, each)]
        if not whole:
            return (-1, value)
        at = min(whole, key=lambda at: self.captured[at].nbytes)
        return (at, (value.offset - self.captured[at].offset, value.shape, value.strides))


def _is_part(part: Array, whole: Array) -> bool:
    (low, high), (bottom, top) = extent(part), extent(whole)
    return part.value == whole.value and bottom <= low and high <= top


Static: TypeAlias = tuple[tuple[int | str, Any], ...]
"""Where a static argument was given (by position or by name), and its value."""


def _number_key(value: Any) -> Any:
    if isinstance(value, np.generic):
        return (np.generic, value.dtype)
    if isinstance(value, Spec):
        return value
    return type(value)


def _strides_of(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, Array):
        return tuple([stride // value.dtype.itemsize for stride in value.strides])
    if isinstance(value, (np.ndarray, Spec)) and not getattr(value, "weak", False):
        return contiguous(value.shape)  # it is copied to the device
    return None


def _lifted(running: Trace, packed: Any) -> Any:
    """Arrays that a part of a traced function is given are parameters of the whole."""
    leaves, tree = flatten(packed)
    return tree.unflatten([running.lift(each) if isinstance(each, Array) else each for each in leaves])


def _placed(device: Device, value: Any) -> Any:
    """An input as a plan takes it: an array of the device, or a number."""
    if isinstance(value, np.ndarray):
        return device.asarray(value, value.dtype.newbyteorder("="))
    return value


def _captured_key(values: list[Any], device: Device | None) -> tuple[tuple[Any, ...], Device | None]:
    """What captured values are in a key, and the device of the arrays.

    Of an array the layout counts, and which earlier one it is, if it is one: two names of one array are one parameter.  Of a
    NumPy array the content counts too, because NumPy may have computed with it while tracing.
    """
    found: list[Any] = []
    arrays: dict[int, int] = {}  # of objects that `values` holds
    for at, value in enumerate(values):
        if isinstance(value, (Array, np.ndarray)):
            first = arrays.setdefault(id(value), at)
            if isinstance(value, Array):
                device = _same_device(device, value)
                found.append((first, value.dtype, value.shape, value.strides))
            else:
                digest = hashlib.blake2b(value.tobytes(), digest_size=16).digest()
                found.append((first, value.dtype, value.shape, digest))
        else:
            found.append(frozen(value))
    return tuple(found), device


def _same_device(device: Device | None, array: Array) -> Device:
    if device is not None and device is not array.device:
        raise _two_devices(device, array.device)
    return array.device


def _two_devices(a: Device, b: Device) -> TraceError:
    return TraceError(f"arguments are on {a!r} and on {b!r}; copy one of them with to_device()")


def _static_names(function: Callable[..., Any], static: Sequence[str | int] | str | int) -> dict[str, int]:
    """Name and position of each static argument.  Errors: `TypeError` that lists what arguments there are."""
    wanted = (static,) if isinstance(static, (str, int)) else tuple(static)
    if not wanted:
        return {}
    there = [
        each.name
        for each in inspect.signature(function).parameters.values()
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    found: dict[str, int] = {}
    for each in wanted:
        at = each if isinstance(each, int) and not isinstance(each, bool) else -1
        if isinstance(each, str) and each in there:
            at = there.index(each)
        if not 0 <= at < len(there):
            raise TypeError(f"static={each!r}: the function has no such argument; it has {', '.join(there) or 'none'}")
        found[there[at]] = at
    return found


def _without(
    names: dict[str, int], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Static, Sequence[Any], dict[str, Any]]:
    """The static arguments, and the others."""
    if not names:
        return (), args, kwargs
    static: list[tuple[int | str, Any]] = [(at, args[at]) for at in sorted(names.values()) if at < len(args)]
    static += [(name, kwargs[name]) for name in names if name in kwargs]
    positions = {at for at, _ in static}
    rest = [value for at, value in enumerate(args) if at not in positions]
    return tuple(static), rest, {name: value for name, value in kwargs.items() if name not in names}


def _with(function: Callable[..., Any], static: Static) -> Callable[..., Any]:
    """The function of the other arguments alone."""
    if not static:
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        positional = list(args)
        named = dict(kwargs)
        for at, value in static:
            if isinstance(at, int):
                positional.insert(at, value)
            else:
                named[at] = value
        return function(*positional, **named)

    return call


@overload
def jit(f: Callable[..., Any], /, *, static: Sequence[str | int] | str | int = ()) -> Jitted: ...
@overload
def jit(
    f: None = None, /, *, static: Sequence[str | int] | str | int = ()
) -> Callable[[Callable[..., Any]], Jitted]: ...
def jit(f: Any = None, /, *, static: Any = ()) -> Any:
    """Compile a function over arrays: as a decorator, or ``jit(f)``.

    The function is traced, which is to say called with stand-ins for its arrays, once for each layout: dtypes, shapes,
    strides, which arguments are numbers, the values of ``static`` arguments (names or positions), and the values of the
    closures and globals that it names.  What it does to arrays is fused into kernels and compiled.  Operators, NumPy's
    functions and those of ``x.__array_namespace__()`` work inside.

    Errors: `BackendError` without llvmlite, `TypeError` for a static argument that there is not.

    >>> import lifetimes, numpy as np
    >>> @lifetimes.jit
    ... def wave(x, a):
    ...     return a * np.sin(x) + 1
    >>> with lifetimes.open("host") as device:
    ...     wave(device.asarray(np.zeros(3)), 2.0).numpy()
    array([1., 1., 1.])
    """
    if f is None:
        return lambda function: Jitted(function, static)
    if not callable(f):
        raise TypeError(f"jit takes a function, not {type(f).__name__} {f!r}")
    return Jitted(f, static)
