"""An import goes only downwards, and no file grows past what one reads at a sitting."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.layering import Table, circles, modules, violations

ROOT = Path(__file__).parent.parent
TABLE = Table.read(Path(__file__).parent / "layers.toml")
LONGEST = 450

SMALL = Table(
    top="lib",
    layers={"lib.low": 0, "lib.mid": 1, "lib.twin": 1, "lib.tables": 2, "lib.code": 3, "lib.tool": 4},
    users=["lib.tool", "lib.testing"],
    aside=["lib.testing"],
    backends=["lib_host", "lib_other"],
    limits={"lib.code": 0, "lib.code.launch": 2, "lib_host": ["lib.low"], "lib_other": ["lib.low"]},
)
"""The table of the planted trees below."""

FILES = (
    "__init__",
    "low",
    "mid",
    "twin",
    "tables/__init__",
    "tables/one",
    "code/__init__",
    "code/launch",
    "tool",
    "testing",
)


def roots() -> list[Path]:
    return [ROOT / "lifetimes", *(ROOT / "backends" / name for name in TABLE.backends)]


def test_imports_go_downwards() -> None:
    found = violations(roots(), TABLE)
    assert not found, "\n" + "\n".join(found)


def test_every_back_end_is_in_the_table() -> None:
    folders = {path.parent.name for path in (ROOT / "backends").glob("*/__init__.py")}
    assert folders == set(TABLE.backends)


def plant(tmp_path: Path, sources: dict[str, str]) -> list[str]:
    """The violations of a small tree with the given files filled; all others are empty."""
    files = dict.fromkeys([*(f"lib/{name}" for name in FILES), "lib_host/__init__", "lib_other/__init__"], "")
    for name, text in (files | sources).items():
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return violations([tmp_path / "lib", tmp_path / "lib_host", tmp_path / "lib_other"], SMALL)


def test_a_tree_that_keeps_the_rules_passes(tmp_path: Path) -> None:
    sources = {
        "lib/mid": "from lib.low import thing\nfrom lib import low\nimport os, sys\n",
        "lib/twin": "import lib.mid",  # a sibling of the same layer
        "lib/tables/one": "from . import two\nfrom ..mid import x",
        "lib/tables/two": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from lib.tables.one import One",
        "lib/tool": "import lib\nfrom lib.tables import one",
        "lib/testing": "import lib\nimport lib.tool",
        "lib/code/launch": "from lib.tables import one\nfrom lib.code import forms",
        "lib/code/forms": "from lib.low import x",
        "lib_host/__init__": "from lib_host.streams import x",
        "lib_host/streams": "from lib.low import x",
    }
    assert plant(tmp_path, sources) == []


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("lib/low", "from lib.mid import x", "layer 0 may not know of layer 1"),
        ("lib/low", "import lib.tool", "layer 0 may not know of layer 4"),
        ("lib/low", "def f():\n    from lib import tables", "layer 0 may not know of layer 2"),
        ("lib/low", "from .mid import x", "layer 0 may not know of layer 1"),
        ("lib/low", "from . import mid", "layer 0 may not know of layer 1"),
        ("lib/low", "from .mid import *", "layer 0 may not know of layer 1"),
        ("lib/mid", "from lib.tables.one import x", "layer 1 may not know of layer 2"),
        (
            "lib/mid",
            "import importlib\nm = importlib.import_module('lib.tables.one')",
            "layer 1 may not know of layer 2",
        ),
        (
            "lib/low",
            "import typing\nif typing.TYPE_CHECKING:\n    from lib.mid import X",
            "layer 0 may not know of layer 1",
        ),
        ("lib/mid", "import lib_host", "a back end is found by name"),
        ("lib/mid", "def f():\n    from lib_host import backend", "a back end is found by name"),
        ("lib/tool", "from lib import testing", "it stands aside"),
        ("lib/__init__", "from lib.testing import x", "it stands aside"),
        ("lib/mid", "import lib", "it joins the layers from outside"),
        ("lib/mid", "from lib import open", "it joins the layers from outside"),
        ("lib/code/launch", "from lib.tool import x", "it may reach no further than 2"),
        ("lib/code/forms", "from lib.mid import x", "it may reach no further than 0"),
        ("lib/code/launch", "def f():\n    import lib_host", "a back end is found by name"),
        ("lib_host/__init__", "from lib.mid import x", "it may reach no further than ['lib.low']"),
        ("lib_host/__init__", "import lib", "it joins the layers from outside"),
        ("lib_host/__init__", "import lib_other", "a back end is found by name"),
        ("lib/stray", "", "lib.stray is in no layer"),
        ("lib/deep/stray", "", "lib.deep.stray is in no layer"),
    ],
)
def test_a_planted_violation_is_named(tmp_path: Path, name: str, text: str, says: str) -> None:
    found = plant(tmp_path, {name: text})
    assert len(found) == 1, found
    assert says in found[0]


def test_a_planted_circle_is_named(tmp_path: Path) -> None:
    found = plant(tmp_path, {"lib/mid": "from lib.twin import x", "lib/twin": "def late():\n    from lib.mid import y"})
    assert found == ["imports go round in a circle: lib.mid -> lib.twin -> lib.mid"]


def test_circles_are_found_off_the_starting_path() -> None:
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": {"d"}, "d": {"b"}, "e": {"a"}}) == [["b", "c", "d", "b"]]
    assert circles({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}) == []


def test_a_file_can_be_set_apart_from_its_folder() -> None:
    table = Table(top="lib", layers={"lib.a": 1, "lib.a.deep": 3})
    assert (table.layer("lib.a.b"), table.layer("lib.a.deep.c"), table.layer("lib.ab")) == (1, 3, None)


@pytest.mark.parametrize("folder", ["lifetimes", "backends", "bench"])
def test_no_file_is_too_long(folder: str) -> None:
    too_long = overlong(ROOT / folder)
    assert not too_long, f"split by concept (at most {LONGEST} lines): {too_long}"


def overlong(folder: Path) -> dict[str, int]:
    lengths = {str(path): len(path.read_text().splitlines()) for path in sorted(folder.rglob("*.py"))}
    return {name: length for name, length in lengths.items() if length > LONGEST}


def test_an_overlong_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "fits.py").write_text("x = 1\n" * LONGEST)
    (tmp_path / "long.py").write_text("x = 1\n" * (LONGEST + 1))
    assert overlong(tmp_path) == {str(tmp_path / "long.py"): LONGEST + 1}


def test_the_modules_are_found() -> None:
    assert {"lifetimes", "lifetimes.errors", "lifetimes.tables.protocol"} <= set(modules(roots()))
