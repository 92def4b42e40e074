"""NumPy's own functions on traced arrays: by their names, with their arguments in their order, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lifetimes.compiler import functions as xp
from lifetimes.compiler.trace import trace
from lifetimes.errors import TraceError
from tests.tracing import interpreted

X = np.arange(6.0).reshape(2, 3)

SAME: list[Callable[[Any], Any]] = [
    lambda x: np.sin(x), lambda x: np.arctan2(x, 2), lambda x: np.power(x, 2), lambda x: np.add(x, X), lambda x: np.rint(x),
    lambda x: np.invert(x > 1), lambda x: np.absolute(-x), lambda x: np.fabs(-x), lambda x: np.true_divide(x, 3),
    lambda x: np.left_shift(x > 1, 1), lambda x: np.matmul(x, x.T), lambda x: np.where(x > 1, x, 0),
    lambda x: np.transpose(x), lambda x: np.transpose(x, (1, 0)), lambda x: np.transpose(x, axes=(1, 0)),
    lambda x: np.sum(x, axis=0, keepdims=True), lambda x: np.sum(x, 0, None, None, True), lambda x: np.sum(a=x, axis=0),
    lambda x: np.sum(x, out=None), lambda x: np.max(x, 1, None, True), lambda x: np.amin(x), lambda x: np.mean(x, (0, 1)),
    lambda x: np.var(x, ddof=1), lambda x: np.std(x, 0, None, None, 1, True), lambda x: np.prod(x, -1, "float32"),
    lambda x: np.argmax(x, 0, None, keepdims=True), lambda x: np.any(x > 1, 0), lambda x: np.count_nonzero(x, 0),
    lambda x: np.cumsum(x), lambda x: np.cumsum(x, 1, "float64"), lambda x: np.cumprod(x, axis=1),
    lambda x: np.clip(x, 1, 2), lambda x: np.clip(x, a_min=1, a_max=2), lambda x: np.clip(x, 1, None),
    lambda x: np.concatenate([x, X]), lambda x: np.concatenate([x, x], 1), lambda x: np.concatenate([x, x], axis=None),
    lambda x: np.stack([x, x], axis=1), lambda x: np.stack([x, x], 1), lambda x: np.take(x, [0, 2], 1),
    lambda x: np.repeat(x, 2, 1), lambda x: np.diff(x, 1, 0), lambda x: np.roll(x, 1, 0), lambda x: np.tile(x, (2, 1)),
    lambda x: np.expand_dims(x, 1), lambda x: np.squeeze(x[:1], 0), lambda x: np.flip(x, 1), lambda x: np.swapaxes(x, 0, 1),
    lambda x: np.broadcast_to(x, (4, 2, 3)), lambda x: np.moveaxis(x, 0, 1), lambda x: np.meshgrid(x[0], x[1])[1],
    lambda x: np.dot(x, x.T), lambda x: np.outer(x[0], x[1]), lambda x: np.linalg.outer(x[0], x[1]),
    lambda x: np.tensordot(x, x.T, 1), lambda x: np.tril(x, 1), lambda x: np.linspace(x[0, 1], 4, 5),
    lambda x: np.zeros_like(x, np.float32), lambda x: np.full_like(x, 3), lambda x: np.round(x),
    lambda x: np.take_along_axis(x, np.argmax(x, 1)[:, None], 1),
]  # fmt: skip


@pytest.mark.parametrize("use", SAME)
def test_numpys_functions_work_on_traced_arrays(use: Callable[[Any], Any]) -> None:
    (got,) = interpreted(use, X)
    wanted = use(X)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(got, wanted, rtol=1e-13)


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (lambda x: np.sort(x), r"np\.sort cannot be traced: compiled functions have no such function; .*outside of"),
        (lambda x: np.linalg.inv(x), r"np\.linalg\.inv cannot be traced"),
        (lambda x: np.fft.fft(x), r"np\.fft\.fft cannot be traced"),
        (lambda x: np.emath.sqrt(x), r"np\.lib\.scimath\.sqrt cannot be traced"),
        (lambda x: np.einsum("ij->i", x), r"np\.einsum cannot be traced"),
        (lambda x: np.sum(x, where=x > 1), r"unexpected keyword argument 'where'\): here it is sum\(x, /, axis=None"),
        (lambda x: np.sum(x, initial=3.0), "unexpected keyword argument 'initial'"),
        (lambda x: np.round(x, 2), "unexpected keyword argument 'decimals'"),
        (lambda x: np.where(x > 1), r"here it is where\(condition, x1, x2, /\)"),
        (lambda x: np.add.reduce(x), r"np\.add\.reduce with this method cannot be traced"),
        (lambda x: np.add(x, x, out=X), r"np\.add with out cannot be traced"),
        (lambda x: np.sum(x, out=X), "unexpected keyword argument 'out'"),
    ],
)
def test_what_is_not_there_is_refused_by_name(use: Callable[[Any], Any], says: str) -> None:
    with pytest.raises(TraceError, match=says):
        trace(use, (X,))


def test_names_of_the_module_that_are_no_functions_of_it_are_not_found() -> None:
    def annotations(x: Any) -> Any:
        return x

    annotations.__module__ = "numpy"
    with pytest.raises(TraceError, match=r"np\.annotations cannot be traced"):
        trace(lambda x: xp.numpy_call(annotations, (x,), {}), (X,))
