"""How the demo cuts its data: chunks of an eighth of the limit, and what has to fit on the device at once."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import Final

from lifetimes.cli.failing import InputError
from lifetimes.size_classes import round_up
from lifetimes.sizes import format_bytes

__all__ = ["DEFAULT_LIMIT", "MINIMUM", "Plan", "default_limit", "minimum_limit", "needed", "plan", "size_of_generated"]

DEFAULT_LIMIT: Final = 64 << 20
MINIMUM: Final = 64 << 10
"""The smallest limit for generated data, in bytes."""
TIMES: Final = 4
"""Generated data are so many times the limit."""
SHARE: Final = 8
"""A chunk is the limit divided by this: a few are on the device at any time, most are not."""
ITEM: Final = 8
"""Bytes of a float64."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Rows and columns, cut into chunks of whole rows.  Sizes in bytes."""

    limit: int
    rows: int
    columns: int
    rows_per_chunk: int

    @property
    def data_bytes(self) -> int:
        """All of the data, as float64."""
        return self.rows * self.columns * ITEM

    @property
    def chunk_bytes(self) -> int:
        """One full chunk."""
        return self.rows_per_chunk * self.columns * ITEM

    @property
    def starts(self) -> range:
        """The first row of each chunk."""
        return range(0, self.rows, self.rows_per_chunk)

    def stop(self, start: int) -> int:
        """The row behind the chunk that starts there."""
        return min(start + self.rows_per_chunk, self.rows)


def plan(limit: int, rows: int, columns: int, what: str) -> Plan:
    """The plan for ``what``, a matrix of that shape.

    Errors: `InputError` when what a step needs does not fit into the limit; it says how much a Gram matrix takes and which
    limit would do.

    >>> plan(64 << 20, 131072, 256, "x").rows_per_chunk
    4096
    >>> plan(1 << 20, 1000, 400, "x")
    Traceback (most recent call last):
    lifetimes.cli.failing.InputError: x has 400 columns, so its Gram matrix takes 1.22 MiB on the device, and with another \
one, or a chunk of the data, it does not fit into the limit of 1 MiB; give --limit 3MiB or more, or fewer columns
    """
    if fits(limit, columns):
        return Plan(limit, rows, columns, min(rows, rows_in(limit, columns)))
    raise InputError(
        f"{what} has {columns} columns, so its Gram matrix takes {format_bytes(columns * columns * ITEM)} on the device, "
        f"and with another one, or a chunk of the data, it does not fit into the limit of {format_bytes(limit)}; "
        f"give --limit {written(minimum_limit(columns))} or more, or fewer columns"
    )


def size_of_generated(limit: int) -> tuple[int, int]:
    """Rows and columns of a matrix of `TIMES` the limit.  Errors: `InputError` below `MINIMUM`, which it names.

    >>> size_of_generated(64 << 20)
    (131072, 256)
    """
    if limit < MINIMUM:
        raise InputError(
            f"--limit: {format_bytes(limit)} is too small: the demo keeps its data in chunks of an eighth of the limit, and "
            f"a Gram matrix has to fit beside one; the minimum is {written(MINIMUM)}"
        )
    columns = min(256, isqrt(limit // (2 * SHARE * ITEM)))  # the Gram matrix takes a sixteenth of the limit at most
    return -(-TIMES * limit // (columns * ITEM)), columns


def default_limit(rows: int, columns: int) -> int:
    """For data of a user's own: a quarter of them, so that they have to move, but no more than `DEFAULT_LIMIT`.

    >>> default_limit(20_000, 50), default_limit(10, 10_000) == DEFAULT_LIMIT
    (2000000, True)
    """
    return min(DEFAULT_LIMIT, max(minimum_limit(columns), rows * columns * ITEM // TIMES))


def rows_in(limit: int, columns: int) -> int:
    """Rows in a chunk."""
    return max(1, limit // SHARE // (columns * ITEM))


def needed(limit: int, columns: int) -> int:
    """Bytes that one step pins at most: a chunk and a Gram matrix, or two of these; the scores of a chunk, and some vectors.

    In capacities of the pool, which are up to an eighth more than what was asked for.
    """
    rows = rows_in(limit, columns)
    chunk, gram, scores, vector = (
        round_up(size * ITEM, 1 << 62) for size in (rows * columns, columns * columns, rows, columns)
    )
    return max(chunk, gram) + gram + scores + 8 * vector


def fits(limit: int, columns: int) -> bool:
    """Whether one call can pin what it needs."""
    return needed(limit, columns) <= limit


def minimum_limit(columns: int) -> int:
    """The smallest limit, in whole KiB or (from 1 MiB) MiB, that serves so many columns."""
    limit = 1 << 10
    while not fits(limit, columns):
        limit += limit // 16 + 1
        limit += -limit % (1 << 10 if limit <= 1 << 20 else 1 << 20)
    return limit


def written(nbytes: int) -> str:
    """A whole number of KiB or MiB, as one writes it after ``--limit``."""
    return f"{nbytes >> 20}MiB" if nbytes >= 1 << 20 and not nbytes % (1 << 20) else f"{nbytes >> 10}KiB"
