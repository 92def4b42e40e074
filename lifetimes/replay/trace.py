"""Reading recorded traces: uses of keyed data, or allocations as RMM logs them; plain or gzipped.

A trace of **uses** has the columns ``time,key,nbytes`` and optionally ``op``; one of **allocations** those of RMM's logging
adaptor: ``Thread,Time,Action,Pointer,Size,Stream``.  The first line names them, in any order and case; other columns
are passed over.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Final, NoReturn, TypeAlias

from lifetimes.errors import LifetimesError
from lifetimes.tables.protocol import KEY_MAX

__all__ = ["Trace", "TraceFileError", "read_trace"]

USE_COLUMNS: Final = ("time", "key", "nbytes")
ALLOCATION_COLUMNS: Final = ("thread", "time", "action", "pointer", "size", "stream")
OPS: Final = {"r": "r", "read": "r", "get": "r", "w": "w", "write": "w", "set": "w", "rw": "rw", "update": "rw"}
"""What may stand in the column ``op``: it reads, overwrites all of it, or changes it."""
LARGEST: Final = 1 << 62
GZIP: Final = b"\x1f\x8b"


class TraceFileError(LifetimesError, ValueError):
    """A trace cannot be read.  The message names the file, and the line where one is at fault."""


@dataclass(slots=True)
class Trace:
    """The events of a trace, as columns.

    ``ops`` are ``"r"``, ``"w"`` and ``"rw"`` for uses (empty when the trace has no such column).  For allocations they are
    ``"allocate"`` and ``"free"``, and the keys count the allocations, so that a pointer that is given again is another key.
    Sizes in bytes.
    """

    name: str
    allocations: bool = False
    keys: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    ops: list[str] = field(default_factory=list)
    bad_lines: int = 0
    failures: int = 0
    """Allocations that failed when the trace was recorded; they are passed over."""
    changes: int = 0
    """Uses of a key with another size than at the use before."""

    def __len__(self) -> int:
        return len(self.keys)

    def footprint(self) -> int:
        """Bytes that would hold everything at once: each key at its largest, or the most that was allocated together."""
        if self.allocations:
            live = most = 0
            for op, nbytes in zip(self.ops, self.sizes, strict=True):
                live += nbytes if op == "allocate" else -nbytes
                most = max(most, live)
            return most
        largest: dict[int, int] = {}
        for key, nbytes in zip(self.keys, self.sizes, strict=True):
            if largest.get(key, -1) < nbytes:
                largest[key] = nbytes
        return sum(largest.values())


_Parse: TypeAlias = Callable[[list[str]], None]


class _BadLineError(Exception):
    """One line is malformed; the text says how."""


def read_trace(
    path: str | os.PathLike[str],
    *,
    strict_sizes: bool = False,
    skip_bad_lines: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> Trace:
    """Read a whole trace.

    The first malformed line stops it; with ``skip_bad_lines`` such lines, and the end of a file that is cut off, are counted
    and passed over.  ``strict_sizes`` takes a key that changes its size for a malformed line.  ``progress`` is told now and
    then how many bytes of how many of the file were read.

    Errors: `OSError`; `TraceFileError` for a header that is not one, for a malformed line, and for a trace of nothing.
    """
    size = os.path.getsize(path)
    with open(path, "rb") as raw:
        zipped = raw.peek(2)[:2] == GZIP
        stream: BinaryIO = gzip.GzipFile(fileobj=raw) if zipped else raw  # type: ignore[assignment]
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace")
        reader = _Reader(os.fspath(path), strict_sizes, skip_bad_lines)
        for number, line in _numbered(text, reader):
            reader.take(number, line)
            if progress is not None and not number & 0xFFF:
                progress(raw.tell(), size)
        if progress is not None:
            progress(size, size)
    return reader.finish()


def _numbered(text: io.TextIOWrapper, reader: _Reader) -> Iterator[tuple[int, str]]:
    number = 0
    lines = iter(text)
    while True:
        number += 1
        try:
            line = next(lines, None)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            what = (
                "the file is cut off" if isinstance(error, EOFError) else f"the compressed data are damaged ({error})"
            )
            reader.bad(number, f"{what} after line {number - 1}")
            return
        if line is None:
            return
        yield number, line


class _Reader:
    """Takes the lines in turn."""

    def __init__(self, path: str, strict_sizes: bool, skip: bool) -> None:
        self.path = path
        self.trace = Trace(os.path.basename(path))
        self.strict_sizes = strict_sizes
        self.skip = skip
        self.header: list[str] = []
        self.columns: dict[str, int] = {}
        self.parse: _Parse = self.use
        self.has_ops = False
        self.last: dict[int, int] = {}  # key -> its size so far
        self.live: dict[int, tuple[int, int]] = {}  # pointer -> (key, size)

    def take(self, number: int, line: str) -> None:
        """One line."""
        if not line.strip():
            return
        fields = [each.strip() for each in line.split(",")]
        if not self.header:
            self.begin(number, fields)
            return
        try:
            if [each.lower() for each in fields] == self.header:
                raise _BadLineError("repeats the header; two files may have been put together")
            if len(fields) != len(self.header):
                raise _BadLineError(f"has {len(fields)} fields, the header has {len(self.header)}")
            self.parse(fields)
        except _BadLineError as error:
            self.bad(number, f"line {number} {error}: {line.strip()[:80]!r}")

    def begin(self, number: int, fields: list[str]) -> None:
        """The header."""
        self.header = [each.lower() for each in fields]
        self.columns = {name: at for at, name in enumerate(self.header)}
        self.trace.allocations = {"action", "pointer"} & self.columns.keys() != set()
        wanted = ALLOCATION_COLUMNS if self.trace.allocations else USE_COLUMNS
        lacking = [name for name in wanted if name not in self.columns]
        if lacking:
            self.refuse(
                f"line {number} is no header of a trace: it lacks {', '.join(lacking)}; a trace of uses has the columns "
                f"{','.join(USE_COLUMNS)}[,op], a log of RMM has {','.join(ALLOCATION_COLUMNS)}"
            )
        repeated = [name for at, name in enumerate(self.header) if self.columns[name] != at and name in (*wanted, "op")]
        if repeated:
            self.refuse(f"line {number}: the header names {', '.join(repeated)} twice")
        self.has_ops = not self.trace.allocations and "op" in self.columns
        self.parse = self.allocation if self.trace.allocations else self.use

    def use(self, fields: list[str]) -> None:
        columns, trace = self.columns, self.trace
        _time(fields[columns["time"]])
        key = _integer(fields[columns["key"]], "key", KEY_MAX)
        nbytes = _integer(fields[columns["nbytes"]], "nbytes", LARGEST)
        if self.has_ops:
            op = OPS.get(fields[columns["op"]].lower())
            if op is None:
                raise _BadLineError(f"has the op {fields[columns['op']]!r}, which is none of {', '.join(OPS)}")
            trace.ops.append(op)
        before = self.last.get(key, nbytes)
        if before != nbytes:
            if self.strict_sizes:
                if self.has_ops:
                    trace.ops.pop()
                raise _BadLineError(f"changes the size of key {key} from {before} to {nbytes} bytes (--strict-sizes)")
            trace.changes += 1
        self.last[key] = nbytes
        trace.keys.append(key)
        trace.sizes.append(nbytes)

    def allocation(self, fields: list[str]) -> None:
        columns, trace = self.columns, self.trace
        action = fields[columns["action"]].lower()
        if action == "allocate failure":
            trace.failures += 1
            return
        pointer = _integer(fields[columns["pointer"]], "pointer", KEY_MAX)
        nbytes = _integer(fields[columns["size"]], "size", LARGEST)
        if not pointer and not nbytes:  # nothing was asked for, and nothing was given
            return
        if action == "allocate":
            if pointer in self.live:
                raise _BadLineError(f"allocates {pointer:#x}, which has not been freed")
            key = len(self.last)
            self.last[key] = nbytes
            self.live[pointer] = key, nbytes
        elif action == "free":
            found = self.live.pop(pointer, None)
            if found is None:
                raise _BadLineError(f"frees {pointer:#x}, which is not allocated")
            key, nbytes = found
        else:
            raise _BadLineError(f"has the action {action!r}, which is none of allocate, free, allocate failure")
        trace.ops.append(action)
        trace.keys.append(key)
        trace.sizes.append(nbytes)

    def bad(self, number: int, what: str) -> None:
        """A malformed line."""
        if not self.skip:
            self.refuse(f"{what}; --skip-bad-lines passes over such lines")
        self.trace.bad_lines += 1

    def finish(self) -> Trace:
        """All lines were taken."""
        if not self.header:
            self.refuse("it is empty; the first line of a trace names its columns, such as time,key,nbytes")
        if not self.trace.keys:
            bad = self.trace.bad_lines
            self.refuse(f"there is nothing to replay in it{f', but malformed lines: {bad}' if bad else ''}")
        return self.trace

    def refuse(self, what: str) -> NoReturn:
        raise TraceFileError(f"{self.path}: {what}")


def _integer(text: str, what: str, largest: int) -> int:
    digits, base = (text[2:], 16) if text[:2].lower() == "0x" else (text, 10)
    if digits.isalnum() and digits.isascii() and len(digits) <= 20:
        try:
            number = int(digits, base)
        except ValueError:
            number = -1
        if 0 <= number <= largest:
            return number
    raise _BadLineError(f"has the {what} {text[:30]!r}, which is no integer from 0 to {largest}")


def _time(text: str) -> None:
    try:
        float(text)
    except ValueError:
        raise _BadLineError(f"has the time {text[:30]!r}, which is no number") from None
