"""A driver that tells what it is asked."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from time import perf_counter
from typing import Any

import numpy as np

from lifetimes.adaptors.base import Adaptor
from lifetimes.backend import Driver

__all__ = ["Logged"]


class Logged(Adaptor):
    """``upstream``, with one line for each call to ``log`` (None: debug messages of the logger ``lifetimes.driver``).

    A line has the call, what came of it, and how long it took.  ``log`` is called without any lock, after the call.

    >>> from lifetimes.testing.sim import SimDriver
    >>> lines = []
    >>> driver = Logged(SimDriver(4096, latency=0), lines.append)
    >>> driver.free(driver.allocate(100))
    >>> [line.partition(" (")[0] for line in lines]
    ['allocate(100) -> 0x5a000000000000', 'free(0x5a000000000000)']
    """

    def __init__(self, upstream: Driver, log: Callable[[str], object] | None = None) -> None:
        super().__init__(upstream)
        self.log = logging.getLogger("lifetimes.driver").debug if log is None else log
        self.wrap_calls(self._logging)

    def _logging(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        if name == "call_now":
            return _not_now

        @wraps(call)
        def logged(*args: Any, **options: Any) -> Any:
            words = ", ".join([_in_words(arg) for arg in args] + [f"{key}={options[key]!r}" for key in options])
            start = perf_counter()
            try:
                result = call(*args, **options)
            except BaseException as error:
                self.log(f"{name}({words}) raised {type(error).__name__}: {error} ({_since(start)})")
                raise
            told = "" if result is None else f" -> {_in_words(result)}"
            self.log(f"{name}({words}){told} ({_since(start)})")
            return result

        return logged


def _not_now(*args: object) -> bool:
    """What is called under a lock cannot be logged there: it goes the way of other functions, by `call`."""
    return False


def _since(start: float) -> str:
    return f"{(perf_counter() - start) * 1e6:.1f} us"


def _in_words(value: object) -> str:
    """Short: an address in hexadecimal digits, an array by its size."""
    if isinstance(value, np.ndarray):
        return f"<{value.nbytes} bytes>"
    if isinstance(value, int) and not isinstance(value, bool) and value > 1 << 32:
        return hex(value)
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_driver: type[Driver] = Logged
