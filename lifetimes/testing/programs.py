"""Random array programs, for whatever runs the same Python function in another way than NumPy does.

A `Program` is the source of a function over a namespace ``xp`` and arrays, with arguments that it works for.  It is
written line by line, each tried out with NumPy at once, so every program runs: what is drawn is what one would write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from lifetimes.compiler.ir import DTYPES
from lifetimes.testing.eager import eager, quiet
from lifetimes.testing.layouts import laid_out

__all__ = ["Program", "arrays", "programs"]

NAMES: Final = tuple(dtype.name for dtype in DTYPES)
LARGEST: Final = 2000
"""The most elements that a value of a program has."""

SPECIAL_FLOATS: Final = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -1e30, 0.5, 255.0, 2.0**-1074)


@dataclass(frozen=True)
class Program:
    """A function ``program(xp, a0, a1, ...)`` as source, and NumPy arrays to call it with."""

    source: str
    arguments: tuple[Any, ...] = field(repr=False)

    @property
    def function(self) -> Callable[..., tuple[Any, ...]]:
        """The function; it takes the namespace first."""
        names: dict[str, Any] = {}
        exec(compile(self.source, "<program>", "exec", dont_inherit=True), names)
        found: Callable[..., tuple[Any, ...]] = names["program"]
        return found

    def eager(self) -> tuple[Any, ...]:
        """The results as NumPy computes them, as arrays."""
        with quiet():
            return tuple([np.asarray(each) for each in self.function(eager, *self.arguments)])

    def __repr__(self) -> str:
        described = ", ".join(f"{each.dtype}{list(each.shape)}" for each in self.arguments)
        return f"{self.source}# with {described}"


def arrays(shape: tuple[int, ...], dtype: Any, *, special: bool = True) -> st.SearchStrategy[Any]:
    """NumPy arrays of small numbers, and, if ``special``, of the extremes of the dtype: infinities, NaN, -0.0, denormals.

    >>> from hypothesis import find
    >>> find(arrays((3,), "float32"), lambda a: bool(np.isnan(a).any())).dtype
    dtype('float32')
    """
    kind = np.dtype(dtype)

    def fill(seed: int) -> Any:
        random = np.random.default_rng(seed)
        if kind.kind == "b":
            return random.integers(0, 2, shape).astype(kind)
        low = 0 if kind.kind == "u" else -6
        fraction = np.round(random.random(shape), 2) if kind.kind == "f" else 0
        filled: Any = (random.integers(low, 9, shape) + fraction).astype(kind)
        if special and seed % 3 == 2:
            if kind.kind == "f":
                extreme = np.array(SPECIAL_FLOATS).astype(kind)
            else:
                limits = np.iinfo(kind)
                extreme = np.array([limits.min, limits.max, limits.max - 1, limits.min + 1, 0, 1], kind)
            filled = np.where(random.random(shape) < 0.4, random.choice(extreme, shape), filled)
        return np.asarray(filled, kind)

    return st.integers(0, 3000).map(fill)


@st.composite
def programs(
    draw: st.DrawFn,
    *,
    dtypes: Sequence[str] = NAMES,
    most_lines: int = 8,
    special: bool = True,
    kinds: Sequence[str] | None = None,
) -> Program:
    """Programs of up to ``most_lines`` lines over arguments of ``dtypes``, laid out in any way.

    ``kinds`` are names of `LINES`, of which the lines are drawn; all of them by default.

    >>> from hypothesis import find
    >>> program = find(programs(dtypes=["float64"]), lambda p: "xp.sum" in p.source)
    >>> all(isinstance(each, np.ndarray) for each in program.eager())
    True
    """
    shapes = draw(st.sampled_from(SHAPES))
    values = {}
    for at, shape in enumerate(shapes[: draw(st.integers(1, 3))]):
        dtype = draw(st.sampled_from(dtypes))
        plain = draw(arrays(shape, dtype, special=special))
        values[f"a{at}"] = laid_out(plain, draw(st.integers(0, 200)) if draw(st.booleans()) else 0)
    arguments = tuple(values.values())
    writer = _Writer(draw, values)
    makers = [LINES[name] for name in (LINES if kinds is None else kinds)]
    for _ in range(draw(st.integers(1, most_lines))):
        make = draw(st.sampled_from(makers))
        try:
            writer.write(make(writer))
        except _NothingFits:
            pass
    names = list(writer.values)
    made = names[len(arguments) :] or names
    results = draw(st.lists(st.sampled_from(made), max_size=2)) + [made[-1]]
    head = f"def program(xp, {', '.join(names[: len(arguments)])}):\n"
    body = "".join(f"    {line}\n" for line in writer.lines)
    return Program(f"{head}{body}    return {', '.join(results)},\n", arguments)


SHAPES: Final = (
    ((3,), (3,), (1,)),
    ((2, 3), (3,), ()),
    ((4, 1), (1, 5), (4, 5)),
    ((), (), (2,)),
    ((17,), (1,), (17,)),
    ((2, 3, 4), (3, 1), (4,)),
    ((0,), (1,), (0,)),
    ((2, 0, 3), (1, 3), (3,)),
    ((5, 5), (5, 5), (5,)),
    ((33, 3), (3,), (33, 1)),
    ((70,), (1,), (70,)),
    ((9, 37), (37,), (9, 1)),
)
"""Shapes of the arguments; those of one row broadcast."""


class _NothingFits(Exception):  # noqa: N818 (it is no error)
    """No value so far is what the line needs."""


class _Writer:
    """The lines so far, and the values that their names have."""

    def __init__(self, draw: st.DrawFn, values: dict[str, Any]) -> None:
        self.draw = draw
        self.values = dict(values)
        self.lines: list[str] = []

    def write(self, expression: str | None) -> None:
        """Add a line, unless there is none, NumPy refuses it, or its result is none that is computed with."""
        if expression is None:
            return
        try:
            with quiet():
                value = np.asarray(eval(expression, {"xp": eager}, dict(self.values)))
        except (ValueError, TypeError, IndexError, OverflowError):
            return
        if value.dtype in DTYPES and value.size <= LARGEST:
            name = f"v{len(self.lines)}"
            self.values[name] = value
            self.lines.append(f"{name} = {expression}")

    def name(self, wanted: Callable[[Any], bool] = lambda value: True) -> str:
        """One of the values that are as wanted, a late one rather."""
        names = [name for name, value in self.values.items() if wanted(value)]
        if not names:
            raise _NothingFits
        return self.draw(st.sampled_from(names[::-1]))

    def one_of(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def axis(self, name: str) -> int:
        ndim = self.values[name].ndim
        if not ndim:
            raise _NothingFits
        return self.draw(st.integers(-ndim, ndim - 1))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))


def _is_float(value: Any) -> bool:
    return bool(value.dtype.kind == "f")


def _is_integer(value: Any) -> bool:
    return bool(value.dtype.kind in "iu")


def _has_dims(value: Any) -> bool:
    return bool(value.ndim)


# One function a kind of line: each gives the expression, or None.

UNARY: Final = (
    "sin", "cos", "tan", "tanh", "sinh", "cosh", "exp", "expm1", "exp2", "log", "log1p", "log2", "log10", "sqrt", "cbrt",
    "asin", "acos", "atan", "asinh", "acosh", "atanh", "erf", "erfc",
)  # fmt: skip
EXACT: Final = (
    "abs", "negative", "positive", "square", "sign", "signbit", "isnan", "isinf", "isfinite", "floor", "ceil", "trunc", "round",
    "logical_not", "bitwise_invert",
)  # fmt: skip
BINARY: Final = (
    "add", "subtract", "multiply", "divide", "copysign", "equal", "not_equal", "less", "less_equal",
    "greater", "greater_equal", "logical_and", "logical_or", "logical_xor",
)  # fmt: skip
INTEGERS: Final = ("floor_divide", "remainder", "bitwise_and", "bitwise_or", "bitwise_xor")
SHIFTS: Final = ("bitwise_left_shift", "bitwise_right_shift")
OPERATORS: Final = ("+", "-", "*", "/", "<", ">=", "==", "!=")
ZERO: Final = " + 0"
"""Makes 0.0 of -0.0, behind what may give either of them."""
NUMBERS: Final = ("0", "1", "2", "-1", "3", "0.5", "-0.0", "1.0", "1e-3", "True", "float('inf')", "300")


def _maths(w: _Writer) -> str:
    return f"xp.{w.one_of(*UNARY, 'reciprocal')}({w.name(_is_float)})"


def _exact(w: _Writer) -> str:
    return f"xp.{w.one_of(*EXACT)}({w.name()})"


def _binary(w: _Writer) -> str:
    return f"xp.{w.one_of(*BINARY)}({w.name()}, {w.name()})"


def _extreme(w: _Writer) -> str:
    return f"xp.{w.one_of('maximum', 'minimum')}({w.name()}, {w.name()}){ZERO}"


def _integers(w: _Writer) -> str:
    return f"xp.{w.one_of(*INTEGERS)}({w.name(_is_integer)}, {w.name(_is_integer)})"


def _shift(w: _Writer) -> str:
    return f"xp.{w.one_of(*SHIFTS)}({w.name(_is_integer)}, {w.name(_is_integer)})"


def _division(w: _Writer) -> str:
    return f"xp.{w.one_of('floor_divide', 'remainder')}({w.name()}, {w.name()})"


def _two_floats(w: _Writer) -> str:
    function = w.one_of("atan2", "hypot", "nextafter", "logaddexp", "pow")
    return f"xp.{function}({w.name(_is_float)}, {w.name(_is_float)})"


def _operator(w: _Writer) -> str:
    return f"{w.name()} {w.one_of(*OPERATORS)} {w.name()}"


def _with_number(w: _Writer) -> str:
    pair = [w.name(), w.one_of(*NUMBERS)]
    if w.one_of(False, True):
        pair.reverse()
    return f"{pair[0]} {w.one_of(*OPERATORS)} {pair[1]}"


def _power(w: _Writer) -> str:
    name = w.name(
        lambda value: value.dtype.kind != "b"
    )  # NumPy squares an array of bools to another dtype than one bool
    powers = ("2", "1", "0.5", "3", "0")
    return f"{name} ** {w.one_of(*powers, '-1') if _is_float(w.values[name]) else w.one_of(*powers)}"


def _where(w: _Writer) -> str:
    return f"xp.where({w.name()}, {w.one_of(w.name(), '0', '1.5')}, {w.name()})"


def _clip(w: _Writer) -> str:
    return f"xp.clip({w.name(_is_float)}, {w.one_of('None', '0', '-1.5')}, {w.one_of('2', '3.5', w.name())}){ZERO}"


def _astype(w: _Writer) -> str | None:
    name = w.name()
    dtype = w.one_of(*NAMES)
    value, kind = w.values[name], np.dtype(dtype)
    if value.dtype.kind == "f" and kind.kind in "iu":
        # What does not fit becomes anything.
        limits = np.iinfo(kind)
        if (
            not np.all(np.isfinite(value))
            or np.any(value <= float(limits.min) - 1)
            or np.any(value >= float(limits.max))
        ):
            return None
    return f"xp.astype({name}, xp.{dtype})"


def _reduction(w: _Writer) -> str:
    name = w.name()
    function = w.one_of("sum", "prod", "min", "max", "any", "all", "mean", "var", "std", "count_nonzero")
    axis: Any = None
    if w.values[name].ndim:
        axis = w.one_of(None, w.axis(name), w.axis(name))
    if w.values[name].ndim > 1 and w.one_of(False, True):
        axis = (0, w.number(1, w.values[name].ndim - 1))
    options = w.one_of("", ", keepdims=True")
    if function in ("sum", "prod") and w.one_of(False, True):
        options += f", dtype=xp.{w.one_of('float32', 'float64', 'int64', 'int32', 'uint8')}"
        if _is_float(w.values[name]) and "int" in options:
            options = ""
    return f"xp.{function}({name}, axis={axis}{options}){ZERO if function in ('sum', 'min', 'max') else ''}"


def _position(w: _Writer) -> str:
    name = w.name(_has_dims)
    axis = w.one_of(None, w.axis(name))
    return f"xp.{w.one_of('argmax', 'argmin')}({name}, axis={axis}{w.one_of('', ', keepdims=True')})"


def _running(w: _Writer) -> str:
    name = w.name(_has_dims)
    options = w.one_of("", ", include_initial=True")
    return f"xp.{w.one_of('cumulative_sum', 'cumulative_prod')}({name}, axis={w.axis(name)}{options}){ZERO}"


def _shape(w: _Writer) -> str:
    name = w.name(_has_dims)
    value = w.values[name]
    axes = w.draw(st.permutations(range(value.ndim)))
    return str(
        w.one_of(
            f"xp.reshape({name}, (-1,))" if value.size else f"xp.reshape({name}, (0,))",
            f"xp.reshape({name}, {value.shape[::-1]})",
            f"xp.permute_dims({name}, {tuple(axes)})",
            f"xp.expand_dims({name}, axis={w.axis(name)})",
            f"xp.flip({name}, axis={w.one_of(None, w.axis(name))})",
            f"xp.roll({name}, {w.number(-3, 3)}, axis={w.one_of(None, w.axis(name))})",
            f"xp.squeeze({name}, axis={w.axis(name)})",
            f"xp.broadcast_to({name}, {(2, *value.shape)})",
            f"xp.repeat({name}, {w.number(0, 3)}, axis={w.axis(name)})",
            f"xp.tile({name}, {(w.number(1, 2), w.number(1, 2))})",
            f"xp.diff({name}, axis={w.axis(name)})",
            f"xp.matrix_transpose({name})",
        )
    )


def _index(w: _Writer) -> str:
    name = w.name(_has_dims)
    length = w.values[name].shape[0]
    parts = ["::2", "::-1", "1:", ":-1", "None", "...", "0", "-1", "1:1", "[0, -1]", "[[0], [1]]", f"{length // 2}:"]
    index = w.draw(st.lists(st.sampled_from(parts), min_size=1, max_size=3))
    return f"{name}[{', '.join(index)}]"


def _gather(w: _Writer) -> str:
    name = w.name(_has_dims)
    axis = w.axis(name)
    length = w.values[name].shape[axis] if w.values[name].ndim else 1
    if w.one_of(False, True):
        return f"xp.take({name}, [0, {length - 1}, 0], axis={axis})"
    index = w.name(_is_integer)
    # Brought into the range: what lies outside is an error for NumPy.
    return f"xp.take({name}, xp.remainder({index}, xp.asarray({max(length, 1)}, dtype={index}.dtype)), axis={axis})"


def _take_along(w: _Writer) -> str:
    name = w.name(_has_dims)
    axis = w.axis(name)
    return f"xp.take_along_axis({name}, xp.argmax({name}, axis={axis}, keepdims=True), axis={axis})"


def _scatter(w: _Writer) -> str:
    name = w.name(lambda value: value.ndim and value.dtype.kind != "b")
    axis = w.axis(name)
    return f"xp.scatter_add({name}, [0, 0, -1], xp.take({name}, [-1, 0, 0], axis={axis}), axis={axis})"


def _join(w: _Writer) -> str:
    name = w.name(_has_dims)
    return str(
        w.one_of(
            f"xp.concat([{name}, {name}], axis={w.axis(name)})",
            f"xp.concat([{name}, {w.name()}, {name}], axis=None)",
            f"xp.stack([{name}, {name} == {name}], axis={w.axis(name)})",
        )
    )


def _matmul(w: _Writer) -> str:
    name = w.name(lambda value: value.ndim and value.size)
    other = w.one_of(w.name(_has_dims), f"xp.matrix_transpose({name})", name)
    return f"xp.{w.one_of('matmul', 'matmul', 'vecdot')}({name}, {other})"


def _make(w: _Writer) -> str:
    name, square = w.name(), w.name(lambda value: value.ndim >= 2)
    return str(
        w.one_of(
            f"xp.zeros_like({name})",
            f"xp.full_like({name}, 3)",
            f"xp.arange({w.number(0, 5)}, {w.number(2, 9)}, {w.one_of('1', '2', '0.5')})",
            f"xp.linspace(0, {w.number(1, 3)}, {w.number(1, 5)})",
            f"xp.eye({w.number(1, 4)}, {w.number(1, 4)}, k={w.number(-1, 1)})",
            f"xp.tril({square})",
            f"xp.triu({square}, k=1)",
            "xp.ones((3,), dtype=xp.float32)",
        )
    )


LINES: Final[dict[str, Callable[[_Writer], str | None]]] = {
    "maths": _maths,
    "exact": _exact,
    "binary": _binary,
    "extreme": _extreme,
    "integers": _integers,
    "shift": _shift,
    "division": _division,
    "two floats": _two_floats,
    "operator": _operator,
    "number": _with_number,
    "power": _power,
    "where": _where,
    "clip": _clip,
    "astype": _astype,
    "reduction": _reduction,
    "position": _position,
    "running": _running,
    "shape": _shape,
    "index": _index,
    "gather": _gather,
    "take along": _take_along,
    "scatter": _scatter,
    "join": _join,
    "matmul": _matmul,
    "make": _make,
}
"""What a line can be."""
