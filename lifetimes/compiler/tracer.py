"""`Tracer`: what stands for an array while a function is traced; and `Trace`, the graph that grows meanwhile.

A tracer knows dtype and shape but no content.  Whatever needs the content (`if`, `int()`, NumPy's own code) raises a
`TraceError` that says what to use instead.

The functions over tracers live in `lifetimes.compiler.functions`, above this module; a trace is given them as its
``namespace``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn

import numpy as np

from lifetimes.compiler.ir import Builder, Node, Shape
from lifetimes.compiler.promotion import check_dtype, default_dtype, is_weak_scalar
from lifetimes.compiler.spec import Spec, describe
from lifetimes.errors import TraceError

__all__ = ["Trace", "Tracer", "current_trace"]

_active: ContextVar[tuple[Trace, ...]] = ContextVar("lifetimes.traces", default=())
"""The traces that this thread (or task) is in, outermost first."""


def current_trace() -> Trace:
    """The innermost trace that is running.  Errors: `TraceError` outside of one."""
    running = _active.get()
    if not running:
        raise TraceError("this works on traced values only: call it inside a function under lifetimes.jit")
    return running[-1]


class Trace:
    """One function in the making: the builder, and the arrays that the function uses without having been given them.

    ``captured`` holds those, in the order of their parameters, which follow those of the arguments.
    """

    __slots__ = ("_by_id", "_device", "builder", "captured", "namespace", "params")

    def __init__(self, namespace: Any) -> None:
        self.namespace = namespace
        self.builder = Builder()
        self.params: list[Tracer] = []
        self.captured: list[Any] = []
        self._by_id: dict[int, Tracer] = {}  # of captured arrays, which `captured` keeps alive
        self._device: tuple[Any, str] | None = None

    @property
    def device(self) -> Any:
        """The device of the arrays so far; None while there is none."""
        return None if self._device is None else self._device[0]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Makes it the current trace for the block."""
        token = _active.set((*_active.get(), self))
        try:
            yield
        finally:
            _active.reset(token)

    def parameter(self, value: Any, what: str) -> Tracer:
        """The tracer of the next argument.  Errors: `TraceError` for what is no array, and for a second device."""
        described = describe(value, what)
        self._same_device(value, what)
        node = self.builder.node("param", (), described.dtype, described.shape, index=len(self.params))
        tracer = Tracer(self, node, described.weak)
        self.params.append(tracer)
        return tracer

    def lift(self, value: Any) -> Tracer:
        """The tracer of any value: of a Python number a weak constant, of an array from outside a captured parameter.

        Errors: `TraceError` for what is no array, for one of another device, and for a tracer of a trace that is over.
        """
        if isinstance(value, Tracer):
            return value if value.trace is self else self._from_outside(value)
        if is_weak_scalar(value):
            return Tracer(self, self.constant(value, default_dtype(value)), weak=True)
        if isinstance(value, np.generic):
            return Tracer(self, self.constant(value, check_dtype(value.dtype, "a constant")))
        if isinstance(value, complex):
            raise TraceError(f"{value!r} is a complex number, which is not computed with; use two arrays of floats")
        if isinstance(value, (list, tuple)):
            value = np.asarray(value)
        return self._capture(value)

    def constant(self, value: Any, dtype: np.dtype[Any]) -> Node:
        """A number as a node of shape ().  Errors: `OverflowError` for an integer that does not fit."""
        if dtype.kind in "iu" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            raise OverflowError(f"{value} is out of the bounds of {dtype}")
        with np.errstate(all="ignore"):
            scalar = dtype.type(value)
        return self.builder.node("const", (), dtype, (), value=scalar)

    def _capture(self, value: Any) -> Tracer:
        found = self._by_id.get(id(value))
        if found is None:
            if isinstance(value, Spec) or not hasattr(value, "shape"):
                raise TraceError(f"a {type(value).__name__} is no array and no number: {value!r}")
            found = self.parameter(value, "an array that the function uses")
            self.captured.append(value)
            self._by_id[id(value)] = found
        return found

    def _from_outside(self, tracer: Tracer) -> Tracer:
        if tracer.trace not in _active.get():
            raise TraceError(
                f"{tracer!r} belongs to a trace that is over: it was kept in a global, an attribute or a default; "
                f"return it from the traced function and pass it on as an array"
            )
        return self._capture(tracer)

    def _same_device(self, value: Any, what: str) -> None:
        if isinstance(value, (np.ndarray, np.generic, Spec)):
            return
        device = getattr(value, "device", None)
        if device is None:
            return
        if self._device is None:
            self._device = (device, what)
        elif self._device[0] is not device:
            first, name = self._device
            raise TraceError(f"{name} is on {first!r} and {what} on {device!r}; copy one of them with to_device()")


def _binary(op: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """An operator and its reflection, of the namespace's operation."""

    def operator(self: Tracer, other: Any) -> Any:
        return self.trace.namespace.operate(op, self, other)

    def reflected(self: Tracer, other: Any) -> Any:
        return self.trace.namespace.operate(op, other, self)

    return operator, reflected


def _unary(op: str) -> Callable[[Any], Any]:
    return lambda self: self.trace.namespace.operate(op, self)


def _method(name: str) -> Callable[..., Any]:
    def method(self: Tracer, *args: Any, **options: Any) -> Any:
        return getattr(self.trace.namespace, name)(self, *args, **options)

    method.__name__ = name
    method.__doc__ = f"The function `{name}` of the namespace, of this array."
    return method


class Tracer:
    """Stands for an array: dtype and shape, no content.  Operators and methods are those of the array API standard.

    ``weak`` says that it is a Python number or was computed by Python's operators from nothing else: it takes the dtype
    of the first array that it meets.
    """

    __slots__ = ("node", "trace", "weak")

    def __init__(self, trace: Trace, node: Node, weak: bool = False) -> None:
        self.trace = trace
        self.node = node
        self.weak = weak

    # What it is.

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype, as NumPy's."""
        return self.node.dtype

    @property
    def shape(self) -> Shape:
        """The lengths of its dimensions."""
        return self.node.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.node.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.node.size

    @property
    def device(self) -> Any:
        """The device of the arguments, None where they have none."""
        return self.trace.device

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return self.trace.namespace

    def __len__(self) -> int:
        if not self.node.shape:
            raise TypeError("an array of no dimensions has no length")
        return self.node.shape[0]

    def __copy__(self) -> Tracer:
        return self  # nothing changes it

    def __deepcopy__(self, memo: Any) -> Tracer:
        return self

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__") or name in Tracer.__slots__:  # what Python asks for by itself
            raise AttributeError(name)
        raise AttributeError(
            f"{self!r} has no attribute {name!r}: a traced array has the operators and methods of the array API standard, "
            f"and its functions are in x.__array_namespace__()"
        )

    def __repr__(self) -> str:
        return f"<traced {self.node.dtype}{list(self.node.shape)}{' (weak)' if self.weak else ''}>"

    # What needs the content.

    def __bool__(self) -> NoReturn:
        raise TraceError(
            f"the truth of {self!r} is not known while tracing: for a choice between values use "
            f"where(condition, a, b); name arguments that are settings in static=(...)"
        )

    def __int__(self) -> NoReturn:
        self._content("int()", "use astype('int64'), or name the argument in static=(...)")

    def __float__(self) -> NoReturn:
        self._content("float()", "use astype('float64'), or name the argument in static=(...)")

    def __complex__(self) -> NoReturn:
        self._content("complex()", "complex numbers are not computed with")

    def __index__(self) -> NoReturn:
        self._content("range(), a shape or an index of a list", "name the argument in static=(...), or use take()")

    def __iter__(self) -> NoReturn:
        self._content("iteration", "use x[0], x[1], ... or unstack(x) for few rows, reductions along an axis for many")

    def __contains__(self, value: Any) -> NoReturn:
        self._content("in", "use any(x == value) where an array of one bool will do")

    def __format__(self, form: str) -> str:
        if form:
            self._content(f"the format {form!r}", "show it without a format, or return it and show it outside")
        return repr(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        self._content("a NumPy function", "use the one of x.__array_namespace__()")

    def item(self) -> NoReturn:
        """There is no content.  Errors: `TraceError`, always."""
        self._content("item()", "keep it an array of no dimensions")

    def tolist(self) -> NoReturn:
        """There is no content.  Errors: `TraceError`, always."""
        self._content("tolist()", "return the array and convert it outside")

    def numpy(self) -> NoReturn:
        """There is no content.  Errors: `TraceError`, always."""
        self._content("numpy()", "return the array and convert it outside")

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise TraceError(
            f"{self!r} cannot be changed: make a new one with where(), concat() or scatter_add() and use that from here on"
        )

    def _content(self, who: str, instead: str) -> NoReturn:
        raise TraceError(f"{who} needs the content of {self!r}, which is not known while tracing: {instead}")

    # NumPy's functions come here when they are given a tracer.

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            which = f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
            raise TraceError(
                f"{which} with {', '.join(options) or 'this method'} cannot be traced: use the array API's functions"
            )
        return self.trace.namespace.numpy_call(ufunc, inputs, {})

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return self.trace.namespace.numpy_call(function, args, options)

    def __getitem__(self, index: Any) -> Any:
        return self.trace.namespace.getitem(self, index)

    @property
    def T(self) -> Any:  # noqa: N802 (the name that everybody knows)
        """The dimensions in reverse order."""
        return self.trace.namespace.permute_dims(self, tuple(reversed(range(self.ndim))))

    @property
    def mT(self) -> Any:  # noqa: N802 (the standard's name)
        """The last two dimensions exchanged."""
        return self.trace.namespace.matrix_transpose(self)

    def reshape(self, *shape: Any) -> Any:
        """The elements in C order in another shape, one length of which may be -1."""
        return self.trace.namespace.reshape(self, _listed(shape))

    def transpose(self, *axes: Any) -> Any:
        """Permuted dimensions; reversed without arguments."""
        return self.trace.namespace.permute_dims(self, _listed(axes)) if axes else self.T

    def __divmod__(self, other: Any) -> Any:
        return tuple([self.trace.namespace.operate(op, self, other) for op in ("floor_divide", "remainder")])

    def __rdivmod__(self, other: Any) -> Any:
        return tuple([self.trace.namespace.operate(op, other, self) for op in ("floor_divide", "remainder")])

    # Operators, and the functions of the namespace that are methods too.

    __add__, __radd__ = _binary("add")
    __sub__, __rsub__ = _binary("subtract")
    __mul__, __rmul__ = _binary("multiply")
    __truediv__, __rtruediv__ = _binary("divide")
    __floordiv__, __rfloordiv__ = _binary("floor_divide")
    __mod__, __rmod__ = _binary("remainder")
    __pow__, __rpow__ = _binary("pow")
    __matmul__, __rmatmul__ = _binary("matmul")
    __and__, __rand__ = _binary("bitwise_and")
    __or__, __ror__ = _binary("bitwise_or")
    __xor__, __rxor__ = _binary("bitwise_xor")
    __lshift__, __rlshift__ = _binary("shift_left")
    __rshift__, __rrshift__ = _binary("shift_right")
    __lt__, __gt__ = _binary("less")[0], _binary("greater")[0]
    __le__, __ge__ = _binary("less_equal")[0], _binary("greater_equal")[0]
    __eq__, __ne__ = _binary("equal")[0], _binary("not_equal")[0]
    __hash__ = None  # type: ignore[assignment]  # `==` compares elements
    __neg__, __pos__ = _unary("negative"), _unary("positive")
    __abs__, __invert__ = _unary("abs"), _unary("bitwise_invert")

    sum, prod, min, max = _method("sum"), _method("prod"), _method("min"), _method("max")
    any, all, argmin, argmax = _method("any"), _method("all"), _method("argmin"), _method("argmax")
    mean, var, std = _method("mean"), _method("var"), _method("std")
    astype, squeeze, take = _method("astype"), _method("squeeze"), _method("take")
    clip, round, broadcast_to = _method("clip"), _method("round"), _method("broadcast_to")
    cumsum, cumprod, dot = _method("cumsum"), _method("cumprod"), _method("dot")
    ravel, swapaxes = _method("ravel"), _method("swapaxes")


def _listed(given: tuple[Any, ...]) -> Any:
    return given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
