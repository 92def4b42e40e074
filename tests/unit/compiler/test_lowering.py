"""Fusion and lowering without a code generator: golden groups and kernels, and kernels that compute what the graph says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from lifetimes.compiler import bound, kernel, parts
from lifetimes.compiler import functions as xp
from lifetimes.compiler.bound import Bound
from lifetimes.compiler.ir import Node
from lifetimes.compiler.loops import Loops
from lifetimes.compiler.passes import fuse, groups, simplified, views
from lifetimes.compiler.plan import lowered
from lifetimes.compiler.spec import spec
from lifetimes.compiler.trace import trace
from lifetimes.testing.agreement import assert_computes
from lifetimes.testing.nests import run_lowered
from lifetimes.testing.programs import Program, programs
from tests.jit_graphs import arguments, graph


def whole(piece: Bound) -> Sequence[Bound]:
    return [piece]


def check(function: Callable[..., Any], args: Sequence[Any], cut: Callable[[Bound], Sequence[Bound]] = whole) -> None:
    """The kernels of the function compute what the interpreter says."""
    traced = trace(lambda *given: function(xp, *given), args)
    simple = simplified(traced.function)
    values = [*args, *traced.captured]
    assert_computes(simple, values, run_lowered(simple, values, cut))


# Golden.


def softmax(x: Any) -> Any:
    e = xp.exp(x - xp.max(x, axis=1, keepdims=True))
    return e / xp.sum(e, axis=1, keepdims=True)


SOFTMAX = """\
kernel: 1 outer, 1 inner, lanes in the inner
  a0: float64[s 1]
  a1: float64[s 1]
  v0: float64 = load a0
  v1: float64 = result r0
  v2: float64 = subtract v0 v1
  v3: float64 = exp v2
  v4: float64 = result r1
  v5: float64 = divide v3 v4
  for each element:
    r0: float64 = max v0
  for each element:
    r1: float64 = sum v3
  for each element:
    a1 <- v5"""

TURNED = """\
kernel: 1 outer, 1 inner, lanes in the inner
  a0: float64[s s]
  a1: float64[s 1]
  v0: float64 = load a0
  v1: float64 = const 1.0
  v2: float64 = add v0 v1
  for each element:
    a1 <- v2"""

COLUMNS = """\
kernel: 1 outer, 1 inner, lanes in the outer
  a0: float64[1 s]
  a1: float64[1 0]
  v0: float64 = load a0
  v1: float64 = result r0
  for each element:
    r0: float64 = sum v0
  for each row:
    a1 <- v1"""

RUNNING = """\
kernel: 1 outer, 1 inner, lanes in the inner
  a0: float64[s 1]
  a1: float64[s 1]
  v0: float64 = load a0
  v1: float64 = scan v0 'sum'
  for each element:
    a1 <- v1"""

TAKEN = """\
kernel: 0 outer, 1 inner, lanes in the inner
  a0: uint8[1]
  a1: float64[0] jumps
  a2: float64[1]
  s0: int64
  v0: uint8 = load a0
  v1: int64 = cast v0
  v2: int64 = const 0
  v3: int64 = scalar s0
  v4: int64 = maximum v1 v2
  v5: int64 = minimum v4 v3
  v6: float64 = load a1 v5
  for each element:
    a2 <- v6"""

PARTS = """\
kernel: 1 outer, 1 inner, lanes in the inner
  a0: float64[s 1]
  a1: float64[s 0]
  v0: float64 = load a0
  v1: float64 = multiply v0 v0
  v2: float64 = result r0
  for each element:
    r0: float64 = sum v1
  for each row:
    a1 <- v2
kernel: 0 outer, 1 inner, lanes in the inner
  a0: float64[0]
  a1: float64[1]
  v0: float64 = result r0
  v1: float64 = sqrt v0
  v2: float64 = load a1
  for each element:
    r0: float64 = sum v2
  for each row:
    a0 <- v1"""

GOLDEN: dict[str, tuple[Any, tuple[Any, ...], str, str]] = {
    "a softmax is three phases of one kernel": (
        softmax,
        (spec((40, 50)),),
        "loops over 40 x 50, reducing axis 1\n  phase 0: reduce %1\n  phase 1: reduce %6\n  phase 2: store %9",
        SOFTMAX,
    ),
    "views are strides": (lambda x: x.T[::2] + 1, (spec((4, 6)),), "loops over 3 x 4\n  phase 0: store %5", TURNED),
    "lanes lie along memory": (
        lambda x: xp.sum(x, axis=0),
        (spec((40, 50)),),
        "loops over 40 x 50, reducing axis 0\n  phase 0: reduce and store %1",
        COLUMNS,
    ),
    "a scan is a group of its own": (
        lambda x: xp.cumsum(x, axis=1),
        (spec((6, 7)),),
        "scan over 6 x 7, scanning axis 1\n  phase 0: store %1",
        RUNNING,
    ),
    "an index jumps": (
        lambda x, i: xp.take(x, i),
        (spec(6), spec(3, "uint8")),
        "loops over 3\n  phase 0: store %3",
        TAKEN,
    ),
    "a long sum has parts": (
        lambda x: xp.sqrt(xp.sum(x * x)),
        (spec(1_000_000),),
        "loops over 1000000, reducing axis 0\n  phase 0: reduce %2\n  each row: store %3",
        PARTS,
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_what_groups_and_kernels_a_function_becomes(name: str) -> None:
    function, specs, wanted_groups, wanted_kernels = GOLDEN[name]
    simple = simplified(trace(function, specs).function)
    fused, steps = lowered(simple, [views.contiguous(each.shape) for each in specs])
    assert groups.text(fused) == wanted_groups
    texts = [kernel.text(step[0].nest) for step in steps if not isinstance(step, Node)]
    assert "\n".join(texts) == wanted_kernels


def test_rows_upon_rows_are_cut_so_that_nothing_costly_is_computed_over_and_over() -> None:
    """Each layer is two kernels of its own; in one kernel, every phase would compute all layers before it."""

    def layers(x: Any, count: int) -> Any:
        for _ in range(count):
            x = softmax((x - xp.mean(x, axis=1, keepdims=True)) / xp.std(x, axis=1, keepdims=True))
        return x

    def steps(count: int) -> list[int]:
        simple = simplified(trace(lambda x: layers(x, count), (spec((64, 64)),)).function)
        return [len(step[0].nest.values) for step in lowered(simple, [(64, 1)])[1] if not isinstance(step, Node)]

    assert len(steps(1)) == 2
    assert len(steps(12)) == 24
    assert max(steps(12)) < 20
    x = np.random.default_rng(0).normal(size=(5, 7))
    check(lambda xp, x: layers(x, 4), [x])


# Values.


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(programs())
def test_kernels_of_programs_compute_what_the_graph_says(program: Program) -> None:
    check(program.function, program.arguments)


def run(seed: int, cut: Callable[[Bound], Sequence[Bound]] = whole) -> None:
    try:
        check(graph(seed), arguments(seed), cut)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error


def test_kernels_of_dense_graphs_compute_what_the_graph_says() -> None:
    for seed in range(400):
        run(seed)


def thresholds(patch: pytest.MonkeyPatch) -> None:
    """As if arrays of a dozen elements were long."""
    for module, name, value in (
        (parts, "LONG", 20),
        (parts, "PART", 16),
        (fuse, "ALONE", 30),
        (bound, "ALONG", 4),
        (bound, "ACROSS", 2),
        (bound, "TILE", 3),
    ):
        patch.setattr(module, name, value)


def shares(piece: Bound) -> list[Bound]:
    return piece.shares(3)


def test_parts_and_shares_compute_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds(monkeypatch)
    cut, in_parts = 0, 0

    def counted(piece: Bound) -> list[Bound]:
        nonlocal cut, in_parts
        found = piece.shares(3)
        cut += len(found) > 1
        in_parts += bool(piece.nest.reductions) and piece.sizes[-1] == parts.PART
        return found

    for seed in range(300):
        run(seed, counted)
    assert cut > 100
    assert in_parts > 10


def test_strips_compute_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds(monkeypatch)
    most = 0

    def strips(piece: Bound) -> list[Bound]:
        nonlocal most
        found = piece.tiles()
        most = max(most, len(found))
        return found

    x = np.arange(12.0 * 20).reshape(12, 20)
    check(lambda xp, x: (x.T + 1, x.T[::-1, 1:] * x.T[:, 1:], x.T + xp.arange(12)), [x], strips)
    assert most == 4


LAYOUTS: dict[str, Any] = {
    "plain": np.arange(60.0).reshape(5, 12),
    "reversed": np.arange(60.0).reshape(5, 12)[::-1, ::-1],
    "transposed": np.arange(60.0).reshape(12, 5).T,
    "every other": np.arange(240.0).reshape(10, 24)[::2, ::-2],
    "a row for all": np.broadcast_to(np.arange(12.0), (5, 12)),
    "a number for all": np.broadcast_to(np.float64(3), (5, 12)),
    "one row": np.arange(12.0).reshape(1, 12),
    "one element": np.ones((1, 1)),
    "nothing": np.empty((5, 0)),
    "no row": np.empty((0, 12)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_arguments_of_any_layout(layout: str) -> None:
    def program(xp: Any, x: Any) -> Any:
        shifted = x - xp.sum(x, axis=1, keepdims=True)
        return (
            shifted * 2,
            x.T[::-1],
            xp.cumulative_sum(x, axis=0),
            xp.sum(x, axis=0),
            x.reshape(-1),
            x[:, 1:] - x[:, :-1],
        )

    check(program, [LAYOUTS[layout]])


def test_a_copied_argument_is_a_result_too_and_its_views_are_reshaped() -> None:
    def program(xp: Any, x: Any) -> Any:
        flat = x.reshape(-1)
        return flat, x[:, None].reshape(-1) * 2 + flat, x.T

    for layout in ("reversed", "transposed", "every other"):
        check(program, [LAYOUTS[layout]])


def test_what_is_joined_of_several_groups_is_read_when_all_of_it_is_there() -> None:
    def program(xp: Any, x: Any) -> Any:
        y = xp.max(x, axis=0, keepdims=True) + 1
        joined = xp.concat([y, y[:, ::-1], y], axis=1)
        return y, joined[:, 7::2]

    check(program, [LAYOUTS["plain"][:4, :6]])


def test_a_scan_goes_on_computing_what_a_stencil_has_stored() -> None:
    def program(xp: Any, x: Any) -> Any:
        e = xp.exp(x / 10)
        running = xp.cumulative_sum(e)
        stencil = e[:5]
        for shift in range(1, 7):
            stencil = stencil + e[shift : shift + 5]
        return running, stencil

    check(program, [np.arange(12.0)])


# Planted faults: each must be found, or the comparison above proves nothing.


def loops_joined_that_are_two(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Loops, "collapsed", lambda self, dims: [dim for dim in dims if self.sizes[dim] != 1][-1:])


def a_transpose_forgotten(patch: pytest.MonkeyPatch) -> None:
    through = views._through

    def wrong(node: Any, index: Any) -> Any:
        square = node.op == "transpose" and len(set(node.shape)) < node.ndim
        return index if square and node.shape == node.args[0].shape else through(node, index)

    patch.setattr(views, "_through", wrong)


def a_slice_that_starts_at_the_front(patch: pytest.MonkeyPatch) -> None:
    through = views._through

    def wrong(node: Any, index: Any) -> Any:
        found = through(node, index)
        return tuple([(max(start - 1, 0), moves) for start, moves in found]) if node.op == "slice" else found

    patch.setattr(views, "_through", wrong)


def rows_taken_for_granted(patch: pytest.MonkeyPatch) -> None:
    """A reduction that is read anywhere is taken for the one of the same row."""
    patch.setattr(groups, "_is_row", lambda reduction, index, group: True)


def strides_of_buffers_too_small(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fuse, "contiguous", lambda shape: tuple([max(s - (s > 1), 1) for s in views.contiguous(shape)]))


def a_phase_too_early(patch: pytest.MonkeyPatch) -> None:
    """What needs a reduction is computed in the phase of that reduction."""
    fits = fuse._Fuser._fits

    def wrong(self: Any, group: Any, target: Any) -> Any:
        found = fits(self, group, target)
        return found and found._replace(phase=max(found.phase - 1, 0))

    patch.setattr(fuse._Fuser, "_fits", wrong)


def a_part_that_starts_at_the_front(patch: pytest.MonkeyPatch) -> None:
    part = Bound.part
    patch.setattr(Bound, "part", lambda self, loop, begin, size: part(self, loop, max(begin - 1, 0), size))


def positions_of_parts_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The index values of a part begin at 0 again."""
    part = Bound.part

    def wrong(self: Bound, loop: int, begin: int, size: int) -> Bound:
        return replace(part(self, loop, begin, size), starts=self.starts)

    patch.setattr(Bound, "part", wrong)


FAULTS = (
    loops_joined_that_are_two,
    a_transpose_forgotten,
    a_slice_that_starts_at_the_front,
    rows_taken_for_granted,
    strides_of_buffers_too_small,
    a_phase_too_early,
    a_part_that_starts_at_the_front,
    positions_of_parts_forgotten,
)


@pytest.mark.parametrize("plant", FAULTS)
def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch, plant: Any) -> None:
    thresholds(monkeypatch)
    plant(monkeypatch)
    with pytest.raises((AssertionError, IndexError, KeyError, StopIteration, ValueError)):
        for seed in range(600):
            run(seed, shares)
