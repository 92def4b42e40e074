"""The dtype of every result is NumPy's: of all pairs of dtypes, and of a dtype with a Python number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lifetimes.compiler import functions
from lifetimes.compiler.ir import DTYPES
from lifetimes.compiler.ops import ROWS
from lifetimes.compiler.promotion import check_dtype, common_dtype, row_dtype, sum_dtype
from lifetimes.compiler.spec import Spec
from lifetimes.compiler.trace import trace
from lifetimes.errors import TraceError
from lifetimes.testing.eager import quiet

NUMPY_NAMES = {"shift_left": "left_shift", "shift_right": "right_shift", "bitwise_invert": "invert", "round": "rint"}
IN_NUMPY = [name for name in ROWS if name not in ("erf", "erfc", "select")]
UNARY = [name for name in IN_NUMPY if ROWS[name].arity == 1]
BINARY = [name for name in IN_NUMPY if ROWS[name].arity == 2]
WEAK = (True, 1, 1.0)
FLOAT16, FLOAT32 = np.dtype("float16"), np.dtype("float32")


def numpy_result(name: str, *operands: Any) -> np.dtype[Any] | None:
    """The dtype that NumPy's function gives, None where it refuses; float16 stands for our float32."""
    with quiet():
        try:
            dtype = getattr(np, NUMPY_NAMES.get(name, name))(*operands).dtype
        except TypeError:
            return None
    return FLOAT32 if dtype == FLOAT16 else dtype


def our_result(name: str, *operands: Any) -> np.dtype[Any] | None:
    """The dtype of the traced result, None where it is refused."""
    function = getattr(np, NUMPY_NAMES.get(name, name))
    try:
        return trace(lambda: functions.numpy_call(function, operands, {})).function.outs[0].dtype
    except TraceError:
        return None


def differences(name: str, operands: list[tuple[Any, ...]]) -> dict[str, tuple[Any, Any]]:
    pairs = {str([getattr(each, "dtype", each) for each in given]): given for given in operands}
    results = {text: (our_result(name, *given), numpy_result(name, *given)) for text, given in pairs.items()}
    return {text: pair for text, pair in results.items() if pair[0] != pair[1]}


def one(dtype: np.dtype[Any]) -> Any:
    return np.ones(2, dtype)


@pytest.mark.parametrize("name", BINARY)
def test_pairs_of_dtypes_promote_as_in_numpy(name: str) -> None:
    assert differences(name, [(one(a), one(b)) for a in DTYPES for b in DTYPES]) == {}


@pytest.mark.parametrize("name", BINARY)
def test_a_dtype_with_a_python_number_promotes_as_in_numpy(name: str) -> None:
    """BUG-025: cupy/cupy#9400 (also cupy/cupy#8536), a fused function that widened where the plain one does not."""
    pairs = [(one(a), weak) for a in DTYPES for weak in WEAK]
    assert differences(name, pairs + [(b, a) for a, b in pairs]) == {}


@pytest.mark.parametrize("name", UNARY)
def test_single_dtypes_are_as_in_numpy(name: str) -> None:
    found = differences(name, [(one(a),) for a in DTYPES])
    # Older NumPy rounded integers to floats.  A bool, which it makes a float16 of, is whole already.
    rounding = name in ("floor", "ceil", "trunc", "round")
    assert {
        text: pair for text, pair in found.items() if not (rounding and pair[0] is not None and pair[0].kind != "f")
    } == {}


def test_where_promotes_as_in_numpy() -> None:
    flags = np.array([True, False])
    values = [*[one(each) for each in DTYPES], *WEAK]
    for a in values:
        for b in values:
            wanted = np.where(flags, a, b).dtype
            assert trace(lambda a=a, b=b: functions.where(flags, a, b)).function.outs[0].dtype == wanted, (a, b)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "max", "any", "argmax", "cumulative_sum", "cumprod"])
def test_reductions_give_numpys_dtype(name: str) -> None:
    if not hasattr(np, name):
        pytest.skip(f"this NumPy has no {name}")
    for dtype in DTYPES:
        with quiet():
            wanted = np.asarray(getattr(np, name)(one(dtype))).dtype
        got = trace(getattr(functions, name), (one(dtype),)).function.outs[0].dtype
        assert got == wanted, (dtype, got, wanted)


def test_common_dtype_is_result_type() -> None:
    for a in DTYPES:
        for b in DTYPES:
            assert common_dtype("add", [(a, False), (b, False)]) == np.result_type(a, b)
        for weak in WEAK:
            dtype = np.asarray(weak).dtype
            assert common_dtype("add", [(a, False), (dtype, True)]) == np.result_type(a, weak), (a, weak)
            assert common_dtype("add", [(dtype, True), (a, False)]) == np.result_type(a, weak), (a, weak)
    for left in WEAK:
        for right in WEAK:
            operands = [(np.asarray(each).dtype, True) for each in (left, right)]
            assert common_dtype("add", operands) == np.result_type(left, right)


def test_sums_are_computed_in_64_bits() -> None:
    for dtype in DTYPES:
        assert sum_dtype(dtype) == np.sum(one(dtype)).dtype


def test_a_wrong_promotion_is_found() -> None:
    """The comparison is checked: a float32 that meets a Python float must not widen."""
    wrong = {"add": (np.dtype("float64"), numpy_result("add", one(FLOAT32), 1.0))}
    assert wrong["add"][0] != wrong["add"][1]
    assert differences("add", [(one(FLOAT32), 1.0)]) == {}
    assert our_result("negative", one(np.dtype("bool"))) is None
    assert numpy_result("negative", one(np.dtype("bool"))) is None


@pytest.mark.parametrize(
    ("name", "operands", "says"),
    [
        (
            "bitwise_and",
            (Spec((2,), np.dtype("float64")), 1),
            "bitwise_and of float64 and a Python int is not defined; bits are",
        ),
        (
            "bitwise_and",
            (Spec((2,), np.dtype("int64")), Spec((2,), np.dtype("uint64"))),
            "bitwise_and of int64 and uint64",
        ),
        ("negative", (Spec((2,), np.dtype("bool")),), "negative of bool is not defined; use logical_not"),
        (
            "subtract",
            (Spec((2,), np.dtype("bool")), True),
            "subtract of bool and a Python bool is not defined; use logical_xor",
        ),
    ],
)
def test_dtypes_that_do_not_promote_are_named(name: str, operands: tuple[Any, ...], says: str) -> None:
    with pytest.raises(TraceError, match=says):
        trace(getattr(functions, name), operands)


@pytest.mark.parametrize("dtype", ["float16", "complex128", "datetime64[s]", "U3", object, "no such"])
def test_a_dtype_that_is_not_computed_with_is_named(dtype: Any) -> None:
    with pytest.raises(TraceError, match="the argument has dtype"):
        check_dtype(dtype, "the argument")


def test_the_byte_order_is_the_machines() -> None:
    assert check_dtype(np.dtype(">f4"), "x") == np.dtype("=f4")
    assert check_dtype(np.dtype(">f4"), "x").isnative


def test_a_row_without_any_array_has_the_numbers_default() -> None:
    assert row_dtype(ROWS["sin"], [(np.dtype("int64"), True)]) == np.dtype("float64")
    assert row_dtype(ROWS["add"], [(np.dtype("bool"), True), (np.dtype("int64"), True)]) == np.dtype("int64")
