"""What the driver was asked for, as a log that RMM's tools read, and that ``lifetimes replay`` plays.

The columns are those of RMM's logging resource adaptor (`rmm::mr::logging_resource_adaptor`): ``Thread``, ``Time``
(hours:minutes:seconds.microseconds, local), ``Action`` (``allocate`` or ``free``), ``Pointer`` (hexadecimal), ``Size`` in
bytes and ``Stream`` (hexadecimal).
"""

from __future__ import annotations

import os
import time
from _thread import get_ident
from collections import deque
from types import TracebackType
from typing import Any, Final, Self, TextIO

from lifetimes import instrument

__all__ = ["HEADER", "AllocationLog"]

HEADER: Final = "Thread,Time,Action,Pointer,Size,Stream"
FLUSHED: Final = 1000
"""Rows that wait for being written together."""


class AllocationLog:
    """Writes a row for each ``allocate`` and ``free`` of any driver while its ``with`` block runs.

    Blocks that the pool hands out again are not asked of the driver, so they are not in the log.  A forked child, which
    has the file open as well, writes nothing.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "log.csv")
    ...     with AllocationLog(path):
    ...         instrument.emit("allocate", 1, address=0x7000, nbytes=256, stream=0)
    ...     path.read_text().splitlines()[0], path.read_text().splitlines()[1].split(",")[2:]
    ('Thread,Time,Action,Pointer,Size,Stream', ['allocate', '0x7000', '256', '0x0'])
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        # An event may come from a finalizer that interrupts our own write: rows are appended, and one writer takes them.
        self._rows: deque[tuple[int, float, str, int, int, int]] = deque()
        self._writing: list[int] = []
        self._file: TextIO | None = None
        self._process = 0

    def __enter__(self) -> Self:
        self._file = open(self.path, "w", encoding="ascii", newline="")
        self._file.write(f"{HEADER}\n")
        self._file.flush()  # here and below: a child's copy of what waits for being written would be written, too
        self._process = os.getpid()
        instrument.subscribe(self._listen)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        instrument.unsubscribe(self._listen)
        if self._file is not None:
            self._write()
            self._file.close()
            self._file = None

    def _listen(self, name: str, key: int, details: dict[str, Any]) -> None:
        if name in ("allocate", "free"):
            row = get_ident(), time.time(), name, details["address"], details["nbytes"], details["stream"]
            self._rows.append(row)
            if len(self._rows) >= FLUSHED and not self._writing:
                self._write()

    def _write(self) -> None:
        if os.getpid() != self._process:
            self._rows.clear()
            return
        self._writing.append(get_ident())
        try:
            while self._rows and self._file is not None:
                thread, now, action, address, nbytes, stream = self._rows.popleft()
                clock = time.strftime("%H:%M:%S", time.localtime(now))
                self._file.write(
                    f"{thread},{clock}.{int(now % 1 * 1e6):06},{action},{address:#x},{nbytes},{stream:#x}\n"
                )
            if self._file is not None:
                self._file.flush()
        finally:
            self._writing.clear()
