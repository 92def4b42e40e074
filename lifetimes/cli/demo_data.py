"""The demo's data: made here from a seed, or a user's own matrix, read piece by piece and never as a whole."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from lifetimes._typing import HostArray
from lifetimes.cli.demo_plan import Plan
from lifetimes.cli.failing import InputError

__all__ = ["FileSource", "GeneratedSource", "Matrix", "Source", "check_content"]

Matrix = npt.NDArray[np.float64]
SEED: Final = 20_080_625
RANGE: Final = (1e-70, 1e70)
"""The lengths of vectors of sums of squares are computed, and beyond these float64 holds no fourth powers of that many."""


class Source(Protocol):
    """Where rows come from.  Asked twice for the same rows it gives the same content."""

    what: str
    """How messages and the report call it."""
    settles: bool
    """Whether its leading eigenvalues are known to be well apart."""

    def read(self, start: int, stop: int) -> Matrix:
        """Rows ``start`` to ``stop`` as C-contiguous float64.  It may be a view of a file, which nobody writes to."""
        ...


class GeneratedSource:
    """A low-rank matrix and noise: eight directions, each much weaker than the one before, and column means.

    The content of a chunk depends on the seed and its first row.
    """

    what = "generated, low rank and noise"
    settles = True

    def __init__(self, columns: int, seed: int = SEED) -> None:
        random = np.random.default_rng(seed)
        self._seed = seed
        rank = min(8, columns)
        directions = np.linalg.qr(random.standard_normal((columns, rank)))[0].T
        self._directions = directions * (4.0 * 0.4 ** np.arange(rank))[:, None]
        self._means = random.uniform(-1.0, 1.0, columns)

    def read(self, start: int, stop: int) -> Matrix:
        """As `Source.read`."""
        random = np.random.default_rng([self._seed, start])
        chunk = random.standard_normal((stop - start, self._means.size))
        chunk *= 0.01
        chunk += random.standard_normal((stop - start, len(self._directions))) @ self._directions
        chunk += self._means
        return chunk


class FileSource:
    """A matrix in a ``.npy`` file, mapped into memory: real numbers of any width, in any order.

    Errors: `InputError` for a file that is not there, that is no ``.npy`` file, that is damaged, or that holds anything
    but a matrix of real numbers with at least one row and one column.
    """

    settles = False

    def __init__(self, path: str) -> None:
        self.what = path
        self._mapped = open_matrix(path)
        self.rows, self.columns = self._mapped.shape

    @property
    def whole_numbers(self) -> bool:
        """Whether all values are integers of a width that cannot surprise."""
        return self._mapped.dtype.kind in "iub"

    def read(self, start: int, stop: int) -> Matrix:
        """As `Source.read`."""
        with np.errstate(all="ignore"):  # a value that float64 cannot hold becomes infinite, and is found as such
            return np.ascontiguousarray(self._mapped[start:stop], np.float64)


def open_matrix(path: str) -> HostArray:
    """The mapped file.  Errors: as `FileSource`."""
    if not path:
        raise InputError("--data: the name of the file is empty; give a .npy file")
    if not os.path.exists(path):
        raise InputError(f"--data: there is no file {path!r}")
    if not os.path.isfile(path):
        raise InputError(f"--data: {path!r} is no ordinary file; give a .npy file, as numpy.save writes it")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of headers that NumPy reads with reserve
            found = np.load(path, mmap_mode="r", allow_pickle=False)
    except PermissionError as error:
        raise InputError(f"--data: {path!r} cannot be read: {error.strerror}") from error
    except Exception as error:  # for a damaged header that may be a ValueError, an EOFError, a SyntaxError, ...
        if "Python objects" in str(error):
            raise InputError(f"--data: {path!r} holds Python objects; save it with a numeric dtype") from error
        raise InputError(
            f"--data: {path!r} is no .npy file, or a damaged one; write it with numpy.save ({short(error)})"
        ) from error
    if not isinstance(found, np.ndarray):
        found.close()
        raise InputError(f"--data: {path!r} is an archive of several arrays; save the one matrix with numpy.save")
    shape = " x ".join(map(str, found.shape)) or "a single number"
    if found.ndim != 2:
        dimensions = f"{found.ndim} dimension{'' if found.ndim == 1 else 's'}"
        raise InputError(f"--data: {path!r} has {dimensions} ({shape}); give a matrix: rows and columns")
    if not found.size:
        raise InputError(f"--data: {path!r} is empty ({shape}); give at least one row and one column")
    if found.dtype.kind == "c":
        raise InputError(f"--data: {path!r} is complex ({found.dtype}); give its real part, or its modulus")
    if found.dtype.kind not in "fiub":
        raise InputError(f"--data: {path!r} holds {found.dtype}, not numbers; give a float or integer dtype")
    return found


def check_content(source: FileSource, plan: Plan, starts: Iterable[int]) -> None:
    """Read all of it once.

    Errors: `InputError` for what is not finite, with the count and the first position, and for values so large
    or so small that their fourth powers do not fit into a float64.
    """
    if source.whole_numbers:
        return
    bad, first, largest = 0, (0, 0), 0.0
    for start in starts:
        chunk = source.read(start, plan.stop(start))
        finite = np.isfinite(chunk)
        if not finite.all():
            if not bad:
                row, column = np.argwhere(~finite)[0]
                first = (start + int(row), int(column))
            bad += int(finite.size - np.count_nonzero(finite))
        else:
            largest = max(largest, float(np.abs(chunk).max()))
    if bad:
        raise InputError(
            f"--data: {source.what!r} has {bad} value{'s' if bad > 1 else ''} that "
            f"{'are' if bad > 1 else 'is'} not finite (NaN or infinite as float64), the first in row {first[0]}, "
            f"column {first[1]}, counted from 0; remove or replace {'them' if bad > 1 else 'it'}"
        )
    if largest and not RANGE[0] <= largest <= RANGE[1]:
        raise InputError(
            f"--data: the largest value of {source.what!r} is {largest:.3g}; the demo sums fourth powers, which a float64 "
            f"holds for values between {RANGE[0]:g} and {RANGE[1]:g}; scale the matrix"
        )


def short(error: Exception) -> str:
    """The first sentence of NumPy's message."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text.split(". ")[0][:120]


_generated: type[Source] = GeneratedSource
_file: type[Source] = FileSource
