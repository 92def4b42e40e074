"""What the arrays of a replay hold, so that every byte of each can be told from those of the others without storing it."""

from __future__ import annotations

from typing import Final

import numpy as np

from lifetimes._typing import ByteView

__all__ = ["STAMP", "Content"]

SPAN: Final = 1 << 16
"""How many arrays of one size differ from each other."""
STAMP: Final = 8
"""Bytes of a stamp, which a use that changes an array puts at its front."""


class Content:
    """Views into one random run of bytes, each starting elsewhere.  ``largest`` is the size of the largest array.

    >>> content = Content(100)
    >>> content.of(1, 4).tolist() == content.of(1, 100).tolist()[:4], content.of(1, 9).tolist() == content.of(2, 9).tolist()
    (True, False)
    """

    def __init__(self, largest: int) -> None:
        self._bytes = np.random.default_rng(1).integers(0, 256, largest + SPAN, np.uint8)
        self._bytes.flags.writeable = False

    def of(self, number: int, nbytes: int) -> ByteView:
        """The content of the array of that number.  It is nobody's to write to."""
        start = number * 40_503 % SPAN  # odd, so that neighbours are apart and none is repeated early
        return self._bytes[start : start + nbytes]

    def stamp(self, number: int, nbytes: int) -> ByteView:
        """What the ``number``-th changing use writes over the front of an array of that size."""
        return np.frombuffer(number.to_bytes(STAMP, "little"), np.uint8)[:nbytes]
