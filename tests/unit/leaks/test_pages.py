"""The page on pytest: its suite is run, and what it shows of the output is what comes out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documentation import blocks

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "use-with-pytest.md"


def test_the_suite_of_the_page_gives_the_output_of_the_page(pytester: pytest.Pytester) -> None:
    (source,) = [block.source for block in blocks(PAGE)]
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider\n")
    pytester.path.joinpath("test_images.py").write_text(source)
    result = pytester.runpytest_subprocess("-p", "lifetimes_pytest", "--leaks=error")
    result.assert_outcomes(passed=3, failed=1, errors=1)
    shown = re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(shown) == 2
    for text in shown:
        lines = [re.sub(r"#\d+", "#*", line).replace("[", "[[]").replace("...", "*") for line in text.splitlines()]
        lines = [re.sub(r"_{3,}", "*", line) for line in lines]
        result.stdout.fnmatch_lines(lines)
    # Without the option, the fixture still checks its one test.
    pytester.runpytest_subprocess("-p", "lifetimes_pytest").assert_outcomes(passed=3, failed=1, errors=1)
