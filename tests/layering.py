"""Reads the imports of a source tree and holds them against the table of layers.  `tests/test_layers.py` runs it."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

DYNAMIC = {"import_module", "__import__"}


@dataclass(frozen=True, slots=True)
class Import:
    """One import: what it names, where it stands, and whether only a type checker sees it."""

    target: str
    line: int
    typing_only: bool


@dataclass(slots=True)
class Table:
    """The table of layers as `tests/layers.toml` writes it."""

    top: str
    layers: dict[str, int]
    users: list[str] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)
    backends: list[str] = field(default_factory=list)
    limits: dict[str, int | list[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Table:
        return cls(**tomllib.loads(path.read_text()))

    def layer(self, module: str) -> int | None:
        """The layer of the longest prefix that fits, None for a module that no line is about."""
        fits = [prefix for prefix in self.layers if under(module, prefix)]
        return self.layers[max(fits, key=len)] if fits else None

    def held_to(self, module: str, target: str) -> int | list[str] | None:
        """The limit that keeps ``module`` from ``target``: the one of the longest prefix that fits, None if none does.

        What lies under a limited prefix that ``module`` lies under too is its own folder and free.
        """
        fits = sorted((prefix for prefix in self.limits if under(module, prefix)), key=len)
        if not fits or under(target, fits[0]) or self.within(target, self.limits[fits[-1]]):
            return None
        return self.limits[fits[-1]]

    def within(self, target: str, limit: int | list[str]) -> bool:
        """Whether a limit lets ``target`` through."""
        if isinstance(limit, list):
            return any(under(target, prefix) for prefix in limit)
        layer = self.layer(target)
        return layer is not None and layer <= limit

    def is_aside(self, module: str) -> bool:
        return any(under(module, prefix) for prefix in self.aside)

    def backend_of(self, module: str) -> str | None:
        return next((name for name in self.backends if under(module, name)), None)


def under(module: str, prefix: str) -> bool:
    """Whether ``module`` is ``prefix`` or lies inside it.

    >>> under("a.b", "a"), under("a", "a"), under("ab", "a")
    (True, True, False)
    """
    return module == prefix or module.startswith(prefix + ".")


def modules(roots: list[Path]) -> dict[str, Path]:
    """Every module of the packages at ``roots``, by its dotted name."""
    found = {}
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            parts = [root.name, *path.relative_to(root).with_suffix("").parts]
            if parts[-1] == "__init__":
                parts.pop()
            found[".".join(parts)] = path
    return found


def imports(name: str, path: Path, known: dict[str, Path]) -> list[Import]:
    """The imports of one module, wherever they stand; ``from package import module`` names the module."""
    tree = ast.parse(path.read_text(), str(path))
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    typing_only = {id(node) for block in typing_blocks(tree) for node in ast.walk(block)}
    found = []
    for node in ast.walk(tree):
        for target in targets(node, package):
            while target not in known and "." in target:  # `from module import name`: the name is no module
                target = target.rpartition(".")[0]
            if target in known and target != name:
                found.append(Import(target, node.lineno, id(node) in typing_only))  # type: ignore[attr-defined]
    return found


def typing_blocks(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements that only a type checker runs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If):
            test = node.test
            name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
            if name == "TYPE_CHECKING":
                yield from node.body


def targets(node: ast.AST, package: str) -> Iterator[str]:
    """The dotted names that one node imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*above, base] if base else above)
        yield from (base if alias.name == "*" else f"{base}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and node.args:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        first = node.args[0]
        if called in DYNAMIC and isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield first.value


def violations(roots: list[Path], table: Table) -> list[str]:
    """Every breach of the rules at the head of `tests/layers.toml`, a sentence each, with file and line."""
    known = modules(roots)
    graph: dict[str, set[str]] = {name: set() for name in known}
    found = []
    for name, path in known.items():
        if name != table.top and not table.is_aside(name) and not table.backend_of(name) and table.layer(name) is None:
            found.append(f"{name} is in no layer: give it a line in tests/layers.toml")
        for item in imports(name, path, known):
            if not item.typing_only:
                graph[name].add(item.target)
            wrong = breach(name, item.target, table)
            if wrong:
                found.append(f"{path}:{item.line}: {name} imports {item.target}: {wrong}")
    return found + [f"imports go round in a circle: {' -> '.join(circle)}" for circle in circles(graph)]


def breach(name: str, target: str, table: Table) -> str | None:
    """Why ``name`` may not import ``target``, or None when it may."""
    if table.backend_of(target):
        return (
            None
            if table.backend_of(name) == table.backend_of(target)
            else "a back end is found by name, never imported"
        )
    if table.is_aside(target):
        return None if table.is_aside(name) else "it stands aside and is imported by nobody"
    if target == table.top:
        allowed = any(under(name, user) for user in table.users)
        return None if allowed else "it joins the layers from outside; import from the layer itself"
    limit = table.held_to(name, target)
    if limit is not None:
        return f"it may reach no further than {limit}"
    if name == table.top or table.is_aside(name) or table.backend_of(name):
        return None
    own, other = table.layer(name), table.layer(target)
    if own is not None and other is not None and other > own:
        return f"layer {own} may not know of layer {other}"
    return None


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """One circle for each place where a depth-first walk meets its own path, first module repeated at the end."""
    found: list[list[str]] = []
    done: set[str] = set()
    for start in sorted(graph):
        path: list[str] = []
        stack = [(start, iter(sorted(graph[start])))] if start not in done else []
        path.extend(name for name, _ in stack)
        while stack:
            name, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                stack.pop()
                path.pop()
                done.add(name)
            elif following in path:
                found.append([*path[path.index(following) :], following])
            elif following not in done:
                stack.append((following, iter(sorted(graph[following]))))
                path.append(following)
    return found
