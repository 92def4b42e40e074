"""How much memory this process may have: the machine's, or less where a control group says so.

A container sees all memory of its machine and is killed at the limit of its control group, so the smallest limit on the
way from this process's group up to the root counts.  Both versions of the kernel's interface are read
(https://docs.kernel.org/admin-guide/cgroup-v2.html: ``memory.max``; cgroup-v1/memory.html: ``memory.limit_in_bytes``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from operator import index
from pathlib import Path, PurePosixPath

__all__ = ["SHARE", "check_limit", "cpu_name", "default_limit", "group_limits", "total_memory"]

SHARE = 0.75
"""The share of memory that a device takes as its total when nobody sets a limit."""

PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")
UNKNOWN = 4 << 30
"""Bytes assumed where the system does not tell: small enough to be true of any machine of today."""


def total_memory(proc: Path = PROC, groups: Path = GROUPS) -> int:
    """Bytes of physical memory, or of the tightest control group around this process where that is less.

    >>> total_memory() > 0
    True
    """
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        physical = UNKNOWN
    return min([physical, *group_limits(proc, groups)])


def default_limit(proc: Path = PROC, groups: Path = GROUPS) -> int:
    """75 % of `total_memory`, in bytes: the rest is for the program's own arrays."""
    return int(total_memory(proc, groups) * SHARE)


def check_limit(limit: int | None) -> int:
    """``limit`` as a plain int of at least 1 byte; None means `default_limit`.

    Errors: `TypeError` for what is no integer (bool included), `ValueError` below 1.

    >>> check_limit(4096)
    4096
    """
    if limit is None:
        return default_limit()
    if isinstance(limit, bool):
        raise TypeError(f"a byte limit must be an integer or None, not the bool {limit}")
    try:
        number = index(limit)
    except TypeError:
        raise TypeError(f"a byte limit must be an integer or None, not {type(limit).__name__} {limit!r}") from None
    if number < 1:
        raise ValueError(f"a byte limit must be at least 1, not {number}; None stands for {SHARE:.0%} of memory")
    return number


def group_limits(proc: Path = PROC, groups: Path = GROUPS) -> Iterator[int]:
    """The memory limits of this process's control groups and of those around them, in bytes, in no special order."""
    for line in _lines(proc / "self" / "cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:  # version 2, alone or beside version 1
            yield from _climb([groups, groups / "unified"], path, "memory.max")
        elif "memory" in controllers.split(","):
            yield from _climb([groups / "memory"], path, "memory.limit_in_bytes")


def _climb(mounts: list[Path], path: str, name: str) -> Iterator[int]:
    # A container often sees its own group as the root while /proc tells the path from outside; then only the last
    # step, the mount itself, is there to be read.
    inside = PurePosixPath(path.lstrip("/"))
    for mount in mounts:
        for group in (inside, *inside.parents):
            for line in _lines(mount / group / name):
                if line.isdigit():  # "max" is no limit
                    yield int(line)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().split("\n")
    except (OSError, UnicodeDecodeError):
        return []


def cpu_name(proc: Path = PROC) -> str:
    """The model of the processor, for people to read."""
    for line in _lines(proc / "cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Hardware", "cpu model") and value.strip():
            return value.strip()
    return os.uname().machine if hasattr(os, "uname") else "host processor"
