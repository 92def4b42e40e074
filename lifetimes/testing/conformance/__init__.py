"""Conformance suites: what a part must do to be interchangeable, as test classes to derive from.

A test file for a new part is a class that derives from a suite and says how the part is made.  The suites need the
extra ``test`` (pytest and Hypothesis).
"""

from __future__ import annotations

import pkgutil

import pytest

# The asserts of the suites explain themselves as those of a test file do.  It has to be said before they are imported.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))
