"""The demo's results against NumPy's, from the same data read anew, piece by piece.

Note [Tolerances].  Sums may differ by rounding, which 1e-10 covers generously.  A vector that a power iteration has left with
a residual r is within r of an eigenvector of a matrix that differs from ours by r, so its eigenvalue may be r off;
the vector itself may be r divided by the distance to the next eigenvalue off (Davis and Kahan 1970, "The rotation of
eigenvectors by a perturbation III", the sine theorem).  Where that says nothing, because two eigenvalues nearly agree
or the iteration was stopped, the angle is told and not judged; the residual in NumPy's own matrix always is.  Generated
data are known to settle, so with them a residual that is left is itself a fault.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from lifetimes.cli.demo_data import Matrix, Source
from lifetimes.cli.demo_plan import Plan
from lifetimes.cli.demo_work import SETTLED, Results, Watch

__all__ = ["Error", "Reference", "compare", "reference"]

ROUNDING: Final = 1e-10
VECTORS: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Error:
    """A relative error and what it may be; None where it cannot be judged."""

    what: str
    error: float
    tolerance: float | None

    @property
    def good(self) -> bool:
        """Whether it is within the tolerance; what is not judged does no harm, and what is no number is not good."""
        return self.tolerance is None or self.error <= self.tolerance


@dataclass(frozen=True, slots=True)
class Reference:
    """What NumPy finds."""

    mean: Matrix
    low: Matrix
    high: Matrix
    deviation: Matrix
    gram: Matrix


def reference(source: Source, plan: Plan, watch: Watch) -> Reference:
    """Two passes over the source, without a device."""
    columns = plan.columns
    total, squares, gram = np.zeros(columns), np.zeros(columns), np.zeros((columns, columns))
    low, high = np.full(columns, np.inf), np.full(columns, -np.inf)
    for chunk in chunks(source, plan, watch, "check: statistics"):
        total += np.add.reduce(chunk)
        low, high = np.minimum(low, np.min(chunk, 0)), np.maximum(high, np.max(chunk, 0))
    mean = total / plan.rows
    for chunk in chunks(source, plan, watch, "check: Gram matrix"):
        centred = chunk - mean
        squares += np.einsum("ij,ij->j", centred, centred)
        gram += np.dot(centred.T, centred)
    return Reference(mean, low, high, np.sqrt(squares / plan.rows), gram)


def chunks(source: Source, plan: Plan, watch: Watch, what: str) -> Iterable[Matrix]:
    """The data once more, from where they came."""
    for start in watch.each(plan.starts, what):
        yield source.read(start, plan.stop(start))


def compare(results: Results, expected: Reference, settles: bool = False) -> list[Error]:
    """One row for each result (Note [Tolerances]); ``settles`` says that the iteration has to have settled.

    >>> from lifetimes.cli.demo_work import Results
    >>> gram = np.diag([4.0, 1.0])
    >>> numbers = np.ones(2)
    >>> ours = Results(numbers, numbers, numbers, gram, [4.0, 1.0], [np.array([1.0, 0.0]), np.array([0.0, -1.0])], [0, 0])
    >>> all(row.good for row in compare(ours, Reference(numbers, numbers, numbers, ours.deviation, gram)))
    True
    """
    spread = max(largest(expected.low), largest(expected.high))
    errors = [
        Error("mean", relative(results.mean - expected.mean, spread), ROUNDING),
        Error("standard deviation", relative(results.deviation - expected.deviation, spread), ROUNDING),
        Error("minimum", relative(results.low - expected.low, spread), 0.0),
        Error("maximum", relative(results.high - expected.high, spread), 0.0),
        Error("Gram matrix", relative(results.gram - expected.gram, largest(expected.gram)), ROUNDING),
    ]
    if not results.eigenvalues:
        return errors
    values, vectors = np.linalg.eigh(expected.gram)
    values, vectors = values[::-1], vectors[:, ::-1]
    scale = max(float(values[0]), 0.0)
    values_off: list[float] = []
    misfits: list[float] = []
    angles: list[tuple[float, float]] = []
    left = 0.0  # what the residuals so far allow: each deflation hands its own on
    for number, (value, vector) in enumerate(zip(results.eigenvalues, results.eigenvectors, strict=True)):
        left += SETTLED if settles else results.residuals[number]
        # Stopped early, it may have come closer to a neighbour than to the one whose place it has.
        settled = settles or max(results.residuals[: number + 1]) <= SETTLED
        values_off.append(relative(values[number] - value if settled else np.abs(values - value).min(), scale))
        misfits.append(relative(float(np.linalg.norm(expected.gram @ vector - value * vector)), scale))
        angle = float(np.linalg.norm(vector - vectors[:, number] * (vectors[:, number] @ vector)))
        others = np.delete(values, number)
        gap = relative(np.abs(others - values[number]).min(), scale) if others.size else 1.0
        angles.append((angle, (left + ROUNDING) / gap if gap else np.inf))
    judged = [pair for pair in angles if pair[1] <= VECTORS]
    errors += [
        Error("eigenvalues", float(np.max(values_off)), left + ROUNDING),
        Error("eigenvectors, residual", float(np.max(misfits)), left + ROUNDING),
    ]
    for what, pairs, tolerance in (
        ("eigenvectors, angle", judged, VECTORS),
        ("eigenvectors with close neighbours", [pair for pair in angles if pair not in judged], None),
    ):
        if pairs:
            errors.append(Error(what, float(np.max([angle for angle, _ in pairs])), tolerance))
    return errors


def relative(difference: Matrix | float, scale: float) -> float:
    """The largest absolute difference over the scale; the difference itself where the scale is zero.

    >>> relative(np.array([1.0, -2.0]), 4.0), relative(0.0, 0.0)
    (0.5, 0.0)
    """
    return float(np.abs(difference).max()) / (scale or 1.0)


def largest(array: Matrix) -> float:
    """The largest absolute value."""
    return float(np.abs(array).max())
