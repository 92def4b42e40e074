"""What a function becomes, as text: at every stage, before and after the first call, the same each time."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import lifetimes
from lifetimes.compiler import settings, target
from lifetimes.compiler.cache import kernels
from lifetimes.compiler.emit.vectormath import _has
from lifetimes.compiler.text import parse, to_text


@pytest.fixture
def device() -> Iterator[lifetimes.Device]:
    with lifetimes.open("host", memory_limit="64MiB") as opened:
        yield opened


def test_the_graph_is_text_that_parses_back(device: lifetimes.Device) -> None:
    function = lifetimes.jit(lambda x, a: np.sum(x * a, axis=0) - (-x[0]))
    text = function.ir(lifetimes.spec((3, 4)), 2.0)
    assert to_text(parse(text)) == text
    traced = function.ir(lifetimes.spec((3, 4)), 2.0, traced=True)
    assert (traced.count("negative"), text.count("negative")) == (1, 0)


def test_every_text_is_the_same_however_the_code_came_to_be(device: lifetimes.Device) -> None:
    """BUG-068 (numba/numba#2339): before the first call, after it, after a hit, and when everything has been forgotten."""
    function = lifetimes.jit(lambda x: np.exp(x) / np.sum(np.exp(x)))
    spec = lifetimes.spec((10,))

    def texts() -> tuple[str, ...]:
        return function.ir(spec), function.lowered(spec), function.source(spec), function.assembly(spec)

    kernels.clear()
    before = texts()
    assert function.stats().layouts == 0
    x = device.asarray(np.ones(10))
    function(x)
    assert texts() == before
    function(x)
    assert texts() == before
    function.clear()
    kernels.clear()
    assert texts() == before
    assert function.ir(x) == before[0]


SHOWN = """
import numpy as np
import lifetimes
function = lifetimes.jit(lambda x: np.exp(x) / np.sum(np.exp(x)))
spec = lifetimes.spec((10,))
for text in (function.ir(spec), function.lowered(spec), function.source(spec), function.assembly(spec)):
    print(text)
"""


def test_another_process_shows_the_same() -> None:
    """BUG-068 (numba/numba#2339)."""
    function = lifetimes.jit(lambda x: np.exp(x) / np.sum(np.exp(x)))
    spec = lifetimes.spec((10,))
    texts = (function.ir(spec), function.lowered(spec), function.source(spec), function.assembly(spec))
    done = subprocess.run([sys.executable, "-c", SHOWN], capture_output=True, text=True, check=True)
    assert done.stdout == "".join(f"{text}\n" for text in texts)


def test_asking_keeps_no_array_alive(device: lifetimes.Device) -> None:
    """BUG-068 (numba/numba#2339)."""
    function = lifetimes.jit(lambda x: x + 1)
    x = device.asarray(np.ones(10))
    assert function.source(x)
    gone = x.weak()
    del x
    gc.collect()
    assert gone() is None


def test_source_and_machine_code_show_the_width(device: lifetimes.Device) -> None:
    function = lifetimes.jit(lambda x: x * x)
    spec = lifetimes.spec((100,))
    for name in target.names():
        with settings.using(name) as chosen:
            lanes = chosen.target.registers // 8
            assert f"fmul <{lanes} x double>" in function.source(spec)
            whole = function.assembly(spec)
            assert ".globl" in whole or ".global" in whole
            only = function.assembly(spec, whole_module=False)
            assert ".globl" not in only
            assert only.startswith("kernel:")
            assert len(only) < len(whole)
            assert function.source(spec, whole_module=False).startswith("define ")


@pytest.mark.skipif(not _has("_ZGVbN2v_sin"), reason="this system's C library has no functions for vectors")
def test_vectors_go_to_the_librarys_functions_for_vectors() -> None:
    function = lifetimes.jit(lambda x: np.sin(x))
    for name, symbol in (("sse2", "_ZGVbN2v_sin"), ("avx2", "_ZGVdN4v_sin"), ("avx512", "_ZGVeN8v_sin")):
        if name in target.names():
            with settings.using(name):
                assert f"@{symbol}(" in function.source(lifetimes.spec((9,)))


def test_stats_count_layouts_kernels_and_time(device: lifetimes.Device) -> None:
    function = lifetimes.jit(lambda x: x + 1)
    assert function.stats().kernels == 0
    for shape in ((3,), (4,), (4,), (2, 2)):
        function(device.asarray(np.ones(shape)))
    stats = function.stats()
    assert (stats.layouts, stats.kernels, stats.traced) == (3, 1, 3)
    assert stats.nbytes > 0
    assert min(stats.seconds) > 0


def test_a_matrix_product_is_named_among_the_kernels() -> None:
    text = lifetimes.jit(lambda x: (x + 1) @ x).lowered(lifetimes.spec((4, 4)))
    assert text.count("kernel:") == 1
    assert text.splitlines()[-1] == "matmul by NumPy: (4, 4) @ (4, 4), float64"
