"""That the tests of this folder do run: on PoCL from the package index, wherever it can work."""

from __future__ import annotations

import pytest

from lifetimes_opencl import probing
from tests.opencl.here import PIP_POCL, expected_here, require


def test_pocl_of_the_package_index_is_here() -> None:
    if not expected_here():
        pytest.skip("PoCL of the package index is for Linux on x86-64 with the linker ld, which this machine is not")
    survey = probing.survey()
    works = [each.platform_version for each in survey.devices if not each.problem]
    assert any(PIP_POCL in version for version in works), f"no working {PIP_POCL}: {survey}, {probing.usability()}"


def test_a_pattern_with_the_version_finds_it() -> None:
    index = require()
    found = probing.working()[index]
    assert probing.choose(found.platform_version.split("  ")[0]) == found
