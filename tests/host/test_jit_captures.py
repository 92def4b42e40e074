"""What a compiled function uses without having been given it: globals, closures, attributes, arrays; read at each call."""

from __future__ import annotations

import functools
import gc
import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import lifetimes
from lifetimes.compiler.captures import Captures
from lifetimes.errors import TraceError


@pytest.fixture
def device() -> Iterator[lifetimes.Device]:
    with lifetimes.open("host", memory_limit="64MiB") as opened:
        yield opened


def first(array: lifetimes.Array) -> Any:
    return array.numpy().ravel()[0]


scale: Any = 1
settings_of = SimpleNamespace(offset=0, deep=SimpleNamespace(er=0))


def test_globals_closures_and_attributes_are_read_anew(device: lifetimes.Device) -> None:
    """BUG-109 (numba/numba#938): the value is part of the key, so a change is seen at the next call."""
    global scale
    x = device.asarray(np.ones(2))
    closed = 0

    def helper(x: Any) -> Any:
        return x * scale

    @lifetimes.jit
    def function(x: Any) -> Any:
        return helper(x) + closed + settings_of.offset + settings_of.deep.er

    assert first(function(x)) == 1
    for value in (0, 1, 2.5, 3, True):
        scale = value
        assert first(function(x)) == value
        assert first(function(x)) == value
    scale = 1
    for value in range(5):
        closed = value
        assert first(function(x)) == 1 + value
    closed = 0
    settings_of.offset = 10
    assert first(function(x)) == 11
    settings_of.deep.er = 100
    assert first(function(x)) == 111
    settings_of.offset = settings_of.deep.er = 0
    assert function.stats().layouts >= 10


def test_attributes_of_self_are_read_anew(device: lifetimes.Device) -> None:
    """BUG-109 (numba/numba#938)."""

    class Model:
        def __init__(self, weight: float) -> None:
            self.weight = weight

        @lifetimes.jit
        def apply(self, x: Any) -> Any:
            return x * self.weight

    x = device.asarray(np.ones(2))
    one, other = Model(2.0), Model(3.0)
    assert first(one.apply(x)) == 2.0
    assert first(other.apply(x)) == 3.0
    one.weight = 5.0
    assert first(one.apply(x)) == 5.0
    assert first(other.apply(x)) == 3.0


def test_whatever_is_called_like_a_function_is_looked_into(device: lifetimes.Device) -> None:
    """BUG-109 (numba/numba#938): partial functions, callable objects, decorated functions."""
    factor = 2.0

    def scaled(x: Any, more: float) -> Any:
        return x * factor + more

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any) -> Any:
            return function(*args) * offset

        return call

    class Callee:
        def __init__(self) -> None:
            self.weight = 2.0

        def __call__(self, x: Any) -> Any:
            return x * self.weight

    offset = 10.0
    x = device.asarray(np.ones(2))
    part = lifetimes.jit(functools.partial(scaled, more=1.0))
    wrapped = lifetimes.jit(decorated(scaled))
    callee = Callee()
    called = lifetimes.jit(callee)
    inner = lifetimes.jit(scaled)
    outer = lifetimes.jit(lambda x: inner(x, 1.0))
    assert [first(f) for f in (part(x), wrapped(x, 1.0), called(x), outer(x))] == [3, 30, 2, 3]
    factor, offset, callee.weight = 4.0, 100.0, 5.0
    assert [first(f) for f in (part(x), wrapped(x, 1.0), called(x), outer(x))] == [5, 500, 5, 5]


def test_a_name_may_come_to_mean_another_function_or_dtype(device: lifetimes.Device) -> None:
    """BUG-109 (numba/numba#938): NumPy's functions and dtypes are values as well, and another helper uses other names."""
    one, other = 1.0, 2.0
    function: Callable[..., Any] = np.negative
    dtype: Any = np.float32

    def first_helper(x: Any) -> Any:
        return x + one

    def second_helper(x: Any) -> Any:
        return x + other

    helper = first_helper
    jitted = lifetimes.jit(lambda x: function(helper(x)).astype(dtype))
    x = device.asarray(np.ones(2))
    assert first(jitted(x)) == -2
    helper = second_helper
    assert first(jitted(x)) == -3
    other = 10.0
    assert first(jitted(x)) == -11
    function = np.square
    assert first(jitted(x)) == 121
    dtype = np.float64
    assert jitted(x).dtype == np.float64
    helper, function, dtype = first_helper, np.negative, np.float32
    before = jitted.stats().layouts
    assert first(jitted(x)) == -2
    assert jitted.stats().layouts == before


def test_a_name_that_was_not_there_is_read_once_it_is(device: lifetimes.Device) -> None:
    """BUG-109 (numba/numba#938)."""
    where = SimpleNamespace()
    jitted = lifetimes.jit(lambda x: x + where.later)
    x = device.asarray(np.ones(2))
    with pytest.raises(AttributeError, match="later"):
        jitted(x)
    for value in (2.0, 3.0):
        where.later = value
        assert first(jitted(x)) == 1 + value


def test_captured_arrays_are_never_baked(device: lifetimes.Device) -> None:
    """BUG-109 (numba/numba#938): an array that changes in place, or is replaced by another, is read as it is."""
    weights = device.asarray(np.full(3, 2.0))
    host = np.full(3, 10.0)

    @lifetimes.jit
    def function(x: Any) -> Any:
        return x * weights + host

    x = device.asarray(np.ones(3))
    assert first(function(x)) == 12
    weights.write(np.full(3, 5.0))
    assert first(function(x)) == 15
    host[:] = 20.0
    assert first(function(x)) == 25
    weights = device.asarray(np.full(3, 7.0))
    assert first(function(x)) == 27
    weights = device.asarray(np.full((1,), 8.0))  # another layout
    assert first(function(x)) == 28
    assert function.stats().layouts == 3  # the content of `host` counts as well


def test_what_is_made_of_captured_arrays_is_never_baked(device: lifetimes.Device) -> None:
    """BUG-109 (numba/numba#938): views of an array that is replaced, and what NumPy computes while tracing."""
    weights = device.asarray(np.arange(3.0))
    host = np.arange(3.0)
    viewed = lifetimes.jit(lambda x: x + weights[-1] + weights[::-1])
    computed = lifetimes.jit(lambda x: 2 * host + x + host[-1] + host[::-1] + host.sum())
    x = device.asarray(np.zeros(3))
    for start in (0.0, 10.0):
        weights.write(np.arange(3.0) + start)
        host[:] = np.arange(3.0) + start
        for _ in range(2):
            now = weights.numpy()
            np.testing.assert_array_equal(viewed(x).numpy(), now[-1] + now[::-1])
            np.testing.assert_array_equal(computed(x).numpy(), 2 * host + host[-1] + host[::-1] + host.sum())
            weights, host = device.asarray(now + 50), host + 50
    assert viewed.stats().layouts == 1


def test_views_of_parts_are_views_of_those_parts(device: lifetimes.Device) -> None:
    """BUG-109 (numba/numba#938): two captures that share a storage, of which one is replaced."""
    both = device.asarray(np.arange(8.0))
    one, other = both[:4], both[4:]
    function = lifetimes.jit(lambda x: x + one[::2] + other[1::2])
    x = device.asarray(np.zeros(2))
    assert function(x).numpy().tolist() == [5, 9]
    other = device.asarray(np.arange(100.0, 104.0))
    assert function(x).numpy().tolist() == [101, 105]
    one = device.asarray(np.arange(10.0))[::-1][2:6]  # 7, 6, 5, 4: another layout
    assert function(x).numpy().tolist() == [108, 108]


def test_what_was_made_of_a_numpy_array_does_not_change_with_it(device: lifetimes.Device) -> None:
    """BUG-109 (numba/numba#938): two buffers exchanged, the second as the first was when it was traced."""
    front, back = np.zeros(2), np.zeros(2)
    function = lifetimes.jit(lambda x: x + front[::-1])
    x = device.asarray(np.zeros(2))
    assert first(function(x)) == 0
    front[:] = 5
    front, back = back, front
    assert first(function(x)) == 0
    front, back = back, front
    assert first(function(x)) == 5


def test_numpy_does_not_compute_with_device_arrays_while_tracing(device: lifetimes.Device) -> None:
    """BUG-109 (numba/numba#938): it would be a constant that stays when the array changes."""
    weights = device.asarray(np.full(3, 2.0))
    x = device.asarray(np.ones(3))
    for function in (lambda x: x + np.sin(weights), lambda x: x + [weights, weights], lambda x: np.asarray(weights)):
        with pytest.raises(TraceError, match="while the function is traced: use the functions of"):
            lifetimes.jit(function)(x)
    assert first(lifetimes.jit(lambda x: x + x.__array_namespace__().square(weights))(x)) == 5
    assert first(lifetimes.jit(lambda x: np.maximum(weights, x))(x)) == 2
    assert np.sin(weights).shape == (3,)


def test_a_compiled_function_inside_another_is_given_captured_arrays(device: lifetimes.Device) -> None:
    """BUG-109 (numba/numba#938): a part of a traced function meets the array as a traced one."""
    weights = device.asarray(np.full(3, 2.0))
    part = lifetimes.jit(lambda of, n: of["w"] * of["w"] + n, static="n")
    function = lifetimes.jit(lambda x: x + part({"w": weights}, n=1))
    x = device.asarray(np.ones(3))
    assert first(function(x)) == 6
    weights = device.asarray(np.full(3, 3.0))
    assert first(function(x)) == 11
    assert function.stats().layouts == 1


def test_captured_arrays_in_containers_say_which_device(device: lifetimes.Device) -> None:
    """Where no argument is on one; and an argument of another device is refused."""
    kept = [device.asarray(np.arange(3.0))]
    function = lifetimes.jit(lambda x: x + kept[0])
    with lifetimes.open("host", memory_limit="1MiB") as other:
        for x in (2.0, np.full(3, 2.0)):
            for _ in range(2):
                result = function(x)
                assert result.device is device
                assert result.numpy().tolist() == [2, 3, 4]
        function(device.asarray(np.ones(3)))
        for _ in range(2):
            with pytest.raises(TraceError, match="copy one of them with to_device"):
                function(other.asarray(np.ones(3)))


def test_two_names_of_one_array_may_part(device: lifetimes.Device) -> None:
    """BUG-109 (numba/numba#938): the same layouts as before, but what was one array is two."""
    one = two = device.asarray(np.full(3, 2.0))
    function = lifetimes.jit(lambda x: x * one + two)
    x = device.asarray(np.ones(3))
    assert first(function(x)) == 4
    two = device.asarray(np.full(3, 5.0))
    assert first(function(x)) == 7


def test_constants_of_modules_cost_no_key() -> None:
    assert not Captures(lambda x: np.sin(x) * np.pi + math.e).there
    assert Captures(lambda x: x * settings_of.offset).values() == [0]


def test_what_a_function_forgets_of_captured_arrays(device: lifetimes.Device) -> None:
    """The cache keeps no array alive that a closure has let go."""
    weights = device.asarray(np.full(3, 2.0))
    function = lifetimes.jit(lambda x: x * weights)
    function(device.asarray(np.ones(3)))
    gone = weights.weak()
    weights = device.asarray(np.full(3, 3.0))
    gc.collect()
    assert gone() is None
