"""The demo's computation: statistics, Gram matrix and leading eigenvectors of data that do not fit on the device.

It is meant to be read as an example.  The data are a list of arrays, each a few rows of the matrix.  `Device.call` enqueues a
function on the device's stream; the function gets NumPy views of the arrays' device memory, and ``modes`` says of each
whether it is read (``r``), overwritten (``w``) or updated (``u``).  That is all the library has to know: it brings what a call
needs to the device, takes away what was not used for longest, and copies back first what was changed.  Nothing below
ever asks where an array is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

import numpy as np

from lifetimes import Array, Device
from lifetimes.cli.demo_data import Matrix, Source
from lifetimes.cli.demo_plan import Plan

__all__ = ["COMPONENTS", "MOST_PASSES", "SETTLED", "DataSet", "Results", "Watch", "compute", "load"]

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


def compute(data: DataSet, watch: Watch) -> Results:
    """Everything: one pass for the statistics, one to centre the data, and then many for the eigenvectors."""
    device, columns = data.device, data.columns

    total = device.zeros(columns, label="total")
    low = device.asarray(np.full(columns, np.inf), label="low")
    high = device.asarray(np.full(columns, -np.inf), label="high")
    for chunk in data.each_chunk(watch, "statistics", "mean, minimum, maximum"):
        device.call(add_statistics, chunk, total, low, high, modes="ruuu")

    mean = device.asarray(total.numpy() / data.rows, label="mean")
    gram = device.zeros((columns, columns), label="Gram matrix")
    for chunk in data.each_chunk(watch, "centring", "centre, Gram matrix"):
        device.call(centre, chunk, mean, gram, modes="uru")  # changes the chunk: it has to be copied back

    results = Results(mean.numpy(), low.numpy(), high.numpy(), gram.numpy(), rows=data.rows)
    gram.close()  # drop what is not needed any more: it will not be in the way of the rest
    find_eigenvectors(data, results, watch)
    return results


def find_eigenvectors(data: DataSet, results: Results, watch: Watch) -> None:
    """Power iteration over the data: ``v`` becomes ``X' (X v)``, until it only grows; then it is taken out of the data."""
    device, columns = data.device, data.columns
    random = np.random.default_rng(1)
    scores = [device.empty(len(chunk), label="scores") for chunk in data.chunks]
    product = device.empty(columns, label="product")
    figures = device.empty(2, label="figures")

    count = min(COMPONENTS, columns)
    for number in range(1, count + 1):
        start = random.standard_normal(columns)
        for known in results.eigenvectors:  # nothing of what was taken out
            start -= (known @ start) * known
        vector = device.asarray(unit(start), label=f"eigenvector {number}")
        for _ in range(MOST_PASSES):
            device.call(clear, product, modes="w")
            for chunk, score in zip(data.each_chunk(watch, "power", f"eigenvector {number}"), scores, strict=True):
                device.call(multiply, chunk, vector, score, product, modes="rrwu")
            device.call(measure, vector, product, figures, modes="rrw")
            eigenvalue, residual = figures.numpy().tolist()
            largest = results.eigenvalues[0] if results.eigenvalues else eigenvalue
            residual = residual / largest if largest else 0.0
            watch.settling(f"eigenvector {number}", residual, SETTLED)
            if residual <= SETTLED:
                break
            device.call(follow, vector, product, modes="wr")

        results.eigenvalues.append(eigenvalue)
        results.eigenvectors.append(vector.numpy())
        results.residuals.append(residual)
        if number < count:
            for chunk, score in zip(data.each_chunk(watch, "deflation", "take it out"), scores, strict=True):
                device.call(deflate, chunk, vector, score, modes="urw")  # changes the chunks again


# What runs on the device: plain functions of NumPy arrays.


def add_statistics(x: Matrix, total: Matrix, low: Matrix, high: Matrix) -> None:
    """Column sums, minima and maxima, continued over a chunk."""
    total += x.sum(axis=0)
    np.minimum(low, x.min(axis=0), out=low)
    np.maximum(high, x.max(axis=0), out=high)


def centre(x: Matrix, mean: Matrix, gram: Matrix) -> None:
    """Subtract the mean from a chunk, and continue the Gram matrix."""
    x -= mean
    gram += x.T @ x


def clear(x: Matrix) -> None:
    """All zero."""
    x[...] = 0.0


def multiply(x: Matrix, vector: Matrix, score: Matrix, product: Matrix) -> None:
    """Continue ``X' (X v)`` over a chunk.

    This waits for memory, not for arithmetic: ``einsum`` is as fast as ``@`` and leaves the other cores alone.
    """
    np.einsum("ij,j->i", x, vector, out=score)
    product += np.einsum("i,ij->j", score, x)


def measure(vector: Matrix, product: Matrix, figures: Matrix) -> None:
    """The eigenvalue that fits best (the Rayleigh quotient), and by how much it does not fit."""
    eigenvalue = vector @ product
    figures[...] = eigenvalue, np.linalg.norm(product - eigenvalue * vector)


def follow(vector: Matrix, product: Matrix) -> None:
    """The next vector."""
    vector[...] = unit(product)


def deflate(x: Matrix, vector: Matrix, score: Matrix) -> None:
    """Take the direction out of a chunk, so that the next strongest is left; the scores say how much of it there was."""
    np.einsum("ij,j->i", x, vector, out=score)
    x -= np.outer(score, vector)


def unit(vector: Matrix) -> Matrix:
    """The same direction, of length one; zero stays zero."""
    length = np.linalg.norm(vector)
    scaled: Matrix = vector / length if length else vector
    return scaled
