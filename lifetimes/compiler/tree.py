"""Arrays in tuples, lists and dicts: taken apart into a flat list and put together again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Final

__all__ = ["LEAF", "Tree", "flatten"]


@dataclass(frozen=True, slots=True)
class Tree:
    """How leaves are packed; equal and hashable by structure, so it can be part of a key.

    ``kind`` is the container's type, or None for a leaf; ``keys`` are those of a dict, in its order.
    """

    kind: type | None
    keys: tuple[Any, ...] = ()
    children: tuple[Tree, ...] = ()

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """The structure with these leaves.  Errors: `ValueError` when they are too few or too many.

        >>> leaves, tree = flatten({"a": (1, 2), "b": [3]})
        >>> leaves, tree.unflatten([x * 10 for x in leaves])
        ([1, 2, 3], {'a': (10, 20), 'b': [30]})
        """
        if len(leaves) != self.count:
            raise ValueError(f"{len(leaves)} leaves for a structure of {self.count}")
        return self._build(iter(leaves))

    @property
    def count(self) -> int:
        """The number of leaves."""
        return 1 if self is LEAF else sum(child.count for child in self.children)

    def paths(self, prefix: str) -> list[str]:
        """Where each leaf is, as one would write it: ``x[0]['a']``."""
        if self is LEAF:
            return [prefix]
        keys = self.keys if self.kind is dict else range(len(self.children))
        return [
            path for key, child in zip(keys, self.children, strict=True) for path in child.paths(f"{prefix}[{key!r}]")
        ]

    def _build(self, leaves: Iterator[Any]) -> Any:
        if self is LEAF:
            return next(leaves)
        if self.kind is None or self.kind is NoneType:
            return None
        content = [child._build(leaves) for child in self.children]
        if self.kind is dict:
            return dict(zip(self.keys, content, strict=True))
        if hasattr(self.kind, "_fields"):  # a named tuple takes its fields one by one
            return self.kind(*content)
        return self.kind(content)


LEAF: Final = Tree(None)
"""The tree of a leaf alone.  There is one: compare with ``is``."""


def flatten(value: Any) -> tuple[list[Any], Tree]:
    """The leaves of nested tuples (named ones too), lists and dicts, and how they were packed.

    None is a container of nothing; everything else is a leaf, subclasses of list and dict included.
    """
    leaves: list[Any] = []
    return leaves, _flatten(value, leaves)


def _flatten(value: Any, leaves: list[Any]) -> Tree:
    kind = type(value)
    if value is None:
        return Tree(kind)
    if kind is dict:
        return Tree(kind, tuple(value), tuple([_flatten(each, leaves) for each in value.values()]))
    if kind is list or kind is tuple or (isinstance(value, tuple) and hasattr(kind, "_fields")):
        return Tree(kind, (), tuple([_flatten(each, leaves) for each in value]))
    leaves.append(value)
    return LEAF
