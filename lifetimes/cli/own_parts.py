"""Tables and policies of the user's own, said on the command line as ``package.module:Name``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["working_folder_importable"]


@contextmanager
def working_folder_importable() -> Iterator[None]:
    """A part of the user's own lies where the user stands, which an installed command does not look at.

    >>> with working_folder_importable():
    ...     "" in sys.path
    True
    """
    if "" in sys.path:
        yield
        return
    sys.path.insert(0, "")
    try:
        yield
    finally:
        sys.path.remove("")
