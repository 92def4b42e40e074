"""From a Python function to a graph: structures of arguments and results, what is captured, and what is refused."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

from lifetimes.compiler import functions as xp
from lifetimes.compiler.spec import Spec, describe, spec
from lifetimes.compiler.trace import trace
from lifetimes.compiler.tracer import Tracer, current_trace
from lifetimes.compiler.tree import flatten
from lifetimes.errors import TraceError
from tests.tracing import as_numpy_does, graph, interpreted, results

X = np.arange(6.0).reshape(2, 3)
Pair = namedtuple("Pair", "left right")


class Placed:
    """An array of another library, on a device."""

    def __init__(self, device: object) -> None:
        self.device = device
        self.shape = (2,)
        self.dtype = np.dtype("float64")


# Structures.


def test_arguments_and_results_may_be_nested() -> None:
    def function(pair: Any, *, scale: Any, more: Any) -> Any:
        return {"sum": pair.left + pair.right, "all": [pair, (scale * more["a"],)]}

    traced = trace(function, (Pair(X, 2.0),), {"scale": 3, "more": {"a": X, "b": None}})
    out = traced.output.unflatten(results(traced, [X, 2.0, 3, X]))
    assert list(out) == ["sum", "all"]
    assert isinstance(out["all"][0], Pair)
    np.testing.assert_array_equal(out["sum"], X + 2)
    np.testing.assert_array_equal(out["all"][1][0], X * 3)


@pytest.mark.parametrize("value", [1, (), [], {}, None, (1, [2, {"a": (3,)}], None), {"b": 1, "a": 2}, Pair(1, (2,))])
def test_a_structure_comes_back_as_it_was(value: Any) -> None:
    leaves, tree = flatten(value)
    again = tree.unflatten(leaves)
    assert again == value
    assert type(again) is type(value)
    assert flatten(value)[1] == tree
    assert hash(flatten(value)[1]) == hash(tree)
    assert len(tree.paths("x")) == tree.count == len(leaves)


def test_structures_that_differ_are_different_keys() -> None:
    values = [
        1,
        (1,),
        [1],
        {"a": 1},
        {"b": 1},
        (1, None),
        (None, 1),
        ((1,),),
        Pair(1, 2),
        (1, 2),
        {"a": 1, "b": 2},
        {"b": 1, "a": 2},
    ]
    assert len({flatten(value)[1] for value in values}) == len(values)


def test_a_structure_wants_as_many_leaves_as_it_has() -> None:
    _, tree = flatten((1, 2))
    with pytest.raises(ValueError, match="3 leaves for a structure of 2"):
        tree.unflatten([1, 2, 3])


def test_specs_and_numbers_stand_for_arguments() -> None:
    params = graph(lambda x, n, f, b: x * n * f * b, spec((2, 3), "int8"), 2, 0.5, True).params
    assert [str(each.dtype) for each in params] == ["int8", "int64", "float64", "bool"]
    assert describe(2.5) == Spec((), np.dtype("float64"), weak=True)
    assert spec(3).shape == (3,)
    for bad in (-1, (2, True), 1.5):
        with pytest.raises(TraceError, match="a length is an integer of 0 or more"):
            spec(bad)


def test_one_node_is_one_result_given_twice() -> None:
    function = graph(lambda x: (x + x, x + x, x), X)
    assert function.outs[0] is function.outs[1]
    assert function.outs[2] is function.params[0]


def test_numbers_are_results_too() -> None:
    (half, flag, whole) = interpreted(lambda x: (0.5, np.True_, 7), X)
    assert (half.dtype, flag.dtype, whole.dtype) == (np.float64, np.bool_, np.int64)
    assert (half, flag, whole) == (0.5, True, 7)


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (None, "the function returns None: a traced function returns an array"),
        ((), "the function returns an empty container"),
        ("text", "result is a str, which is no array and no number"),
        (lambda: 0, "result is a function"),
        ([X, {"a": "text"}], r"result\[1\]\['a'\] is a str"),
        (1j, "result is a complex"),
        (np.float16(1), "result is a float16.*has dtype float16"),
    ],
)
def test_a_result_that_is_no_array_is_named(result: Any, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        trace(lambda x: result, (X,))


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        (("text",), {}, "argument 0 is a str, which is neither an array nor a number"),
        ((X, [X, {"a": object()}]), {}, r"argument 1\[1\]\['a'\] is a object"),
        ((X,), {"option": "text"}, "argument option is a str.*static"),
        ((np.ones(2, "complex64"),), {}, "argument 0 has dtype complex64"),
        ((OrderedDict(a=X),), {}, "argument 0 is a OrderedDict"),
    ],
)
def test_an_argument_that_is_no_array_is_named(args: Any, kwargs: Any, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        trace(lambda *args, **kwargs: X, args, kwargs)


# Captured arrays.


def test_an_array_from_outside_is_a_parameter_and_not_baked_in() -> None:
    """A captured array that changes later is read as it is then."""
    weights = np.array([1.0, 2.0, 3.0])
    traced = trace(lambda x: x * weights + weights, (X,))
    assert [each is weights for each in traced.captured] == [True]
    assert len(traced.function.params) == 2
    weights[0] = 100.0
    np.testing.assert_array_equal(results(traced, [X])[0], X * weights + weights)


def test_numpy_scalars_are_constants_with_a_dtype_and_numbers_without() -> None:
    x = np.ones(2, np.float32)
    assert graph(lambda x: x * np.float64(2), x).outs[0].dtype == np.float64
    assert graph(lambda x: x * 2.0, x).outs[0].dtype == np.float32
    assert graph(lambda x: x * np.float64(2), x).params[1:] == ()


def test_an_array_of_no_dimensions_is_captured_too() -> None:
    zero_d = np.array(2.0)
    assert trace(lambda x: x * zero_d, (X,)).captured == (zero_d,)


def test_a_function_without_arguments_is_traced() -> None:
    (out,) = interpreted(lambda: xp.add(xp.arange(3), 1))
    assert out.tolist() == [1, 2, 3]


def test_a_trace_inside_a_trace_captures_the_outer_values() -> None:
    inner_traces = []

    def outer(x: Any) -> Any:
        y = x + 1
        inner = trace(lambda z: z * y, (spec(3),))
        inner_traces.append(inner)
        return y

    graph(outer, X)
    (inner,) = inner_traces
    assert isinstance(inner.captured[0], Tracer)
    assert [each.shape for each in inner.function.params] == [(3,), (2, 3)]


def test_a_traced_value_that_outlives_its_trace_is_refused() -> None:
    kept = []
    graph(lambda x: kept.append(x) or x, X)  # type: ignore[func-returns-value]
    with pytest.raises(TraceError, match="belongs to a trace that is over"):
        graph(lambda y: y + kept[0], X)


def test_without_a_trace_the_functions_say_so() -> None:
    with pytest.raises(TraceError, match=r"inside a function under lifetimes\.jit"):
        xp.sin(X)
    with pytest.raises(TraceError):
        current_trace()


def test_a_function_that_raises_leaves_no_trace_behind() -> None:
    with pytest.raises(ZeroDivisionError):
        trace(lambda x: 1 / 0, (X,))
    with pytest.raises(TraceError):
        current_trace()


# Devices.


def test_arrays_of_two_devices_are_refused_by_name() -> None:
    with pytest.raises(TraceError, match="argument 0 is on 'gpu' and argument 1 on 'cpu'; copy one"):
        trace(lambda x, y: x + y, (Placed("gpu"), Placed("cpu")))
    elsewhere = Placed("cpu")
    with pytest.raises(TraceError, match="argument 0 is on 'gpu' and an array that the function uses on 'cpu'"):
        trace(lambda x: x + elsewhere, (Placed("gpu"),))


def test_host_arrays_and_numbers_have_no_device() -> None:
    traced = trace(lambda x, y, z: x + y + z, (np.ones(2), Placed("gpu"), 1))
    assert traced.device == "gpu"
    assert trace(lambda x: x, (X,)).device is None


# What needs the content.


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (lambda x: 1 if x.sum() > 0 else 2, r"where\(condition, a, b\)"),
        (lambda x: (x > 0) and x, "truth of <traced bool"),
        (lambda x: not x, "truth of <traced float64"),
        (lambda x: max(x.sum(), 0), "truth of"),
        (lambda x: int(x.sum()), r"int\(\) needs the content of <traced float64\[\]>.*astype"),
        (lambda x: float(x.sum()), r"float\(\) needs the content"),
        (lambda x: complex(x.sum()), r"complex\(\) needs the content"),
        (lambda x: math.sqrt(x.sum()), r"float\(\) needs the content"),
        (lambda x: range(x.sum()), "range.*needs the content"),
        (lambda x: [1, 2][x.sum()], "an index of a list needs the content"),
        (lambda x: list(x), r"iteration needs the content.*unstack\(x\)"),
        (lambda x: 1 in x, "in needs the content"),
        (lambda x: x.item(), r"item\(\) needs the content"),
        (lambda x: x.tolist(), r"tolist\(\) needs the content"),
        (lambda x: x.numpy(), r"numpy\(\) needs the content"),
        (lambda x: np.asarray(x), "a NumPy function needs the content"),
        (lambda x: x.__setitem__(0, 1), r"cannot be changed.*where\(\)"),
        (lambda x: xp.zeros(x.sum()), "a shape .*needs the content"),
        (lambda x: x.reshape(x.sum(), 2), "a shape .*needs the content"),
        (lambda x: xp.sum(x, axis=x.sum()), "needs the content"),
        (lambda x: x[: x.sum()], "needs the content"),
        (lambda x: xp.arange(x.sum()), "arange of a traced number"),
        (lambda x: f"{x.sum():.2f}", r"the format '\.2f' needs the content"),
        (lambda x: x + 1j, "1j is a complex number, which is not computed with"),
        (lambda x: np.add.reduce(x), r"np\.add\.reduce"),
        (lambda x: np.add(x, x, out=X), r"np\.add with out cannot be traced"),
        (lambda x: xp.repeat(x, [1, 2], axis=0), "repeat takes one number"),
    ],
)
def test_what_needs_the_content_says_what_to_use(use: Any, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        trace(use, (X,))


def test_a_copy_of_a_structure_holds_the_same_values() -> None:
    def function(x: Any) -> Any:
        held = {"a": [x, x + 1]}
        again = copy.deepcopy(held)
        assert again["a"][0] is x
        assert copy.copy(x) is x
        return again

    out, more = interpreted(function, X)
    np.testing.assert_array_equal(more, out + 1)


def test_a_traced_value_is_no_key_of_a_dict() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        trace(lambda x: {x: 1}, (X,))


def test_what_is_known_while_tracing_may_be_asked_for() -> None:
    def function(x: Any) -> Any:
        assert len(x) == 2
        assert (x.shape, x.ndim, x.size, x.dtype) == ((2, 3), 2, 6, np.float64)
        assert x.__array_namespace__() is xp
        assert repr(x) == "<traced float64[2, 3]>"
        return x if x.ndim == 2 else x[0]

    graph(function, X)
    with pytest.raises(TypeError, match="no dimensions has no length"):
        graph(lambda x: len(x.sum()), X)


def test_shapes_that_do_not_broadcast_are_both_named() -> None:
    with pytest.raises(TraceError, match=r"add: shapes \(2, 3\) and \(4,\) do not broadcast"):
        trace(lambda x, y: x + y, (X, np.ones(4)))
    with pytest.raises(ValueError, match=r"select: shapes \(2,\) and \(3,\) and \(4,\)"):
        trace(lambda x: xp.where(np.ones(2), np.ones(3), np.ones(4)), (X,))


# Operators, methods, NumPy's own functions.


def operators(xp: Any, x: Any, y: Any) -> Any:
    return (
        x + y, x - y, x * y, x / y, x // y, x % y, x**2, x**0.5, x**1, x**-1, x**y, -x, +x, abs(x), x == y, x != y, x < y,
        x <= y, x > y, x >= y, 1 + x, 1 - x, 2 * x, 1 / x, 7 // x, 7 % x, 2**x, *divmod(x, y), *divmod(7, x), x @ y.T, x.T @ x,
    )  # fmt: skip


def bit_operators(xp: Any, x: Any, y: Any) -> Any:
    return (
        x & y,
        x | y,
        x ^ y,
        ~x,
        x << y,
        x >> y,
        3 & x,
        3 | x,
        3 ^ x,
        3 << y,
        30 >> y,
        x & 1,
        (x > 1) & (y > 1),
        ~(x > y),
    )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_operators_mean_what_numpy_means(dtype: str) -> None:
    x, y = (X - 2.5).astype(dtype), (X * 0.5 + 1).astype(dtype)
    as_numpy_does(operators, x, y)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64"])
def test_operators_on_bits_mean_what_numpy_means(dtype: str) -> None:
    x, y = np.array([1, 2, 100, 7], dtype), np.array([0, 1, 2, 63], dtype)
    as_numpy_does(bit_operators, x, y)


def test_methods_are_the_functions() -> None:
    as_numpy_does(
        lambda xp, x: (
            x.sum(axis=0), x.mean(), x.max(axis=1, keepdims=True), x.T, x.reshape(3, 2), x.reshape((-1,)), x.transpose(1, 0),
            x.transpose(), x.astype("int8"), x.clip(1, 3), x.std(), x.argmax(), (x > 1).any(axis=0), x.prod(), x.round(),
            x.cumsum(), x.cumprod(axis=1), x.dot(x.T), x.ravel(), x.swapaxes(0, 1),
        ),
        X,
    )  # fmt: skip
    (repeated,) = interpreted(lambda x: x[0].broadcast_to((4, 3)), X)
    np.testing.assert_array_equal(repeated, np.broadcast_to(X[0], (4, 3)))
    with pytest.raises(AttributeError, match=r"no attribute 'sort': .* functions are in x\.__array_namespace__\(\)"):
        trace(lambda x: x.sort(), (X,))
    assert graph(lambda x: x if hasattr(x, "sum") and not hasattr(x, "evict") else x[0], X).outs[0].shape == (2, 3)


def test_a_numpy_array_on_the_left_leaves_the_operator_to_the_traced_one() -> None:
    as_numpy_does(lambda xp, x: (X - x, X @ x.T, np.float64(3) / (x + 1), np.arange(3) ** x), X)
