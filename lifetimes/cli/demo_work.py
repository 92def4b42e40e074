"""The demo's computation: statistics, Gram matrix and leading eigenvectors of data that do not fit on the device.

It is meant to be read as an example.  The data are a list of arrays, each a few rows of the matrix.  What is computed stands
at the end, as plain functions of arrays.  `Steps` has `lifetimes.jit` compile them, and writes their results into arrays that
are there; where nothing can be compiled, `Device.call` runs them as they are.  That is all the library has to know: it brings
what a step needs to the device, takes away what was not used for longest, and copies back first what was changed.
Nothing below ever asks where an array is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import numpy as np

import lifetimes
from lifetimes import Array, Device
from lifetimes.cli.demo_data import Matrix, Source
from lifetimes.cli.demo_plan import Plan

__all__ = ["COMPONENTS", "MOST_PASSES", "SETTLED", "DataSet", "Results", "Steps", "Watch", "compute", "load"]

T = TypeVar("T")
COMPONENTS: Final = 3
"""How many eigenvectors."""
SETTLED: Final = 1e-9
"""A vector is an eigenvector when what the matrix makes of it is so close to a multiple of it, relative to the largest."""
MOST_PASSES: Final = 60
"""For one eigenvector; neighbours that are close together would take for ever."""


class Watch(Protocol):
    """Who looks on while the work is done."""

    def each(self, items: Iterable[T], what: str) -> Iterable[T]:
        """The items, one after the other: a pass."""
        ...

    def settling(self, what: str, residual: float, goal: float) -> None:
        """How close an iteration has come."""
        ...


@dataclass(slots=True)
class DataSet:
    """A matrix of ``rows`` times ``columns`` as arrays of whole rows, and the passes that have been made over it."""

    device: Device
    chunks: list[Array]
    rows: int
    columns: int
    passes: Counter[str] = field(default_factory=Counter)

    def each_chunk(self, watch: Watch, kind: str, what: str = "") -> Iterable[Array]:
        """The chunks, for one pass of that kind."""
        self.passes[kind] += 1
        return watch.each(self.chunks, what or kind)


@dataclass(slots=True)
class Results:
    """What was computed.  The Gram matrix is that of the centred data; ``eigenvectors`` has one in each row."""

    mean: Matrix
    low: Matrix
    high: Matrix
    gram: Matrix
    eigenvalues: list[float] = field(default_factory=list)
    eigenvectors: list[Matrix] = field(default_factory=list)
    residuals: list[float] = field(default_factory=list)
    rows: int = 1

    @property
    def deviation(self) -> Matrix:
        """The standard deviation of each column: the diagonal of the Gram matrix has the sums of squares."""
        deviation: Matrix = np.sqrt(np.diagonal(self.gram) / self.rows)
        return deviation


def load(device: Device, source: Source, plan: Plan, watch: Watch) -> DataSet:
    """Put the data into managed arrays.  They go to the device when they are first used."""
    chunks = []
    for start in watch.each(plan.starts, "load the data"):
        rows = source.read(start, plan.stop(start))
        # copy=False: nobody else changes these rows, so they need not be copied once more.
        chunks.append(device.asarray(rows, copy=False, label=f"rows {start} to {plan.stop(start) - 1}"))
    return DataSet(device, chunks, plan.rows, plan.columns)


class Steps:
    """Runs functions of arrays on the device.  ``why`` says why they are not compiled, and is empty when they are."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.why = ""
        self._compiled: dict[Callable[..., Any], Callable[..., None]] = {}
        try:
            with device.empty(1) as probe:
                lifetimes.jit(clear)(probe)
        except lifetimes.BackendError as error:  # no compiler, or a device that runs no code of the processor
            self.why = str(error)

    def run(self, function: Callable[..., Any], results: Array | Sequence[Array], *args: Array) -> None:
        """Put ``function(*args)`` into the arrays ``results``, which may be among the arguments."""
        if not self.why:
            if function not in self._compiled:
                self._compiled[function] = lifetimes.jit(function).into
            self._compiled[function](results, *args)
            return
        outs = [results] if isinstance(results, Array) else list(results)
        call = partial(apply, function, len(args))
        self.device.call(call, *args, *outs, modes="r" * len(args) + "w" * len(outs))


def apply(function: Callable[..., Any], count: int, *views: Matrix) -> None:
    """Call ``function`` with the first ``count`` views and put what it returns into the others."""
    found = function(*views[:count])
    for view, each in zip(views[count:], found if isinstance(found, tuple) else (found,), strict=True):
        view[...] = each


def compute(data: DataSet, steps: Steps, watch: Watch) -> Results:
    """Everything: one pass for the statistics, one to centre the data, and then many for the eigenvectors."""
    device, columns = data.device, data.columns

    total = device.zeros(columns, label="total")
    low = device.asarray(np.full(columns, np.inf), label="low")
    high = device.asarray(np.full(columns, -np.inf), label="high")
    for chunk in data.each_chunk(watch, "statistics", "mean, minimum, maximum"):
        steps.run(add_statistics, (total, low, high), chunk, total, low, high)

    mean = device.asarray(total.numpy() / data.rows, label="mean")
    gram = device.zeros((columns, columns), label="Gram matrix")
    part = device.empty((columns, columns), label="Gram matrix of a chunk")
    for chunk in data.each_chunk(watch, "centring", "centre, Gram matrix"):
        steps.run(centre, chunk, chunk, mean)  # changes the chunk: it has to be copied back
        steps.run(gram_of, part, chunk)
        steps.run(add, gram, gram, part)

    results = Results(mean.numpy(), low.numpy(), high.numpy(), gram.numpy(), rows=data.rows)
    gram.close()  # drop what is not needed any more: it will not be in the way of the rest
    part.close()
    find_eigenvectors(data, steps, results, watch)
    return results


def find_eigenvectors(data: DataSet, steps: Steps, results: Results, watch: Watch) -> None:
    """Power iteration over the data: ``v`` becomes ``X' (X v)``, until it only grows; then it is taken out of the data."""
    device, columns = data.device, data.columns
    random = np.random.default_rng(1)
    scores = [device.empty(len(chunk), label="scores") for chunk in data.chunks]
    product = device.empty(columns, label="product")
    fit, misfit = device.empty((), label="eigenvalue"), device.empty((), label="residual")

    count = min(COMPONENTS, columns)
    for number in range(1, count + 1):
        start = random.standard_normal(columns)
        for known in results.eigenvectors:  # nothing of what was taken out
            start -= (known @ start) * known
        vector = device.asarray(unit(start), label=f"eigenvector {number}")
        for _ in range(MOST_PASSES):
            steps.run(clear, product, vector)
            for chunk, score in zip(data.each_chunk(watch, "power", f"eigenvector {number}"), scores, strict=True):
                steps.run(project, score, chunk, vector)
                steps.run(gather, product, chunk, score, product)
            steps.run(measure, (fit, misfit), vector, product)
            eigenvalue, residual = float(fit.numpy()), float(misfit.numpy())
            largest = results.eigenvalues[0] if results.eigenvalues else eigenvalue
            residual = residual / largest if largest else 0.0
            watch.settling(f"eigenvector {number}", residual, SETTLED)
            if residual <= SETTLED:
                break
            steps.run(unit, vector, product)

        results.eigenvalues.append(eigenvalue)
        results.eigenvectors.append(vector.numpy())
        results.residuals.append(residual)
        if number < count:
            for chunk, score in zip(data.each_chunk(watch, "deflation", "take it out"), scores, strict=True):
                steps.run(project, score, chunk, vector)
                steps.run(deflate, chunk, chunk, score, vector)  # changes the chunks again


# What runs on the device: functions of arrays, compiled ones or NumPy's.


def add_statistics(x: Matrix, total: Matrix, low: Matrix, high: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Column sums, minima and maxima, continued over a chunk."""
    return total + np.sum(x, axis=0), np.minimum(low, np.min(x, axis=0)), np.maximum(high, np.max(x, axis=0))


def centre(x: Matrix, mean: Matrix) -> Matrix:
    """A chunk without the mean."""
    return x - mean


def gram_of(x: Matrix) -> Matrix:
    """The Gram matrix of a chunk."""
    return x.T @ x


def add(a: Matrix, b: Matrix) -> Matrix:
    """The sum."""
    return a + b


def clear(x: Matrix) -> Matrix:
    """As many zeros."""
    return np.zeros_like(x)


def project(x: Matrix, vector: Matrix) -> Matrix:
    """How much of a direction there is in each row: ``X v``, as one kernel that waits for memory and nothing else."""
    found: Matrix = np.sum(x * vector, axis=1)
    return found


def gather(x: Matrix, score: Matrix, product: Matrix) -> Matrix:
    """Continue ``X' (X v)`` over a chunk."""
    found: Matrix = product + np.sum(x * score[:, None], axis=0)
    return found


def measure(vector: Matrix, product: Matrix) -> tuple[Any, Any]:
    """The eigenvalue that fits best (the Rayleigh quotient), and by how much it does not fit."""
    eigenvalue = np.sum(vector * product)
    return eigenvalue, np.sqrt(np.sum((product - eigenvalue * vector) ** 2))


def deflate(x: Matrix, score: Matrix, vector: Matrix) -> Matrix:
    """A chunk without a direction, so that the next strongest is left."""
    return x - score[:, None] * vector


def unit(vector: Matrix) -> Matrix:
    """The same direction, of length one; zero stays zero."""
    length = np.sqrt(np.sum(vector**2))
    return np.where(length > 0, vector / np.where(length > 0, length, 1.0), vector)
