"""Every public name says what it is, every example runs, and the pages say nothing of one machine only."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import lifetimes
from tests.documentation import blocks, undocumented
from tests.layering import Table, modules

ROOT = Path(__file__).parent.parent
TABLE = Table.read(Path(__file__).parent / "layers.toml")
MODULES = sorted(
    name
    for name in modules([ROOT / "lifetimes", *(ROOT / "backends" / name for name in TABLE.backends)])
    if not name.endswith("__main__")  # importing it would run it
)
PUBLIC = [name for name in MODULES if not any(part.startswith("_") for part in name.split("."))]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXTRAS = ("BTrees", "cupy", "llvmlite", "matplotlib", "pyopencl")
"""What an extra brings: a module that needs one of these is skipped where it is not installed."""


def load(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] in EXTRAS:
            pytest.skip(f"{name} needs {error.name}")
        raise


def package_protocols() -> list[type]:
    """The protocols that `lifetimes.backend` and each `protocol` module export."""
    found: list[type] = []
    for name in MODULES:
        if name == "lifetimes.backend" or name.endswith(".protocol"):
            module = importlib.import_module(name)
            found += [value for value in vars(module).values() if getattr(value, "_is_protocol", False)]
    return [value for value in found if inspect.isclass(value) and value.__module__.startswith("lifetimes.")]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_documented(name: str) -> None:
    silent = undocumented(load(name), package_protocols())
    assert not silent, f"no docstring: {silent}"


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name: str) -> None:
    module = load(name)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    said: list[str] = []
    for test in doctest.DocTestFinder(exclude_empty=True).find(module):
        runner.run(test, out=said.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order and in one namespace, as a reader would type them."""
    run_page(page, tmp_path, monkeypatch)


def run_page(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.chdir(folder)
    names: dict[str, object] = {"__name__": "__main__"}
    ran = 0
    for block in blocks(page):
        if block.not_run:
            continue
        ran += 1
        where = f"{page.name}, line {block.line}"
        if block.language == "python" and ">>>" not in block.source:
            exec(compile("\n" * block.line + block.source, str(page), "exec", dont_inherit=True), names)
            continue
        test = doctest.DocTestParser().get_doctest(block.source, names, where, str(page), block.line)
        said: list[str] = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
        failed = runner.run(test, out=said.append, clear_globs=False).failed
        names.update(test.globs)
        assert not failed, "".join(said)
    return ran


def test_the_reference_lists_what_there_is() -> None:
    """One line for each module or folder of the package, and none for what is only planned."""
    listed = set(re.findall(r"^\| `(lifetimes\.\w+)/?` \|", (ROOT / "docs" / "reference.md").read_text(), re.MULTILINE))
    there = {".".join(name.split(".")[:2]) for name in PUBLIC if name.startswith("lifetimes.")}
    assert listed == there, f"missing: {sorted(there - listed)}; not there: {sorted(listed - there)}"


# What is true of one machine only, or of the package index somebody happens to use.
FOREIGN = re.compile(
    r"""(?<![\w.$~}*)-]) / (?: root | home | Users | work | farm | tmp ) / \w   # a path into somebody's disk
      | \b https?:// [^/\s]* (?: pypi | pythonhosted | registry | mirror )       # an index, public or not
      | \b https?:// (?: \d+\.\d+\.\d+\.\d+ | localhost )
      | --(?: extra- )?index-url | \b(?: extra[-_] )?index[-_]url\s*=
    """,
    re.VERBOSE | re.IGNORECASE,
)


def tracked() -> list[Path]:
    """The files that a commit would hold."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"not a checkout that git can list: {error}")
    return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def foreign(path: Path) -> list[str]:
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return []
    return [
        f"{path}:{number}: {line.strip()[:90]}"
        for number, line in enumerate(text.splitlines(), 1)
        if FOREIGN.search(line)
    ]


def test_no_tracked_text_names_a_machine_or_an_index() -> None:
    found = [line for path in tracked() for line in foreign(path)]
    assert not found, "\n" + "\n".join(found)


# The checks above are checked here.


def test_a_planted_path_or_index_is_found(tmp_path: Path) -> None:
    halves = [
        ("see /ho", "me/ann"),
        ("cp x /tm", "p/y"),
        ("https://py", "pi.org/x"),
        ("--index", "-url x"),
        ("http://10.0", ".0.7/a"),
    ]
    planted = ["".join(pair) for pair in halves]  # in halves, or this file would be found itself
    innocent = [
        "$HOME/tmp/x",
        "and/or",
        "a/work/b",
        "https://example.org/home/x",
        "https://github.com/x/y",
        "~/tmp/z",
        "/dev/shm",
    ]
    page = tmp_path / "page.md"
    page.write_text("\n".join(planted + innocent))
    assert [line.split(": ", 1)[1] for line in foreign(page)] == planted


def test_a_planted_silence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("planted")
    monkeypatch.setitem(sys.modules, "planted", module)  # where @dataclass looks for it
    source = """
from dataclasses import dataclass
from typing import Protocol
__all__ = ["Named", "Bare", "Data", "f", "Speaks", "CONSTANT"]
CONSTANT = 1
class Named(Protocol):
    "Words."
    size: int
    done: int
    def get(self): "Words."
    def put(self): "Words."
class Bare:
    done: int
    def __init__(self): self.size = 1
    def get(self): pass
    def put(self): pass
    def more(self): pass
    def _own(self): pass
    def test_that_more_is_more(self): pass
@dataclass
class Data:
    x: int
    @property
    def double(self): return 2 * self.x
def f(): pass
class Speaks:
    "Words."
    def get(self): "Words."
    @classmethod
    def make(cls): "Words."
"""
    exec(source, vars(module))
    silent = {name.removeprefix("planted.") for name in undocumented(module, [vars(module)["Named"]])}
    assert silent == {"Bare", "Bare.more", "Data", "Data.double", "f"}


def test_a_planted_bad_example_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    fence = "`" * 3
    page.write_text(
        f"{fence}python\nx = 1\n{fence}\n\n{fence}python\nassert x == 1\n{fence}\n{fence}pycon\n>>> x\n1\n{fence}\n"
    )
    assert run_page(page, tmp_path, monkeypatch) == 3
    page.write_text(f"<!-- not run: needs a GPU -->\n{fence}python\n1 / 0\n{fence}\n{fence}sh\nrm x\n{fence}\n")
    assert run_page(page, tmp_path, monkeypatch) == 0
    for body in ("1 / 0", ">>> 1\n2"):
        page.write_text(f"{fence}python\n{body}\n{fence}\n")
        with pytest.raises((ZeroDivisionError, AssertionError)):
            run_page(page, tmp_path, monkeypatch)
    page.write_text(f"- a list\n\n    {fence}python\n    def f():\n        return 1\n    {fence}\n")
    assert run_page(page, tmp_path, monkeypatch) == 1


@pytest.mark.parametrize("info", ["python no-run", "python no-run=x", "py", "{.python}", "python3"])
def test_a_block_cannot_be_left_out_quietly(tmp_path: Path, info: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"text\n\n<!-- not run: -->\n```{info}\n1 / 0\n```\n")
    with pytest.raises(ValueError, match=r"page\.md:4"):
        list(blocks(page))


def test_the_comment_needs_a_reason(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- not run: -->\n```python\n1 / 0\n```\n")
    assert [block.not_run for block in blocks(page)] == [""]


def test_the_package_is_the_one_of_this_tree() -> None:
    assert Path(lifetimes.__file__).is_relative_to(ROOT)
