"""Accumulators: their first state, one step, and how several become one.

The state of an accumulator is one operand, or two for `argmin` and `argmax`: the best value and its position.

Note [First].  Of equal values the first counts, and NaN before all numbers, as in NumPy.  Within a lane positions ascend, so
a later one must be better to win; between lanes and accumulators equal values are decided by position.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

from lifetimes.compiler.emit.writer import Lanes, Operand, Writer, type_of

__all__ = ["State", "fold_lanes", "identity", "merge", "prefix", "state_types", "step"]

State: TypeAlias = tuple[Operand, ...]

_JOIN: Final = {"sum": {"f": "fadd", "i": "add", "u": "add"}, "prod": {"f": "fmul", "i": "mul", "u": "mul"}}


def state_types(kind: str, dtype: str, lanes: Lanes) -> list[str]:
    """The LLVM types of the state."""
    types = [type_of(dtype, lanes)]
    return [*types, type_of("int64", lanes)] if kind.startswith("arg") else types


def identity(w: Writer, kind: str, dtype: str, lanes: Lanes) -> State:
    """The state before the first element.

    A position of 0 for the worst value there is: if nothing is better, everything is that value, and 0 is the first.
    """
    first = w.constant(dtype, _identity(kind, dtype), lanes)
    return (first, w.constant("int64", 0, lanes)) if kind.startswith("arg") else (first,)


def _identity(kind: str, dtype: str) -> Any:
    if kind in ("sum", "any"):
        return 0
    if kind in ("prod", "all"):
        return 1
    largest = kind.endswith("min")
    numpy_dtype = np.dtype(dtype)
    if numpy_dtype.kind == "b":
        return largest
    if numpy_dtype.kind == "f":
        return np.inf if largest else -np.inf
    return np.iinfo(numpy_dtype).max if largest else np.iinfo(numpy_dtype).min


def step(w: Writer, kind: str, dtype: str, state: State, new: State, lanes: Lanes, mask: Operand | None) -> State:
    """One more element for each lane that the mask leaves in; ``new`` is the value, with its position if there is one."""
    if mask is not None:
        bits, vector = type_of("bool", lanes), type_of(dtype, lanes)
        neutral = identity(w, kind, dtype, lanes)[0]
        new = (w.let(f"select {bits} {mask}, {vector} {new[0]}, {vector} {neutral}"), *new[1:])
    if kind.startswith("arg"):
        return _choose(w, dtype, _better(w, kind, dtype, new[0], state[0], lanes), new, state, lanes)
    return (_joined(w, kind, dtype, state[0], new[0], lanes),)


def merge(w: Writer, kind: str, dtype: str, a: State, b: State, lanes: Lanes) -> State:
    """Two accumulators made one; neither comes before the other (Note [First])."""
    if not kind.startswith("arg"):
        return (_joined(w, kind, dtype, a[0], b[0], lanes),)
    bits = type_of("bool", lanes)
    better = _better(w, kind, dtype, b[0], a[0], lanes)
    worse = _better(w, kind, dtype, a[0], b[0], lanes)
    earlier = w.let(f"icmp slt {type_of('int64', lanes)} {b[1]}, {a[1]}")
    even = w.let(f"xor {bits} {w.let(f'or {bits} {better}, {worse}')}, {w.constant('bool', True, lanes)}")
    wins = w.let(f"or {bits} {better}, {w.let(f'and {bits} {even}, {earlier}')}")
    return _choose(w, dtype, wins, b, a, lanes)


def fold_lanes(w: Writer, kind: str, dtype: str, state: State, lanes: int) -> State:
    """All lanes of an accumulator made one, in halves."""
    if kind in ("any", "all"):
        name = f"llvm.vector.reduce.{'or' if kind == 'any' else 'and'}.v{lanes}i1"
        return (w.call(name, "i1", [(type_of("bool", lanes), state[0])]),)
    dtypes = (dtype, "int64")[: len(state)]
    while lanes > 1:
        half = lanes // 2
        low, high = (
            tuple(
                [
                    w.shuffle(each, lanes, part, "poison", range(start, start + half))
                    for each, part in zip(dtypes, state, strict=True)
                ]
            )
            for start in (0, half)
        )
        lanes = half
        state = merge(w, kind, dtype, low, high, lanes if lanes > 1 else None)
    return state


def prefix(w: Writer, kind: str, dtype: str, values: Operand, carry: Operand, lanes: Lanes) -> tuple[Operand, Operand]:
    """The running sums (or products) of the lanes, after ``carry`` (single); and the last of them."""
    if lanes is None:
        joined = _joined(w, kind, dtype, carry, values, None)
        return joined, joined
    neutral = identity(w, kind, dtype, lanes)[0]
    distance = 1
    while distance < lanes:
        # Every lane takes what stands `distance` lanes before it; lanes that would reach outside take the neutral.
        which = [lanes + lane if lane < distance else lane - distance for lane in range(lanes)]
        values = _joined(w, kind, dtype, w.shuffle(dtype, lanes, values, neutral, which), values, lanes)
        distance *= 2
    values = _joined(w, kind, dtype, w.splat(dtype, carry, lanes), values, lanes)
    return values, w.shuffle(dtype, lanes, values, "poison", [lanes - 1])


def _joined(w: Writer, kind: str, dtype: str, a: Operand, b: Operand, lanes: Lanes) -> Operand:
    vector = type_of(dtype, lanes)
    if kind in _JOIN:
        return w.let(f"{_JOIN[kind][np.dtype(dtype).kind]} {vector} {a}, {b}")
    if kind in ("any", "all"):
        return w.let(f"{'or' if kind == 'any' else 'and'} {vector} {a}, {b}")
    return w.let(f"select {type_of('bool', lanes)} {_better(w, kind, dtype, b, a, lanes)}, {vector} {b}, {vector} {a}")


def _better(w: Writer, kind: str, dtype: str, new: Operand, old: Operand, lanes: Lanes) -> Operand:
    """Whether ``new`` must replace ``old``: it is beyond it, or it is NaN.  (An old NaN is beyond every number.)"""
    vector, bits = type_of(dtype, lanes), type_of("bool", lanes)
    letter = np.dtype(dtype).kind
    beyond = "lt" if kind.endswith("min") else "gt"
    if letter != "f":
        return w.let(f"icmp {'s' if letter == 'i' else 'u'}{beyond} {vector} {new}, {old}")
    plain = w.let(f"fcmp o{beyond} {vector} {new}, {old}")
    nan = w.let(f"fcmp uno {vector} {new}, {new}")
    if kind.startswith("arg"):  # of several NaN the first
        nan = w.let(f"and {bits} {nan}, {w.let(f'fcmp ord {vector} {old}, {old}')}")
    return w.let(f"or {bits} {plain}, {nan}")


def _choose(w: Writer, dtype: str, condition: Operand, a: State, b: State, lanes: Lanes) -> State:
    bits = type_of("bool", lanes)
    dtypes = (dtype, "int64")
    return tuple(
        [
            w.let(f"select {bits} {condition}, {type_of(each, lanes)} {x}, {type_of(each, lanes)} {y}")
            for each, x, y in zip(dtypes, a, b, strict=False)
        ]
    )
