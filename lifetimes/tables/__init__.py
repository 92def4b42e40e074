"""Tables: unsigned 64-bit key -> object, one protocol, any number of containers behind it.

``make("judy")`` gives an empty one.  What a table promises is in `protocol`; each file beside it is one table;
`checked.Checked` wraps any of them and checks everything.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias, overload

from lifetimes._resolve import Parts, lacks
from lifetimes.tables.protocol import KEY_MAX, OrderedTable, Table, check_key

__all__ = ["KEY_MAX", "OrderedTable", "Table", "TableSpec", "check_key", "default_ordered", "make", "names", "register"]

TableSpec: TypeAlias = str | Callable[[], Table[Any]] | Table[Any]
"""A registered name, ``"package.module:Name"``, a class or callable without arguments, or an empty table."""

_parts: Parts[Table[Any]] = Parts(
    "table",
    {
        "dict": "lifetimes.tables.dict:DictTable",
        "sorted": "lifetimes.tables.sorted:SortedTable",
        "judy": "lifetimes.tables.judy:JudyTable",
        "btree": "lifetimes.tables.btree:BTreeTable",
        "intmap": "lifetimes.tables.intmap:IntMapTable",
    },
    extras={"btree": "tables"},
)


def names(*, ordered: bool = False) -> tuple[str, ...]:
    """The registered names; with ``ordered=True`` those of tables that can be made here and answer neighbour queries.

    >>> names()[:3], names(ordered=True)[:2]
    (('dict', 'sorted', 'judy'), ('sorted', 'judy'))
    """
    return tuple(name for name in _parts.names() if not ordered or _makes_ordered(name))


@cache
def default_ordered() -> str:
    """The name of the ordered table for whoever has not chosen one: ``btree`` if its package is installed, else ``sorted``.

    >>> default_ordered() in names(ordered=True)
    True
    """
    return "btree" if _is_installed("BTrees") else "sorted"


def register(name: str, factory: str | Callable[[], Table[Any]]) -> None:
    """Let ``name`` stand for a class, a callable without arguments, or ``"package.module:Name"``.

    An import path is imported when the table is first made.  Errors: `ValueError` for a name that is taken.
    """
    _parts.register(name, factory)


@overload
def make(table: TableSpec, *, ordered: Literal[True]) -> OrderedTable[Any]: ...
@overload
def make(table: TableSpec, *, ordered: bool = False) -> Table[Any]: ...
def make(table: TableSpec, *, ordered: bool = False) -> Table[Any]:
    """An empty table: a new one, or the given object if it is one.

    ``ordered=True`` demands neighbour queries (`OrderedTable`).

    Errors: `ValueError` for an unknown name (it says which names there are, and which extra brings more), for a table
    that is not empty, and for one that is not ordered where it has to be; `TypeError` for what is no table, with the
    members it lacks.

    >>> table = make("judy", ordered=True)
    >>> table.insert(4096, "a block")
    >>> table.floor(5000)
    (4096, 'a block')
    >>> make("dict", ordered=True)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: the table 'dict' is not ordered: it lacks ceiling, floor, range; ordered are sorted, judy...
    """
    made = _parts.make(table, Table)
    if ordered:
        missing = lacks(made, OrderedTable)
        if missing:
            lacking, there_are = ", ".join(missing), ", ".join(names(ordered=True))
            raise ValueError(f"the table {table!r} is not ordered: it lacks {lacking}; ordered are {there_are}")
    if len(made):
        raise ValueError(f"the table {table!r} holds {len(made)} items; give an empty one, which nobody else uses")
    return made


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:  # somebody put something in its place in sys.modules
        return False


def _makes_ordered(name: str) -> bool:
    try:
        return not lacks(_parts.make(name, Table), OrderedTable)
    except Exception:  # whatever a factory raises: such a table is no help to who asks for an ordered one
        return False
