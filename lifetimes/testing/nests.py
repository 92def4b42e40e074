"""What kernels mean: a function fused and lowered, and its loop nests computed by NumPy, all elements of a value at once.

Between the interpreter of graphs and machine code this is the middle oracle: it holds fusion and lowering against the
interpreter without any code generator, and says what an emitter's kernel has to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lifetimes.compiler import ops
from lifetimes.compiler.bound import Bound
from lifetimes.compiler.ir import Builder, Function, Node
from lifetimes.compiler.kernel import ELEMENT, Reduction, Store
from lifetimes.compiler.passes.views import View
from lifetimes.compiler.plan import lowered

__all__ = ["run_lowered"]


def run_lowered(
    function: Function, values: Sequence[Any], cut: Callable[[Bound], Sequence[Bound]] = lambda kernel: [kernel]
) -> list[Any]:
    """The results of ``function``, computed kernel by kernel as they are lowered.

    Arrays keep their strides; numbers are passed as arrays of no dimensions.  ``cut`` may replace a kernel by several that
    do the same together; the last one is run first, since their order must not matter.

    >>> from lifetimes.compiler.spec import spec
    >>> from lifetimes.compiler.trace import trace
    >>> run_lowered(trace(lambda x: x - x.max(), (spec(3),)).function, [np.array([1.0, 5.0, 2.0])])
    [array([-4.,  0., -3.])]
    """
    arrays = [np.asarray(value) for value in values]
    strides = [tuple([step // each.itemsize for step in each.strides]) for each in arrays]
    fused, steps = lowered(function, strides)
    firsts: dict[int, int] = {}
    memory: list[Any] = []
    for at, buffer in enumerate(fused.buffers):
        if buffer.param is None:
            memory.append(np.zeros(buffer.size, buffer.dtype))
        else:
            flat, firsts[at] = _flat(arrays[buffer.param])
            memory.append(flat)
    for step in steps:
        if isinstance(step, Node):
            left, right, out = [_seen(memory, firsts, fused.views[each], each.shape) for each in (*step.args, step)]
            with np.errstate(all="ignore"):
                np.matmul(left, right, out=out)
        else:
            pieces = [piece for kernel in step for piece in cut(kernel)]
            with np.errstate(all="ignore"):
                for piece in reversed(pieces):
                    _Run(piece, memory, firsts).run()
    return [memory[buffer].reshape(out.shape) for buffer, out in zip(fused.outs, function.outs, strict=True)]


def _flat(array: Any) -> tuple[Any, int]:
    """The elements that an array reaches over, as they lie in memory, and where its first one is among them."""
    size = array.itemsize
    steps = [(length - 1) * stride // size for length, stride in zip(array.shape, array.strides, strict=True)]
    if 0 in array.shape:
        return np.zeros(1, array.dtype), 0
    low, high = sum(step for step in steps if step < 0), sum(step for step in steps if step > 0)
    starts = [length - 1 if step < 0 else 0 for length, step in zip(array.shape, steps, strict=True)]
    lowest = array[tuple([slice(at, at + 1) for at in starts])]  # still a view, unlike the element itself
    whole = np.lib.stride_tricks.as_strided(lowest, (high - low + 1,), (size,))
    return whole.copy(), -low


def _seen(memory: list[Any], firsts: dict[int, int], view: View, shape: tuple[int, ...]) -> Any:
    flat = memory[view.buffer]
    if 0 in shape:
        return np.zeros(shape, flat.dtype)
    start = flat[view.offset + firsts.get(view.buffer, 0) :]
    return np.lib.stride_tricks.as_strided(start, shape, [step * flat.itemsize for step in view.strides])


class _Run:
    """One kernel.  Each value is an array with a dimension for each loop, of length 1 where it does not depend on it."""

    def __init__(self, kernel: Bound, memory: list[Any], firsts: dict[int, int]) -> None:
        self.kernel = kernel
        self.nest = kernel.nest
        self.memory = memory
        self.firsts = firsts
        self.inner = tuple(range(self.nest.outer, len(kernel.sizes)))
        self.results: dict[int, Any] = {}
        self.known: dict[int, Any] = {}

    def run(self) -> None:
        """All phases, then the rows."""
        levels = self.nest.levels()
        for phase in self.nest.phases:
            for number in phase.reductions:
                self.results[number] = self._reduced(self.nest.reductions[number])
            for store in phase.stores:
                self._store(store, len(self.kernel.sizes))
            self.known = {at: value for at, value in self.known.items() if levels[at] != ELEMENT}
        for store in self.nest.stores:
            self._store(store, self.nest.outer)

    def _steps(self, factors: Sequence[int]) -> Any:
        """The sum over all loops of the step in each, times its factor."""
        found = np.zeros((1,) * len(factors), np.int64)
        for loop, (size, factor) in enumerate(zip(self.kernel.sizes, factors, strict=True)):
            if factor:
                along = [1] * len(factors)
                along[loop] = size
                found = found + factor * np.arange(size).reshape(along)
        return found

    def _places(self, access: int, index: Any) -> Any:
        buffer, offset = self.kernel.pointers[access]
        places = self._steps(self.kernel.strides[access]) + offset + self.firsts.get(buffer, 0)
        return places if index is None else places + dict(self.kernel.jumps)[access] * index

    def _value(self, number: int) -> Any:
        if number not in self.known:
            args = [self._value(arg) for arg in self.nest.values[number].args]
            self.known[number] = self._computed(number, args)
        return self.known[number]

    def _computed(self, number: int, args: list[Any]) -> Any:
        value = self.nest.values[number]
        one = (1,) * len(self.kernel.sizes)
        if value.op == "load":
            access = int(value.extra or 0)
            places = self._places(access, args[0] if args else None)
            assert self.nest.accesses[access].dtype == value.dtype
            return self.memory[self.kernel.pointers[access][0]][places]
        if value.op == "scalar":
            scalar = self.kernel.scalars[int(value.extra or 0)]
            assert isinstance(scalar, np.generic), "numbers are passed as arrays"
            return np.full(one, scalar, value.dtype)
        if value.op == "const":
            return np.full(one, value.extra, value.dtype)
        if value.op == "index":
            return self._steps(dict(self.kernel.factors)[number]) + dict(self.kernel.starts)[number]
        if value.op == "result":
            return self.results[int(value.extra or 0)]
        if value.op == "scan":
            whole = np.broadcast_to(args[0], [max(a, b) for a, b in zip(args[0].shape, one, strict=True)])
            whole = np.repeat(whole, self.kernel.sizes[-1], -1) if whole.shape[-1] == 1 else whole
            running = np.cumsum if value.extra == "sum" else np.cumprod
            return running(whole, axis=-1, dtype=value.dtype)
        return ops.evaluate(self._node(value.op, value.dtype, args), *np.broadcast_arrays(*args))

    def _node(self, op: str, dtype: str, args: list[Any]) -> Node:
        """The graph's node of that operation, whose meaning is known."""
        builder = Builder()
        shape = np.broadcast_shapes(*[each.shape for each in args])
        given = [ops.make(builder, "param", dtype=each.dtype, shape=shape, index=at) for at, each in enumerate(args)]
        return ops.make(builder, op, *given, dtype=dtype)

    def _reduced(self, reduction: Reduction) -> Any:
        loops = self.kernel.sizes
        rows = loops[: self.nest.outer]
        args = [np.broadcast_to(self._value(arg), loops).reshape(*rows, -1) for arg in reduction.args]
        if reduction.kind.startswith("arg"):
            at = getattr(np, reduction.kind)(args[0], axis=-1)
            found = np.take_along_axis(args[1], at[..., None], -1)[..., 0]
        elif reduction.kind in ("sum", "prod"):
            found = getattr(np, reduction.kind)(args[0], axis=-1, dtype=reduction.dtype)
        else:
            found = getattr(np, reduction.kind)(args[0], axis=-1)
        return np.asarray(found).reshape(*rows, *[1] * len(self.inner))

    def _store(self, store: Store, loops: int) -> None:
        """For every step of the first so many loops."""
        shape = (*self.kernel.sizes[:loops], *[1] * (len(self.kernel.sizes) - loops))
        index = None if store.index is None else self._value(store.index)
        places = np.broadcast_to(self._places(store.access, index), shape).ravel()
        value = np.broadcast_to(self._value(store.value), shape).ravel()
        if store.where is not None:
            kept = np.broadcast_to(self._value(store.where), shape).ravel()
            places, value = places[kept], value[kept]
        memory = self.memory[self.kernel.pointers[store.access][0]]
        assert memory.dtype == value.dtype == np.dtype(self.nest.accesses[store.access].dtype)
        if store.add:
            np.add.at(memory, places, value)
        else:
            memory[places] = value
