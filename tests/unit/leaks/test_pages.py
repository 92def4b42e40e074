"""The pages on leaks: their code is run, and what they show of the output is what comes out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documentation import blocks

DOCS = Path(__file__).parents[3] / "docs"
HUNT = DOCS / "tutorial" / "leak-hunt.md"
SUITE = DOCS / "how-to" / "use-with-pytest.md"


def shown(page: Path) -> list[list[str]]:
    """The outputs on a page, each as lines with * for what changes from run to run."""
    texts = re.findall(r"```text\n(.*?)```", page.read_text(), re.DOTALL)
    return [[pattern(line) for line in text.splitlines()] for text in texts]


def pattern(line: str) -> str:
    line = re.sub(r"#\d+|_{3,}", "*", line).replace("[", "[[]").replace("...", "*")
    return re.sub(r"(train\.py):\d+", r"\1:*", line)


def run(folder: Path, *words: str) -> tuple[pytest.LineMatcher, str]:
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=100, check=True)
    return pytest.LineMatcher(done.stdout.splitlines()), done.stderr


def test_the_suite_of_the_page_gives_the_output_of_the_page(pytester: pytest.Pytester) -> None:
    (source,) = [block.source for block in blocks(SUITE)]
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider\n")
    pytester.path.joinpath("test_images.py").write_text(source)
    result = pytester.runpytest_subprocess("-p", "lifetimes_pytest", "--leaks=error")
    result.assert_outcomes(passed=3, failed=1, errors=1)
    outputs = shown(SUITE)
    assert len(outputs) == 2
    for lines in outputs:
        result.stdout.fnmatch_lines(lines)
    # Without the option, the fixture still checks its one test.
    pytester.runpytest_subprocess("-p", "lifetimes_pytest").assert_outcomes(passed=3, failed=1, errors=1)


def test_the_hunt_says_what_its_page_shows(tmp_path: Path) -> None:
    report, reason, from_outside = shown(HUNT)
    sources = [block.source for block in blocks(HUNT)]
    (tmp_path / "train.py").write_text("".join(sources))
    matcher, stderr = run(tmp_path, "train.py")
    assert stderr == ""
    matcher.fnmatch_lines([*report, *reason])
    assert (tmp_path / "leaks.html").exists()
    (tmp_path / "train.py").write_text("".join(sources[:2]))
    _, stderr = run(tmp_path, "-m", "lifetimes", "leaks", "train.py")
    pytest.LineMatcher(stderr.splitlines()).fnmatch_lines([*from_outside, "lifetimes leaks: nothing leaked"])
