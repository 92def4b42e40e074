"""One array in one file: written whole or not at all, checked when it is read.

A file starts with its length and checksum, so that a truncated, changed or foreign one is found out.  Nothing is
synchronised to the medium: the content matters to this process only.
"""

from __future__ import annotations

import os
import zlib
from struct import Struct
from typing import TYPE_CHECKING, Final

from lifetimes.errors import BackendError

if TYPE_CHECKING:
    from pathlib import Path

    from lifetimes._typing import ByteView

__all__ = ["SpillFile", "read_file", "write_file"]

_MAGIC: Final = b"lifetimes spill\n"
_HEADER: Final = Struct("<16sQI4x")
_CHUNK: Final = 16 << 20
"""Bytes written, read and summed at a time, so that they are still in the cache."""


class SpillFile:
    """Where the content of an array stands: a path, and how many bytes."""

    __slots__ = ("nbytes", "path")

    def __init__(self, path: Path, nbytes: int) -> None:
        self.path = path
        self.nbytes = nbytes

    def __repr__(self) -> str:
        return f"<SpillFile {self.path}, {self.nbytes} bytes>"


def write_file(path: Path, content: ByteView) -> SpillFile:
    """Write ``content`` (C-contiguous bytes) to a new file that its owner alone may read.

    The name appears when the file is complete.  Errors: `OSError` (no space, no right to write); nothing is left then.
    """
    part = path.with_suffix(".part")
    view = content.data
    checksum = 0
    try:
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            _write(file, _HEADER.pack(_MAGIC, 0, 0))
            for start in range(0, len(view), _CHUNK):
                chunk = view[start : start + _CHUNK]
                checksum = zlib.crc32(chunk, checksum)
                _write(file, chunk)
            os.pwrite(file, _HEADER.pack(_MAGIC, len(view), checksum), 0)
        finally:
            os.close(file)
        os.replace(part, path)
    except BaseException:
        for each in (part, path):
            try:
                os.unlink(each)
            except OSError:
                pass
        raise
    return SpillFile(path, len(view))


def read_file(file: SpillFile, destination: ByteView) -> None:
    """Read the whole content into ``destination``, which has as many bytes.

    Errors: `BackendError` that names the file and says what is wrong with it: gone, cut off, changed, unreadable.
    """
    try:
        handle = os.open(file.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        raise BackendError(f"the spill file {file.path} cannot be opened: {error.strerror or error}") from error
    try:
        header = bytearray(_HEADER.size)
        magic, nbytes, expected = _HEADER.unpack(header) if _read(handle, memoryview(header)) else (b"", 0, 0)
        if magic != _MAGIC or nbytes != file.nbytes:
            raise BackendError(f"the spill file {file.path} is not what was written: its beginning has changed")
        view = destination.data
        checksum = 0
        for start in range(0, len(view), _CHUNK):
            chunk = view[start : start + _CHUNK]
            if not _read(handle, chunk):
                raise BackendError(f"the spill file {file.path} was cut off before its {nbytes} bytes")
            checksum = zlib.crc32(chunk, checksum)
        if checksum != expected:
            raise BackendError(f"the spill file {file.path} was changed: its checksum does not fit its content")
    except OSError as error:
        if isinstance(error, BackendError):
            raise
        raise BackendError(f"the spill file {file.path} cannot be read: {error.strerror or error}") from error
    finally:
        os.close(handle)


def _write(file: int, content: bytes | memoryview) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(file, left) :]


def _read(file: int, destination: memoryview) -> bool:
    """Fill ``destination``; False when the file ends before."""
    left = destination
    while left:
        got = os.readv(file, [left])
        if not got:
            return False
        left = left[got:]
    return True
