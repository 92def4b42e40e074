"""Code is freed with the function that it was made for, and nothing else is left of it."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import lifetimes
from lifetimes.compiler import target
from lifetimes.compiler.cache import KernelCache, kernels
from lifetimes.compiler.kernel import Access, Nest, Phase, Store, Value


@pytest.fixture
def device() -> Iterator[lifetimes.Device]:
    with lifetimes.open("host", memory_limit="64MiB") as opened:
        yield opened


def codes() -> int:
    """How many modules of code are loaded, by the library's own books."""
    return sum(row.kind == "code" for row in lifetimes.live())


def mapped(address: int) -> bool:
    """Whether memory is mapped there, by the system's books."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        low, high = (int(each, 16) for each in line.split()[0].split("-"))
        if low <= address < high:
            return "x" in line.split()[1]
    return False


def test_code_goes_with_its_function(device: lifetimes.Device) -> None:
    x = device.asarray(np.ones(4))
    before = codes()
    function = lifetimes.jit(lambda x: x * 2)
    other = lifetimes.jit(lambda x: x * 2)  # the same code
    function(x)
    other(x)
    assert codes() == before + 1
    del function
    assert codes() == before + 1
    assert other(x).numpy()[0] == 2
    del other
    gc.collect()
    lifetimes.drain()
    assert codes() == before


@pytest.mark.skipif(sys.platform != "linux", reason="reads the system's books, which are elsewhere on other systems")
def test_the_memory_of_code_goes_back_to_the_system(device: lifetimes.Device) -> None:
    x = device.asarray(np.ones(4))
    function = lifetimes.jit(lambda x: x * 5)
    function(x)
    address = next(entry for _, entry in function._entries.finished()).runner.plan.steps[0].kernel.address  # type: ignore[union-attr]
    assert mapped(address)
    del function
    gc.collect()
    lifetimes.drain()
    assert not mapped(address)


def test_clear_forgets_and_the_next_call_compiles_what_is_needed(device: lifetimes.Device) -> None:
    x = device.asarray(np.ones(4))
    function = lifetimes.jit(lambda x: x * 7)
    function(x)
    before = codes()
    function.clear()
    gc.collect()
    lifetimes.drain()
    assert codes() == before - 1
    assert function(x).numpy()[0] == 7


def different(number: int) -> Nest:
    """A kernel that no other number has."""
    values = (Value("load", (), "int64", 0), Value("const", (), "int64", number), Value("multiply", (0, 1), "int64"))
    accesses = (Access("int64", "1"), Access("int64", "1"))
    return Nest(0, 1, "inner", accesses, values, phases=(Phase((), (Store(1, 2),)),))


def resident() -> int:
    """The bytes of this process that are in memory, what the allocator merely keeps given back first."""
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="needs malloc_trim, which glibc has")
@pytest.mark.parametrize("cycles", [100, pytest.param(2000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
def test_compiling_and_unloading_does_not_grow(cycles: int) -> None:
    """BUG-095 (triton-lang/triton#9444): thousands of kernels that come and go leave nothing behind."""
    cache = KernelCache(limit=0)
    chosen = target.best()
    for number in range(50):  # whatever is made once
        cache.get(different(number), chosen)
    before = resident()
    for number in range(cycles):
        cache.get(different(1000 + number), chosen)
    gc.collect()
    assert cache.statistics().live == 0
    assert resident() - before < 5 << 20
    kernels.clear()
