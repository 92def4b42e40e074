"""The scenarios in `tests/scenarios.toml` point at tests that exist, and no area is excused too often."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
TOML = Path(__file__).parent / "scenarios.toml"
AREAS: dict[str, dict[str, Any]] = tomllib.loads(TOML.read_text())
COUNTS = {"memory": 18, "lifetimes": 25, "tables": 5, "leaks": 5, "jit": 21}
"""How many scenarios each area began with: none may fall out of the file."""
STATES = ("tests", "not_applicable", "owed")
CITING = ("jit",)
"""Areas whose tests name their scenario in the docstring, so that an entry cannot point at the test beside the right one."""


def scenarios(area: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: entry for name, entry in area.items() if name != "complete"}


def problems(area: dict[str, Any], root: Path) -> list[str]:
    """What is wrong with one area, a sentence each."""
    found = []
    entries = scenarios(area)
    for name, entry in entries.items():
        states = [state for state in STATES if entry.get(state)]
        unknown = sorted(set(entry) - {"what", "source", *STATES})
        if len(states) != 1 or unknown or not entry.get("what") or not entry.get("source"):
            found.append(f"{name} needs what, source and one of {STATES}; it has {sorted(entry)}")
            continue
        found += [
            f"{name} names {node}, which does not exist" for node in entry.get("tests", ()) if not exists(node, root)
        ]
    if area["complete"]:
        found += [
            f"{name} is owed ({entry['owed']}) in an area that is complete"
            for name, entry in entries.items()
            if entry.get("owed")
        ]
        excused = [name for name, entry in entries.items() if entry.get("not_applicable")]
        if 10 * len(excused) > len(entries):
            found.append(f"{len(excused)} of {len(entries)} are not applicable, more than one in ten: {excused}")
    return found


def exists(node: str, root: Path) -> bool:
    """Whether a node id names a test function or method; what a class inherits from a published suite counts."""
    file, *names = node.partition("[")[0].split("::")
    path = root / file
    if not path.is_file() or not names or not names[-1].startswith("test"):
        return False
    *outer, test = names
    tree = parsed(path)
    if not outer:
        return test in functions(tree.body)
    classes = {item.name: item for item in tree.body if isinstance(item, ast.ClassDef)}
    return len(outer) == 1 and outer[0] in classes and test in methods(classes[outer[0]], classes, root)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def functions(body: list[ast.stmt]) -> set[str]:
    return {item.name for item in body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))}


def methods(item: ast.ClassDef, classes: dict[str, ast.ClassDef], root: Path) -> set[str]:
    """The methods of a class with those of its bases, which are looked for beside it and in `lifetimes.testing`."""
    found = functions(item.body)
    for base in item.bases:
        name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
        for candidate in (classes.get(name), *suites(name, root)):
            if candidate is not None and candidate is not item:
                found |= methods(candidate, classes, root)
    return found


def suites(name: str, root: Path) -> Iterator[ast.ClassDef]:
    for path in sorted((root / "lifetimes" / "testing").rglob("*.py")):
        yield from (item for item in parsed(path).body if isinstance(item, ast.ClassDef) and item.name == name)


@pytest.mark.parametrize("area", AREAS)
def test_every_scenario_is_accounted_for(area: str) -> None:
    found = problems(AREAS[area], ROOT)
    assert not found, "\n" + "\n".join(found)


def test_no_scenario_fell_out_or_stands_twice() -> None:
    assert {area: len(scenarios(entries)) for area, entries in AREAS.items()} == COUNTS
    names = [name for entries in AREAS.values() for name in scenarios(entries)]
    assert len(set(names)) == len(names)


def uncited(area: dict[str, Any], root: Path) -> list[str]:
    """The tests of an area that do not say which scenario they show."""
    found = []
    for name, entry in scenarios(area).items():
        for node in entry.get("tests", ()):
            file, test = node.split("::")
            known = {item.name: item for item in parsed(root / file).body if isinstance(item, ast.FunctionDef)}
            words = ast.get_docstring(known[test]) or ""
            if name not in words and entry["source"] not in words:
                found.append(node)
    return found


@pytest.mark.parametrize("area", CITING)
def test_the_tests_of_a_scenario_name_it(area: str) -> None:
    assert uncited(AREAS[area], ROOT) == []


# The check is checked.


def test_a_test_that_shows_another_scenario_is_found(tree: Path) -> None:
    (tree / "tests" / "test_b.py").write_text('def test_one():\n    """BUG-1."""\ndef test_two():\n    """Not it."""\n')
    area = {"complete": False, "BUG-1": entry(tests=["tests/test_b.py::test_one", "tests/test_b.py::test_two"])}
    assert uncited(area, tree) == ["tests/test_b.py::test_two"]


SUITE = "class Suite:\n    def test_inherited(self): ...\n"
TESTS = """
from lifetimes.testing import Suite
def test_plain(): ...
def helper(): ...
class TestOwn(Suite):
    def test_own(self): ...
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "lifetimes" / "testing").mkdir(parents=True)
    (tmp_path / "lifetimes" / "testing" / "suite.py").write_text(SUITE)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(TESTS)
    return tmp_path


@pytest.mark.parametrize("node", ["test_plain", "test_plain[a::b]", "TestOwn::test_own", "TestOwn::test_inherited"])
def test_a_test_that_exists_is_found(tree: Path, node: str) -> None:
    assert exists(f"tests/test_a.py::{node}", tree)


@pytest.mark.parametrize(
    "node",
    [
        "a.py::test_gone",
        "a.py::helper",
        "a.py::TestOwn::test_plain",
        "a.py::TestOwn",
        "a.py",
        "b.py::test_plain",
        "a.py::TestGone::test_own",
    ],
)
def test_a_test_that_does_not_exist_is_missed(tree: Path, node: str) -> None:
    assert not exists(f"tests/test_{node}", tree)


def entry(**state: Any) -> dict[str, Any]:
    return {"what": "a fault", "source": "a/b#1", **state}


@pytest.mark.parametrize(
    ("area", "says"),
    [
        ({"complete": False, "A": entry(tests=["tests/test_a.py::test_gone"])}, "does not exist"),
        ({"complete": False, "A": entry()}, "needs what"),
        ({"complete": False, "A": entry(tests=[])}, "needs what"),
        ({"complete": False, "A": entry(owed="x", not_applicable="y")}, "needs what"),
        ({"complete": False, "A": entry(owed="x", todo=True)}, "needs what"),
        ({"complete": False, "A": {"owed": "x", "source": "a/b#1"}}, "needs what"),
        ({"complete": True, "A": entry(owed="x")}, "is owed"),
        ({"complete": True, "A": entry(not_applicable="y")}, "more than one in ten"),
    ],
)
def test_a_planted_fault_is_named(tree: Path, area: dict[str, Any], says: str) -> None:
    found = problems(area, tree)
    assert len(found) == 1, found
    assert says in found[0]


def test_one_in_ten_may_be_excused(tree: Path) -> None:
    good = {f"A{n}": entry(tests=["tests/test_a.py::test_plain"]) for n in range(9)}
    assert problems({"complete": True, "B": entry(not_applicable="y"), **good}, tree) == []
    assert problems({"complete": False, "B": entry(owed="x"), "C": entry(not_applicable="y")}, tree) == []
