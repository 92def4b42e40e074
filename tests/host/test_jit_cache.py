"""What is compiled when, and for whom: keys, sharing, single flight, failure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import lifetimes
from lifetimes.compiler import native, target
from lifetimes.compiler.cache import KernelCache, kernels
from lifetimes.compiler.jit import MOST
from lifetimes.compiler.kernel import Access, Nest, Phase, Store, Value
from lifetimes.errors import CompileError


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
