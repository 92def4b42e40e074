"""What is compiled when, and for whom: keys, sharing, single flight, failure, captured values, constants."""

from __future__ import annotations

import functools
import gc
import math
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import lifetimes
from lifetimes.compiler import native, target
from lifetimes.compiler.cache import KernelCache, kernels
from lifetimes.compiler.captures import Captures
from lifetimes.compiler.jit import MOST
from lifetimes.compiler.kernel import Access, Nest, Phase, Store, Value
from lifetimes.errors import CompileError, TraceError


@pytest.fixture
def device() -> Iterator[lifetimes.Device]:
    with lifetimes.open("host", memory_limit="64MiB") as opened:
        yield opened


@pytest.fixture(autouse=True)
def cold() -> None:
    """Nothing is compiled yet, so that counts of compiling mean something."""
    kernels.clear()


def first(array: lifetimes.Array) -> Any:
    return array.numpy().ravel()[0]


def plus(constant: int, dtype: str = "float64") -> Nest:
    """A small kernel, a different one for each constant."""
    values = (Value("load", (), dtype, 0), Value("const", (), dtype, constant), Value("add", (0, 1), dtype))
    return Nest(0, 1, "inner", (Access(dtype, "1"), Access(dtype, "1")), values, phases=(Phase((), (Store(1, 2),)),))


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Call ``work(number)`` in so many threads at once; results or errors, in order."""
    barrier = threading.Barrier(count)
    found: list[Any] = [None] * count

    def run(number: int) -> None:
        barrier.wait()
        try:
            found[number] = work(number)
        except Exception as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


# Keys.


@pytest.mark.parametrize("cycles", [300, pytest.param(5000, marks=pytest.mark.slow)])
def test_a_function_that_dies_is_never_mistaken_for_another(device: lifetimes.Device, cycles: int) -> None:
    """BUG-046 (ponyorm/pony#675): functions made and dropped in a loop, at reused addresses, each with its own constant."""
    x = device.asarray(np.ones(3))
    before = kernels.statistics()
    for constant in range(cycles):
        function = lifetimes.jit(lambda x, constant=constant: x + (constant + 0.25))
        assert first(function(x)) == constant + 1.25
        del function
    counted = kernels.statistics().since(before)
    assert counted.compiled <= 2  # constants of floats are arguments of the kernel
    assert counted.live == 0
    assert counted.nbytes < 100_000


def test_the_same_function_made_again_is_not_compiled_again(device: lifetimes.Device) -> None:
    """BUG-094 (JuliaGPU/CUDAnative.jl#336): the code is the key, not the object; another constant is another result."""
    x = device.asarray(np.ones(3))
    before = kernels.statistics()
    for _ in range(50):
        assert first(lifetimes.jit(lambda x: x * 3.5 - 1)(x)) == 2.5
    assert kernels.statistics().since(before).compiled == 1
    names: dict[str, Any] = {}
    for constant in (2.5, 7.0):
        exec(f"def scaled(x): return x * {constant}", names)
        assert first(lifetimes.jit(names["scaled"])(x)) == constant


def test_a_reopened_device_runs_what_was_compiled_before() -> None:
    """BUG-094 (JuliaGPU/CUDAnative.jl#336): compiled code is bound to no device."""
    function = lifetimes.jit(lambda x: x + 1)
    before = kernels.statistics()
    for _ in range(3):
        with lifetimes.open("host", memory_limit="1MiB") as device:
            assert first(function(device.asarray(np.zeros(2)))) == 1
    assert kernels.statistics().since(before).compiled == 1


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
    assert function.stats().layouts == 2


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


def test_static_arguments_by_value_and_type(device: lifetimes.Device) -> None:
    function = lifetimes.jit(lambda x, n, kind="a": x * n if kind == "a" else x - n, static=("n", "kind"))
    x = device.asarray(np.ones(3, "int8"))
    for n in (1, True, 1.0, 2, 3):
        wanted = np.ones(3, "int8") * n
        got = function(x, n).numpy()
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)
    assert first(function(x, 3, "b")) == -2
    assert first(function(x, n=3, kind="b")) == -2
    repeated = lifetimes.jit(lambda x, n: sum([x] * n), static=1)
    assert first(repeated(x, 4)) == 4

    class Model:
        @lifetimes.jit(static="n")
        def apply(self, x: Any, n: int) -> Any:
            return sum([x] * n)

    assert first(Model().apply(x, 3)) == 3
    assert first(Model().apply(x, n=4)) == 4
    with pytest.raises(TypeError, match=r"static='m': the function has no such argument; it has x, n"):
        lifetimes.jit(lambda x, n: x, static="m")
    with pytest.raises(TypeError, match=r"static=2: the function has no such argument"):
        lifetimes.jit(lambda x, n: x, static=(2,))


def test_numbers_are_arguments_and_not_keys(device: lifetimes.Device) -> None:
    function = lifetimes.jit(lambda x, a: x * a)
    x = device.asarray(np.ones(3))
    for a in (1.5, 2.5, -np.inf, 3):
        assert first(function(x, a)) == a
    assert function.stats().layouts == 2  # one for floats, one for ints
    with pytest.raises(OverflowError):
        function(x, 2**70)


def test_a_function_remembers_so_many_layouts_and_no_more(device: lifetimes.Device) -> None:
    function = lifetimes.jit(lambda x: x + 1)
    for length in range(MOST + 20):
        assert function(device.asarray(np.zeros(length))).shape == (length,)
    assert function.stats().layouts == MOST


def test_sizes_share_one_kernel(device: lifetimes.Device) -> None:
    before = kernels.statistics()
    function = lifetimes.jit(lambda x, y: x * y + 1)
    for shape in ((5,), (1000,), (3, 4), (2, 3, 4), (7, 1, 9)):
        function(device.asarray(np.ones(shape)), device.asarray(np.ones(shape)))
    assert kernels.statistics().since(before).compiled == 1


# Many at once.


def test_many_first_calls_compile_once(device: lifetimes.Device) -> None:
    """BUG-038 (numba/numba#2310): 16 threads, one compile, 16 right results."""
    traced = []

    @lifetimes.jit
    def inner(x: Any) -> Any:
        return x - 1

    @lifetimes.jit
    def function(x: Any, a: float) -> Any:
        traced.append(threading.get_ident())
        return np.sin(inner(x)) * a

    x = device.asarray(np.full(100, 1.5))
    before = kernels.statistics()
    for number, result in enumerate(together(16, lambda number: first(function(x, float(number))))):
        assert result == pytest.approx(np.sin(0.5) * number)
    assert len(traced) == 1
    assert kernels.statistics().since(before).compiled == 1


def test_a_failure_goes_to_all_who_wait_and_the_next_tries_again(
    device: lifetimes.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BUG-038 (numba/numba#2310)."""
    compile_object = native.compile_object
    gate = threading.Event()
    failing = [True]

    def stubborn(text: str, chosen: Any) -> bytes:
        if failing:
            gate.wait(10)
            raise CompileError("planted")
        return compile_object(text, chosen)

    monkeypatch.setattr(native, "compile_object", stubborn)
    function = lifetimes.jit(lambda x: x * x)
    x = device.asarray(np.full(3, 3.0))
    opener = threading.Timer(0.05, gate.set)
    opener.start()
    results = together(8, lambda number: function(x))
    opener.join()
    assert all(isinstance(each, CompileError) for each in results)
    failing.clear()
    assert first(function(x)) == 9


def test_a_compile_inside_a_compile_on_one_thread_does_not_wait_for_itself(device: lifetimes.Device) -> None:
    """BUG-038 (numba/numba#2310): here a function that is traced calls itself, outside of the trace, for the same layout."""
    x = device.asarray(np.ones(3))
    inside: list[Any] = []

    def program(x: Any) -> Any:
        if not inside:
            inside.append(None)
            other = threading.Thread(target=lambda: None)
            other.start()
            other.join()
            import contextvars

            inside[0] = contextvars.Context().run(lambda: first(function(given)))
        return x + 1

    given = x
    function = lifetimes.jit(program)
    assert first(function(x)) == 2
    assert inside == [2]


def test_an_interrupt_of_the_one_who_compiles_is_not_that_of_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = KernelCache()
    compile_object = native.compile_object
    started, gate = threading.Event(), threading.Event()
    calls: list[int] = []

    def interrupted(text: str, chosen: Any) -> bytes:
        calls.append(1)
        if len(calls) == 1:
            started.set()
            gate.wait(10)
            raise KeyboardInterrupt
        return compile_object(text, chosen)

    monkeypatch.setattr(native, "compile_object", interrupted)
    nest = plus(1)
    found: list[Any] = []

    def first_one() -> None:
        try:
            cache.get(nest, target.best())
        except KeyboardInterrupt:
            found.append("interrupted")

    def second_one() -> None:
        gate_opener = threading.Timer(0.02, gate.set)
        gate_opener.start()
        found.append(cache.get(nest, target.best()).address)
        gate_opener.join()

    one = threading.Thread(target=first_one)
    one.start()
    started.wait(10)
    two = threading.Thread(target=second_one)
    two.start()
    one.join()
    two.join()
    assert "interrupted" in found
    assert len(found) == 2
    assert len(calls) == 2


# The cache of the process.


def test_compiled_objects_are_bounded_and_loaded_code_goes_with_its_users() -> None:
    cache = KernelCache(limit=8000)
    chosen = target.best()
    kept = cache.get(plus(0), chosen)
    for constant in range(1, 30):
        cache.get(plus(constant), chosen)
    counted = cache.statistics()
    assert counted.nbytes <= 8000
    assert counted.dropped > 0
    assert counted.live == 1
    assert counted.unloaded == 29
    assert cache.get(plus(0), chosen) is kept
    assert cache.statistics().since(counted).hits == 1
    cache.clear()
    assert cache.statistics().nbytes == 0
    assert cache.get(plus(0), chosen) is kept  # loaded code is shared while anybody uses it


def test_a_loaded_kernel_is_shared_and_a_kept_object_is_loaded_again() -> None:
    cache = KernelCache()
    chosen = target.best()
    one, two = cache.get(plus(3), chosen), cache.get(plus(3), chosen)
    assert one is two
    del one, two
    assert cache.statistics().live == 0
    cache.get(plus(3), chosen)
    counted = cache.statistics()
    assert (counted.asked, counted.hits, counted.compiled, counted.loaded, counted.unloaded) == (3, 1, 1, 2, 2)


def test_targets_do_not_share_code() -> None:
    cache = KernelCache()
    lanes = {name: cache.get(plus(1), target.named(name)).lanes for name in target.names()}
    assert len(set(lanes.values())) == len(lanes)


# Constants.


def test_constants_are_exact(device: lifetimes.Device) -> None:
    """BUG-062 (AccelerateHS/accelerate#136): what stands in the code has the bits that were written."""
    floats = [np.inf, -np.inf, np.nan, -0.0, 5e-324, 1e308, 0.1, 2.0]
    narrow = [float.fromhex("0x1.fffffep127"), 1e-45, 0.1]
    for dtype, constants in (("float64", floats), ("float32", [np.inf, -np.inf, np.nan, -0.0, *narrow])):
        x = np.array([0.0, 1.0, -1.0, -0.0], dtype)
        for constant in constants:
            exact = np.dtype(dtype).type(constant)
            got = lifetimes.jit(lambda x, c=exact: (x + c, x.__array_namespace__().where(x > c, x, c)))(
                device.asarray(x)
            )
            with np.errstate(all="ignore"):
                wanted = (x + exact, np.where(x > exact, x, exact))
            for each, want in zip(got, wanted, strict=True):
                have = each.numpy()
                numbers = ~np.isnan(want)
                np.testing.assert_array_equal(have, want)
                assert have[numbers].tobytes() == want[numbers].tobytes()
    for dtype, constant in (("int64", -(2**63)), ("uint64", 2**64 - 1), ("int8", -128), ("uint8", 255)):
        exact = np.dtype(dtype).type(constant)
        x = np.zeros(3, dtype)
        x[0] = exact
        got = lifetimes.jit(lambda x, c=exact: (x + c, np.where(x > c, x, c), np.where(x < c, x, c), x // c))(
            device.asarray(x)
        )
        expected = (x + exact, np.where(x > exact, x, exact), np.where(x < exact, x, exact), x // exact)
        for each, want in zip(got, expected, strict=True):
            np.testing.assert_array_equal(each.numpy(), want)


# Bad input.


def test_what_cannot_be_called_says_so(device: lifetimes.Device) -> None:
    function = lifetimes.jit(lambda x, y: x + y)
    with pytest.raises(ValueError, match=r"\(3,\).*\(4,\)"):
        function(device.asarray(np.zeros(3)), device.asarray(np.zeros(4)))
    with pytest.raises(TraceError, match="static"):
        function(device.asarray(np.zeros(3)), "text")
    with lifetimes.open("host", memory_limit="1MiB") as other:
        x, y = device.asarray(np.zeros(3)), other.asarray(np.zeros(3))
        for _ in range(2):
            with pytest.raises(TraceError, match="to_device"):
                function(x, y)
            function(x, x)
    with pytest.raises(TraceError, match="where"):
        lifetimes.jit(lambda x: x if x.sum() > 0 else -x)(device.asarray(np.zeros(3)))
    with pytest.raises(TypeError, match="jit takes a function"):
        lifetimes.jit(3)  # type: ignore[call-overload]
    with pytest.raises(TraceError, match="no content"):
        function(lifetimes.spec(3), lifetimes.spec(3))
    swapped = device.asarray(np.zeros(3).astype(">f8"))
    with pytest.raises(TraceError, match="byte order"):
        function(swapped, swapped)


def test_without_llvmlite_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    with pytest.raises(lifetimes.BackendError, match=r"pip install device-lifetimes\[jit\]"):
        lifetimes.jit(lambda x: x)


def test_a_device_that_the_processor_cannot_see_is_refused() -> None:
    with lifetimes.open("sim") as device, pytest.raises(lifetimes.BackendError, match="to_device"):
        lifetimes.jit(lambda x: x + 1)(device.asarray(np.zeros(3)))


def test_arguments_in_containers_and_results_as_they_are_packed(device: lifetimes.Device) -> None:
    function = lifetimes.jit(lambda pair, options: {"sum": pair[0] + pair[1], "rest": [options["a"] * 2, pair[0]]})
    x, y = device.asarray(np.ones(3)), np.full(3, 2.0)
    result = function((x, y), {"a": 4.0})
    assert sorted(result) == ["rest", "sum"]
    assert first(result["sum"]) == 3
    assert float(result["rest"][0].numpy()) == 8.0
    assert result["rest"][1] is not x


def test_without_arrays_it_runs_on_the_current_device() -> None:
    with lifetimes.open("host", memory_limit="1MiB") as device:
        result = lifetimes.jit(lambda n: np.zeros_like(n) + 3, static=())(2.0)
        assert result.device is device
        assert float(result.numpy()) == 3.0
