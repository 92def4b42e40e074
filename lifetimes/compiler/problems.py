"""The errors of tracing that are also what NumPy would have raised, so that a test for NumPy's error still finds it."""

from __future__ import annotations

from lifetimes.errors import TraceError

__all__ = ["IndexProblem", "RangeProblem", "ShapeProblem", "ValueProblem"]


class ValueProblem(TraceError, ValueError):
    """A number that the operation is not defined for."""


class ShapeProblem(ValueProblem):
    """Shapes or axes that do not fit; the message names them."""


class IndexProblem(TraceError, IndexError):
    """An index known while tracing that is outside of the array."""


class RangeProblem(TraceError, OverflowError):
    """A Python number that the array's dtype cannot hold."""
