"""Which capacities the pool deals in."""

from __future__ import annotations

from operator import index
from typing import Final

from lifetimes.errors import OutOfMemory

__all__ = ["MINIMUM", "check_nbytes", "round_up"]

MINIMUM: Final = 256
"""Bytes.  Also the alignment of device memory."""


def round_up(nbytes: int, ceiling: int) -> int:
    """The capacity of a block for ``nbytes`` >= 1: at least `MINIMUM`, above it at most 1/8 more; never above ``ceiling``.

    Eight classes to each power of two, so a freed block serves every request within an eighth of its size.

    >>> round_up(1, 10**9), round_up(257, 10**9), round_up(1000, 10**9), round_up(1000, 1010)
    (256, 288, 1024, 1010)
    """
    if nbytes <= MINIMUM:
        capacity = MINIMUM
    else:
        shift = (nbytes - 1).bit_length() - 4
        capacity = ((nbytes - 1 >> shift) + 1) << shift
    return capacity if capacity <= ceiling else max(nbytes, min(ceiling, capacity))


def check_nbytes(nbytes: object, largest: int, what: str = "the request") -> int:
    """``nbytes`` as an int in 0..``largest``, checked before any rounding could overflow or wrap.

    Errors: `TypeError` for no integer (bool too), `ValueError` below zero, `OutOfMemory` above ``largest``.
    """
    if isinstance(nbytes, bool):
        raise TypeError(f"{what} must be a number of bytes, not the bool {nbytes}")
    try:
        size = index(nbytes)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{what} must be a number of bytes, not {type(nbytes).__name__} {nbytes!r}") from None
    if size < 0:
        raise ValueError(f"{what} is {size} bytes; a size cannot be negative")
    if size > largest:
        raise OutOfMemory(f"{what} is {size} bytes, more than the {largest} bytes that could ever be had here")
    return size
