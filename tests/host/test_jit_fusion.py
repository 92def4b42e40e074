"""What is computed together, and that it comes out right: dense random graphs, and the kernels that programs become."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import lifetimes
from lifetimes.compiler import functions, settings, target
from lifetimes.compiler.cache import kernels
from lifetimes.compiler.emit import elementwise, memory, reductions
from tests.jit_graphs import arguments, graph
from tests.jitting import check

SEEDS = 40


@pytest.fixture
def device() -> Iterator[lifetimes.Device]:
    with lifetimes.open("host", memory_limit="64MiB") as opened:
        yield opened


def run(device: lifetimes.Device, seed: int) -> None:
    program = graph(seed)
    try:
        check(device, lambda *given: program(functions, *given), *arguments(seed))
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("at", range(len(target.names())))
def test_dense_graphs_are_what_the_interpreter_says(device: lifetimes.Device, at: int) -> None:
    """Others for each target; each run takes the same ones, so a failure names what to look at."""
    with settings.using(target.names()[at]):
        for seed in range(at * SEEDS, (at + 1) * SEEDS):
            run(device, seed)


# Planted faults of the code generator (those of fusion and lowering: `tests/unit/compiler/test_lowering.py`).


def a_wrong_operation(patch: pytest.MonkeyPatch) -> None:
    emit_row = elementwise.emit_row

    def wrong(w: Any, chosen: Any, op: str, *rest: Any) -> Any:
        return emit_row(w, chosen, {"maximum": "minimum"}.get(op, op), *rest)

    patch.setattr(elementwise, "emit_row", wrong)


def a_wrong_identity(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reductions, "_identity", lambda kind, dtype: 1 if kind == "sum" else 0)


def lanes_beyond_the_end(patch: pytest.MonkeyPatch) -> None:
    step = reductions.step

    def unmasked(*args: Any) -> Any:
        changed: Any = (*args[:-1], None)
        return step(*changed)

    patch.setattr(reductions, "step", unmasked)


def a_stride_off_by_one(patch: pytest.MonkeyPatch) -> None:
    load = memory.load

    def wrong(w: Any, access: Any, pointer: str, letter: str, *rest: Any) -> Any:
        return load(w, access, pointer if letter != "s" else memory.moved(w, access, pointer, "-1"), letter, *rest)

    patch.setattr(memory, "load", wrong)


def one_accumulator_of_several(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reductions, "merge", lambda w, kind, dtype, a, b, lanes: a)


FAULTS = (
    a_wrong_operation,
    a_wrong_identity,
    lanes_beyond_the_end,
    a_stride_off_by_one,
    one_accumulator_of_several,
)


@pytest.mark.parametrize("plant", FAULTS)
def test_a_planted_fault_is_found(device: lifetimes.Device, monkeypatch: pytest.MonkeyPatch, plant: Any) -> None:
    kernels.clear()
    found = None
    try:
        with monkeypatch.context() as patch:
            plant(patch)
            for seed in range(300):
                try:
                    run(device, seed)
                except Exception as error:
                    found = error
                    break
    finally:
        kernels.clear()  # what was compiled with the fault
    assert found is not None


# What becomes one kernel.


def count(function: Any, *specs: Any) -> int:
    """How many kernels a function becomes."""
    return lifetimes.jit(function).lowered(*specs).count("kernel:")


X = lifetimes.spec((40, 50))
V = lifetimes.spec((50,))


def test_elementwise_chains_and_views_are_one_kernel() -> None:
    assert count(lambda x, v: np.sin(x) * v + 2, X, V) == 1
    assert count(lambda x: (x + 1, x * 2, np.exp(x)), X) == 1
    assert count(lambda x: x[::-1, 1:] - x[::-1, :-1] + x.T[0, 0], X) == 1
    assert count(lambda x: x.reshape(20, 2, 50) + 1, X) == 1
    assert count(lambda x: np.where(x > 0, x, -x)[None, ::2], X) == 1


def test_a_result_that_only_changes_shape_is_written_at_once() -> None:
    assert count(lambda x: (x + 1).reshape(-1), X) == 1
    assert count(lambda x: np.sum(x, axis=0, keepdims=True), X) == 1


def test_reductions_of_one_domain_share_a_kernel() -> None:
    assert count(lambda x: (np.sum(x, axis=1), np.max(x, axis=1), np.sum(x * x, axis=1)), X) == 1
    assert count(lambda x: (np.sum(x, axis=1), x * 2), X) == 1
    assert count(lambda x: (np.sum(x, axis=1), np.sum(x, axis=0)), X) == 2


REDUCTIONS = ("sum", "prod", "min", "max", "mean", "var", "std", "any", "all", "argmin", "argmax")


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_a_reduction_takes_in_what_it_is_made_of(kind: str) -> None:
    def reduced(x: Any, v: Any, axis: Any) -> Any:
        producer = np.sin(x) * v + 2
        return getattr(np, kind)(producer > 2 if kind in ("any", "all") else producer, axis=axis)

    for axis in (None, 0, 1, -1, *([] if kind.startswith("arg") else [(0, 1)])):
        assert count(lambda x, v, axis=axis: reduced(x, v, axis), X, V) == 1


def test_gathers_are_reads_and_what_is_joined_or_added_to_is_written_once() -> None:
    index = lifetimes.spec((7,), "int64")
    assert count(lambda x, i: np.exp(np.take(x, i, axis=1)) * 2, X, index) == 1
    assert count(lambda x: np.concatenate([x + 1, x * 2]), X) == 1  # parts of one shape, straight into the result
    assert count(lambda x: np.concatenate([x + 1, x[:3] * 2]), X) == 2
    assert count(lambda v, i: v.__array_namespace__().scatter_add(v, i, v[:7] * 2), V, index) == 2  # the base, then it


def test_a_long_sum_has_parts_and_what_comes_after_it_is_in_the_last_kernel() -> None:
    long = lifetimes.spec(1_000_000)
    assert count(lambda x: np.sqrt(np.sum(x * x) / 3), long) == 2  # the parts, and their sum
    assert count(lambda x: x / np.sum(x), long) == 3
    assert count(lambda x: x / np.sum(x), lifetimes.spec(1000)) == 1


def test_a_costly_value_is_computed_once_and_not_for_each_element() -> None:
    assert count(lambda v, x: np.exp(v)[None, :] * x, V, X) == 2
    assert count(lambda v, x: (v + 1)[None, :] * x, V, X) == 1


def test_a_stencil_repeated_often_is_cut_into_kernels() -> None:
    """Otherwise every element would compute its whole neighbourhood anew."""

    def diffused(x: Any, turns: int) -> Any:
        for _ in range(turns):
            x = x[1:-1] + 0.1 * (x[2:] - 2 * x[1:-1] + x[:-2])
        return x

    def sizes(turns: int) -> list[int]:
        text = lifetimes.jit(lambda x: diffused(x, turns)).lowered(lifetimes.spec(1000))
        return [each.count(" = ") for each in text.split("kernel:")[1:]]

    assert len(sizes(1)) == 1
    assert max(sizes(24)) < 100
    assert len(sizes(24)) <= 24


def test_ranks_and_sizes_do_not_matter_to_a_kernel() -> None:
    texts = {
        lifetimes.jit(lambda x: x * 2 + x).lowered(lifetimes.spec(shape))
        for shape in ((6,), (1000,), (3, 4), (2, 3, 4, 5))
    }
    assert len(texts) == 1


def test_deep_graphs_are_no_problem(device: lifetimes.Device) -> None:
    """Deeper than Python recurses."""

    def deep(x: Any) -> Any:
        for _ in range(1500):
            x = x * 0.5 + 1
        return x

    result = lifetimes.jit(deep)(device.asarray(np.zeros(9)))
    np.testing.assert_allclose(result.numpy(), 2.0)
