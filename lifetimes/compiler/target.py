"""What code is made for: the processor, its vector registers, and the mathematical functions there are for vectors.

The host's own target is found out once.  Narrower ones of the same processor have names, which is how the tests run all
widths on one machine.
"""

from __future__ import annotations

import ctypes
import platform
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from lifetimes.errors import BackendError

__all__ = ["Target", "best", "libmvec", "named", "names", "require_llvm"]

_WIDE: Final = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd")  # what x86-64-v4 means
_V3: Final = ("avx2", "fma", "bmi2")


@dataclass(frozen=True, slots=True)
class Target:
    """``registers`` are bytes of one vector register; ``maths`` are the prefixes of libmvec's functions, widest first.

    ``cpu`` and ``features`` are as LLVM wants them.  Equal targets run each other's code.
    """

    name: str
    cpu: str
    features: str
    registers: int
    maths: tuple[str, ...]


@cache
def libmvec() -> ctypes.CDLL | None:
    """glibc's functions for vectors, where there are any."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return None
    try:
        return ctypes.CDLL("libmvec.so.1")
    except OSError:
        return None


def require_llvm() -> Any:
    """llvmlite's binding.  Errors: `BackendError` that says how to get it."""
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise BackendError(
            "lifetimes.jit compiles with llvmlite, which is not installed here; pip install device-lifetimes[jit]"
        ) from error
    return llvm


@cache
def _host() -> dict[str, Target]:
    """Every target that this machine runs, the best one last."""
    llvm = require_llvm()
    if platform.machine() not in ("x86_64", "AMD64"):
        return {"host": Target("host", llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), 16, ())}
    has = {name for name, there in llvm.get_host_cpu_features().items() if there}
    letters = ("b", "d", "e") if libmvec() is not None else ()
    found = {"sse2": Target("sse2", "x86-64", "", 16, letters[:1])}
    if has.issuperset(_V3):
        found["avx2"] = Target("avx2", "x86-64-v3", "", 32, letters[1::-1])
    if has.issuperset((*_WIDE, *_V3)):
        found["avx512"] = Target("avx512", "x86-64-v4", "", 64, letters[::-1])
    return found


def names() -> tuple[str, ...]:
    """The targets of this machine, narrowest first."""
    return tuple(_host())


def named(name: str) -> Target:
    """The target of that name.  Errors: `BackendError` that lists what this machine runs."""
    found = _host().get(name)
    if found is None:
        raise BackendError(f"this machine has no target {name!r}; it runs {', '.join(map(repr, names()))}")
    return found


def best() -> Target:
    """The widest target of this machine."""
    return named(names()[-1])
