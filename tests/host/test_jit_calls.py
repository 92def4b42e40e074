"""What a compiled function is called with: constants, containers, devices; and what is refused, with the way out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import lifetimes
from lifetimes.errors import TraceError


@pytest.fixture
def device() -> Iterator[lifetimes.Device]:
    with lifetimes.open("host", memory_limit="64MiB") as opened:
        yield opened


def first(array: lifetimes.Array) -> Any:
    return array.numpy().ravel()[0]


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


X, Y = np.arange(6.0).reshape(2, 3), np.ones(4, "float32")

REFUSED: dict[str, tuple[Any, tuple[Any, ...], type[Exception], str]] = {
    "shapes that do not broadcast": (
        lambda x, y: x * y, (X, Y), ValueError, r"multiply: shapes \(2, 3\) and \(4,\) do not broadcast",
    ),
    "dtypes without a common one": (
        lambda x, y: x & y, (X, X.astype("float32")), TypeError, "bitwise_and of float64 and float32 is not defined; bits are",
    ),
    "a number that does not fit": (
        lambda x: x.astype("int8") + 300, (X,), OverflowError, "add: the Python integer 300 is out of the bounds of int8",
    ),
    "a dtype that is not computed with": (
        lambda x: x.astype("float16"), (X,), TypeError, "astype has dtype float16; compiled functions compute with bool, int8",
    ),
    "if": (
        lambda x: x if x.sum() > 0 else -x, (X,), TypeError, r"the truth of <traced bool\[\]> is not known .* where\(condition",
    ),
    "while": (
        lambda x: [x for _ in iter(lambda: bool(x[0, 0]), False)], (X,), TypeError, "the truth of <traced float64",
    ),
    "an index outside": (lambda x: x[1, 3], (X,), IndexError, r"index 3 is out of bounds for axis 1 of shape \(2, 3\)"),
    "a listed index outside": (lambda x: x[[0, -3]], (X,), IndexError, "index -3 is out of bounds for axis 0"),
    "an axis that there is not": (lambda x: np.sum(x, axis=2), (X,), ValueError, "axis 2 is out of range for an array of 2"),
    "the smallest of nothing": (lambda x: np.min(x[:0]), (X,), ValueError, r"min of nothing has no value .* shape \(0, 3\)"),
    "an argument that is no array": (lambda x, y: x, (X, "text"), TypeError, r"argument 1 is a str.* static=\(\.\.\.\)"),
    "a result that is no array": (lambda x: "text", (X,), TypeError, "result is a str, which is no array"),
    "a function that is not there": (lambda x: np.sort(x), (X,), TypeError, r"np\.sort cannot be traced: .*outside of the tr"),
    "an array that is changed": (lambda x: x.__setitem__(0, 1), (X,), TypeError, "cannot be changed: make a new one with"),
    "a spec": (lambda x: x, (lifetimes.spec(3),), TypeError, r"a spec has no content .* it is for ir\(\)"),
    "another byte order": (lambda x: x, (X.astype(">f8"),), TypeError, "byte order of another machine: make .* native copy"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named_with_the_way_out_and_does_no_harm(device: lifetimes.Device, name: str) -> None:
    function, args, kind, says = REFUSED[name]
    given = [device.asarray(each) if isinstance(each, np.ndarray) else each for each in args]
    jitted = lifetimes.jit(function)
    for _ in range(2):  # a failure is not kept
        with pytest.raises(TraceError, match=says) as caught:
            jitted(*given)
        assert isinstance(caught.value, kind)
    assert first(lifetimes.jit(lambda x: x + 1)(device.asarray(X))) == 1.0


def test_arrays_of_two_devices_do_not_meet(device: lifetimes.Device) -> None:
    with lifetimes.open("host", memory_limit="1MiB") as other:
        x, y = device.asarray(np.zeros(3)), other.asarray(np.zeros(3))
        for function, args in (
            (lifetimes.jit(lambda x, y: x + y), (x, y)),
            (lifetimes.jit(lambda pair: pair[0] + pair[1]), ([x, y],)),
            (lifetimes.jit(lambda x: x + y), (x,)),
        ):
            with pytest.raises(
                TraceError, match=r"are on <Device .*> and on <Device .*>; copy one of them with to_device\(\)"
            ):
                function(*args)
        assert first(lifetimes.jit(lambda x, y: x + y)(x, y.to_device(device))) == 0


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="jit takes a function, not int 3"):
        lifetimes.jit(3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="the function has no such argument; it has x"):
        lifetimes.jit(static="y")(lambda x: x)


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


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="a classmethod binds only functions from 3.13 on")
def test_a_class_method(device: lifetimes.Device) -> None:
    class Model:
        weight = 2.0

        @classmethod
        @lifetimes.jit
        def apply(cls, x: Any) -> Any:
            return x * cls.weight

    x = device.asarray(np.ones(2))
    assert first(Model.apply(x)) == first(Model().apply(x)) == 2
    Model.weight = 3.0
    assert first(Model.apply(x)) == 3


@pytest.mark.parametrize("size", [3, 2_000_000])
def test_an_integer_that_is_passed_and_does_not_fit(device: lifetimes.Device, size: int) -> None:
    """The call fails as a whole, and the next one works."""
    x = device.asarray(np.ones(size))
    out = device.asarray(np.zeros(size))
    function = lifetimes.jit(lambda x, n: x + n)
    for _ in range(2):
        with pytest.raises(OverflowError, match=r"integer 2\d* is out of the bounds of int64, which it is passed as"):
            function(x, 2 * 10**30)
        with pytest.raises(OverflowError, match="name the argument in static"):
            function.into(out, x, 2 * 10**30)
        assert first(function(x, 2)) == 3
    assert first(function(x, np.uint64(2**63))) == 2.0**63
