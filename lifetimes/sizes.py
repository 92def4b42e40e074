"""Byte sizes: as a user writes them, and as a person reads them."""

from __future__ import annotations

import re
from operator import index
from typing import Final

__all__ = ["format_bytes", "parse_limit", "parse_size"]

_UNITS: Final = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)


def parse_size(size: object, what: str = "a size") -> int:
    """``size`` in bytes: an integer, or text with a unit (``"64MiB"`` is 2^20 bytes each, ``"64MB"`` is 10^6).

    Errors: `TypeError` for what is neither, `ValueError` for unknown units, fractions of a byte and anything below 1;
    both name ``what`` and show the value.

    >>> parse_size("64MiB"), parse_size("1.5kB"), parse_size(256)
    (67108864, 1500, 256)
    >>> parse_size("1 XB", "memory_limit")
    Traceback (most recent call last):
    ValueError: memory_limit: '1 XB' has no unit that is known; use B, kB, MB, GB, TB, KiB, MiB, GiB or TiB
    """
    nbytes: int
    if isinstance(size, str):
        match = _SIZE.fullmatch(size.strip())
        if match is None:
            raise ValueError(f'{what}: {size!r} is no size; write a number of bytes or, say, "64MiB"')
        number, unit = match.groups()
        factor = _UNITS.get(unit.lower())
        if factor is None:
            raise ValueError(f"{what}: {size!r} has no unit that is known; use B, kB, MB, GB, TB, KiB, MiB, GiB or TiB")
        whole, _, fraction = number.partition(".")
        scale = 10 ** len(fraction)
        nbytes, rest = divmod(int(whole + fraction) * factor, scale)
        if rest:
            raise ValueError(f"{what}: {size!r} is not a whole number of bytes")
    elif isinstance(size, bool):
        raise TypeError(f"{what}: {size!r} is a bool, not a number of bytes")
    else:
        try:
            nbytes = index(size)  # type: ignore[arg-type]
        except TypeError:
            raise TypeError(
                f'{what}: {size!r} is a {type(size).__name__}; give an integer number of bytes or text such as "64MiB"'
            ) from None
    if nbytes < 1:
        raise ValueError(f"{what}: {size!r} leaves nothing; give at least 1 byte, or None for no limit of your own")
    return nbytes


def parse_limit(limit: object, total: int, what: str = "memory_limit") -> int:
    """A limit in bytes: as `parse_size`, or a share of ``total`` (``"90%"``), or None for all of it.

    Errors: those of `parse_size`; `ValueError` above ``total``.

    >>> parse_limit("25%", 1000), parse_limit(None, 1000)
    (250, 1000)
    """
    if limit is None:
        return total
    if isinstance(limit, str) and limit.strip().endswith("%"):
        try:
            share = float(limit.strip()[:-1])
        except ValueError:
            share = -1.0
        if not 0 < share <= 100:
            raise ValueError(f"{what}: {limit!r} is no share; write more than 0% and at most 100%")
        return max(1, int(total * share / 100))
    nbytes = parse_size(limit, what)
    if nbytes > total:
        raise ValueError(f"{what}: {limit!r} is {nbytes} bytes, more than the {total} bytes that the device has")
    return nbytes


def format_bytes(nbytes: float) -> str:
    """For people: three digits and a binary unit.

    >>> format_bytes(0), format_bytes(67108864), format_bytes(1536)
    ('0 B', '64 MiB', '1.5 KiB')
    """
    sign = "-" if nbytes < 0 else ""
    number = abs(float(nbytes))
    unit = "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024 or unit == "TiB":
            break
        number /= 1024
    digits = f"{number:.0f}" if number >= 100 or number == int(number) else f"{number:.3g}"
    return f"{sign}{digits} {unit}"
