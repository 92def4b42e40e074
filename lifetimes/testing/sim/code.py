"""Modules and kernels of the simulated back end: the source language is Python."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from lifetimes.errors import BackendError, CompileError

__all__ = ["Kernel", "Module", "compile_source", "load_binary"]

MAGIC = b"lifetimes-python\n"


def compile_source(source: str) -> bytes:
    """A binary that `load_binary` takes.  Errors: `CompileError` with the line, the log and the numbered source."""
    try:
        compile(source, "<kernel>", "exec")
    except (SyntaxError, ValueError) as error:  # ValueError: a null byte
        line = getattr(error, "lineno", None) or 1
        numbered = "\n".join(f"{number:4d}  {text}" for number, text in enumerate(source.split("\n"), 1))
        failure = CompileError(f"line {line}: {error}\n{numbered}")
        failure.add_note(f"log of the compiler: {type(error).__name__}: {error}")
        raise failure from error
    return MAGIC + source.encode()


class Module:
    """Loaded code: what the source defines.  ``pending`` counts its kernels in flight."""

    __slots__ = ("functions", "kernels", "pending")

    def __init__(self, functions: dict[str, Callable[..., object]]) -> None:
        self.functions = functions
        self.pending = 0
        self.kernels: set[int] = set()  # handles of functions that go with the module

    def function(self, name: str) -> Callable[..., object]:
        """The function of that name.  Errors: `BackendError` that lists the names there are."""
        try:
            return self.functions[name]
        except KeyError:
            known = ", ".join(sorted(self.functions)) or "none at all"
            raise BackendError(f"the module has no kernel {name!r}; it has {known}") from None


class Kernel:
    """A function of a module, and how it wants to be called."""

    __slots__ = ("function", "module", "name", "wants_size")

    def __init__(self, name: str, module: Module) -> None:
        self.name = name
        self.module = module
        self.function = module.function(name)
        self.wants_size = "size" in inspect.signature(self.function).parameters

    def __call__(self, size: Sequence[int], args: Sequence[Any]) -> None:
        """Run it: with ``args``, and the launch's ``size`` if it has a parameter of that name."""
        if self.wants_size:
            self.function(*args, size=tuple(size))
        else:
            self.function(*args)


def load_binary(binary: bytes) -> Module:
    """Run a binary's definitions.  Errors: `BackendError` for what `compile_source` has not made, or if they raise."""
    if not binary.startswith(MAGIC):
        raise BackendError(f"this is no binary of the simulated back end: {binary[:16]!r}")
    namespace: dict[str, Any] = {"__name__": "kernel", "np": np}
    try:
        exec(compile(binary[len(MAGIC) :], "<kernel>", "exec"), namespace)
    except Exception as error:
        raise BackendError(f"the module's definitions raised {error!r}") from error
    return Module({name: value for name, value in namespace.items() if isinstance(value, FunctionType)})
