"""Each operation has everything that the rest of the compiler looks up: a missing cell of the table is named."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from lifetimes.compiler import functions, ops
from lifetimes.compiler.ir import DTYPES, Builder, Node
from lifetimes.compiler.ops import OPS, ROWS, Row, structural

SPELLING = re.compile(r"[a-z]+|[fi]cmp [a-z]+|@[a-z]+|libm:[a-z0-9]+|special:[a-z_]+")
OTHER_NAMES = {
    "shift_left": "bitwise_left_shift",
    "shift_right": "bitwise_right_shift",
    "select": "where",
}
SAMPLES: Mapping[str, Any] = {
    "f": [-1.5, 0.25, 0.5, 2.0],
    "i": [-3, 0, 1, 5],
    "u": [0, 1, 2, 5],
    "b": [True, False, True, True],
}


def missing(rows: Mapping[str, Row]) -> list[str]:
    """The cells that are empty or wrong, each by its row and column."""
    return [f"{name}: {what}" for name, row in rows.items() for what in problems(row)]


def problems(row: Row) -> Iterator[str]:
    if not row.kinds or set(row.kinds) - set("fiub"):
        yield f"kinds {row.kinds!r}"
    if set(row.c) != set(row.llvm):
        yield f"C is spelled for {''.join(row.c)!r}, LLVM for {row.kinds!r}"
    for kind, spelling in row.llvm.items():
        if not SPELLING.fullmatch(spelling):
            yield f"LLVM for {kind!r} is {spelling!r}"
        if spelling.startswith("special:") and f"``{spelling.removeprefix('special:')}``" not in (
            ops.elementwise.__doc__ or ""
        ):
            yield f"the special {spelling!r} is not described"
    for kind, spelling in row.c.items():
        places = {int(place) for place in re.findall(r"\{(\d)\}", spelling)}
        if not spelling.startswith("special:") and places != set(range(row.arity)):
            yield f"C for {kind!r} is {spelling!r}, of {row.arity} operands"
    if not callable(getattr(functions, OTHER_NAMES.get(row.name, row.name), None)):
        yield "no function of the namespace"
    yield from (problem for dtype in DTYPES if dtype.kind in row.kinds for problem in reference_problems(row, dtype))


def reference_problems(row: Row, dtype: np.dtype[Any]) -> Iterator[str]:
    """What the reference gives is what the rule says, for a full array, an empty one and one of no dimensions."""
    for sample in (
        np.array(SAMPLES[dtype.kind], dtype),
        np.empty((0, 2), dtype),
        np.array(SAMPLES[dtype.kind][2], dtype),
    ):
        builder = Builder()
        operands = [sample] * row.arity
        if row.result == "select":
            operands[0] = sample != 0
        args = [param(builder, at, each.dtype, each.shape) for at, each in enumerate(operands)]
        try:
            node = ops.make(builder, row.name, *args)
            value = ops.evaluate(node, *operands)
        except Exception as error:  # whatever it is, it is what the cell does
            yield f"the reference for {dtype} raises {error!r}"
        else:
            if (value.dtype, value.shape) != (node.dtype, node.shape):
                yield f"the reference for {dtype} gives {value.dtype} {value.shape}, not {node.dtype} {node.shape}"


def param(builder: Builder, at: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Node:
    return ops.make(builder, "param", dtype=dtype, shape=shape, index=at)


def test_no_cell_is_missing() -> None:
    assert missing(ROWS) == []


@pytest.mark.parametrize("op", OPS)
def test_a_structural_operation_is_described_with_its_attributes(op: str) -> None:
    line = re.search(rf"^    {op} .*$", structural.__doc__ or "", re.MULTILINE)
    assert line is not None
    if op != "slice":  # whose attributes take two lines
        assert all(attr in line[0] for attr in OPS[op].attrs)


def test_a_name_is_in_one_table_only() -> None:
    assert not set(ROWS) & set(OPS)
    assert all(row.name == name for name, row in ROWS.items())
    assert all(op.name == name for name, op in OPS.items())


def test_a_kind_that_is_missing_is_refused() -> None:
    builder = Builder()
    flags = param(builder, 0, np.dtype("bool"), (2,))
    with pytest.raises(TypeError, match="negative does not compute with bool"):
        ops.make(builder, "negative", flags)


# The check is checked.

ADD = ROWS["add"]


@pytest.mark.parametrize(
    ("planted", "says"),
    [
        (dataclasses.replace(ADD, llvm={"f": "fadd"}), "add: C is spelled for 'fiub', LLVM for 'f'"),
        (dataclasses.replace(ADD, llvm={**ADD.llvm, "u": ""}), "add: LLVM for 'u' is ''"),
        (
            dataclasses.replace(ADD, llvm={**ADD.llvm, "u": "special:sums"}),
            "add: the special 'special:sums' is not described",
        ),
        (dataclasses.replace(ADD, c={**ADD.c, "i": "{0} + {0}"}), "add: C for 'i' is '{0} + {0}', of 2 operands"),
        (dataclasses.replace(ADD, name="sum_up", result="bool"), "sum_up: no function of the namespace"),
        (dataclasses.replace(ADD, reference=lambda a, b: (a + b).astype("f8")), "the reference for int8 gives float64"),
        (dataclasses.replace(ADD, reference=lambda a: a), "the reference for bool raises TypeError"),
    ],
)
def test_a_planted_gap_is_named(planted: Row, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "ROWS", {**ROWS, planted.name: planted})
    assert any(says in each for each in missing({planted.name: planted}))
