"""The kernels of the process, shared by content: what has the same text, target and compiler is compiled once.

Loaded code is shared while a function uses it and goes with its last user.  What stays, up to a limit, is the compiled
object: a function that asks for the same again has it loaded in a tenth of the time that compiling would take.
"""

from __future__ import annotations

import hashlib
import time
import weakref
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from lifetimes.compiler import native
from lifetimes.compiler.emit import emit
from lifetimes.compiler.emit.llvm import Program
from lifetimes.compiler.flights import Flights
from lifetimes.compiler.kernel import Nest, text
from lifetimes.compiler.native import Code
from lifetimes.compiler.target import Target
from lifetimes.locks import lock

__all__ = ["CacheStatistics", "Kernel", "KernelCache", "kernels"]

LIMIT: Final = 16 << 20

Key: TypeAlias = tuple[str, Target, str]
Compiled: TypeAlias = tuple[Program, bytes]


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Counts since the start of the process; they only grow, ``live`` and ``nbytes`` apart.

    A kernel that is asked for is there already (``hits``), or is loaded (``loaded``), for which it may have to be compiled
    (``compiled``).  ``live`` are loaded now; ``nbytes`` are those of the compiled objects that are kept.
    ``seconds`` are those of emitting, compiling and loading, in that order.
    """

    asked: int = 0
    hits: int = 0
    loaded: int = 0
    compiled: int = 0
    failed: int = 0
    dropped: int = 0
    unloaded: int = 0
    live: int = 0
    nbytes: int = 0
    seconds: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def since(self, before: CacheStatistics) -> CacheStatistics:
        """What was counted after ``before``; ``live`` and ``nbytes`` are as they are now."""
        counts = {
            name: getattr(self, name) - getattr(before, name)
            for name in ("asked", "hits", "loaded", "compiled", "failed", "dropped", "unloaded")
        }
        emitting, compiling, loading = (now - then for now, then in zip(self.seconds, before.seconds, strict=True))
        return replace(self, **counts, seconds=(emitting, compiling, loading))


class Kernel:
    """Loaded code of a nest.  It stays while this object does: whoever launches it holds it."""

    __slots__ = ("__weakref__", "address", "code", "lanes", "nest", "target")

    def __init__(self, nest: Nest, target: Target, program: Program, code: Code) -> None:
        self.nest = nest
        self.target = target
        self.lanes = program.lanes
        self.code = code
        self.address = code.value


class KernelCache:
    """Kernels by content.  ``limit`` bounds the bytes of compiled objects that are kept for the future.

    Threading: any thread; what several ask for at once is compiled once (see `Flights`).
    Locks: the library's, for counting; none while compiling and loading.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._compiled: Flights[Key, Compiled] = Flights()
        self._loaded: dict[Key, weakref.ref[Kernel]] = {}
        self._counts = CacheStatistics()

    def get(self, nest: Nest, target: Target) -> Kernel:
        """The kernel of that nest.  Errors: `CompileError`."""
        key = (hashlib.sha256(text(nest).encode()).hexdigest(), target, native.version())
        self._count(asked=1)
        found = self._live(key)
        if found is not None:
            self._count(hits=1)
            return found
        (program, binary), made = self._compiled.get(key, lambda: self._compile(nest, target))
        if made:
            self._shorten(self.limit)
        begin = time.perf_counter()
        kernel = Kernel(nest, target, program, Code(program, binary, target))
        self._count(loaded=1, seconds=(0.0, 0.0, time.perf_counter() - begin))
        mine = weakref.ref(kernel, lambda gone: self._gone(key, gone))
        while True:
            there = self._loaded.setdefault(key, mine)
            if there is mine:
                return kernel
            other = there()
            if other is not None:  # somebody was faster: ours goes at once
                return other
            self._gone(key, there)

    def statistics(self) -> CacheStatistics:
        """What has been counted so far."""
        live = sum(each() is not None for each in list(self._loaded.values()))
        unloaded = self._counts.loaded - live
        nbytes = sum(len(binary) for _, (_, binary) in self._compiled.finished())
        return replace(self._counts, live=live, unloaded=unloaded, nbytes=nbytes)

    def clear(self) -> None:
        """Keep no compiled objects.  Loaded code stays while functions use it."""
        self._shorten(0)

    def _live(self, key: Key) -> Kernel | None:
        found = self._loaded.get(key)
        return None if found is None else found()

    def _gone(self, key: Key, reference: Any) -> None:
        if self._loaded.get(key) is reference:
            self._loaded.pop(key, None)

    def _compile(self, nest: Nest, target: Target) -> Compiled:
        try:
            begin = time.perf_counter()
            program = emit(nest, target)
            emitted = time.perf_counter()
            binary = native.compile_object(program.text, target)
        except BaseException:
            self._count(failed=1)
            raise
        self._count(compiled=1, seconds=(emitted - begin, time.perf_counter() - emitted, 0.0))
        return replace(program, text=""), binary  # the text can be made again

    def _shorten(self, limit: int) -> None:
        """Drop those that were not asked for longest, until the rest fits."""
        there = self._compiled.finished()
        total = sum(len(binary) for _, (_, binary) in there)
        dropped = 0
        for key, (_, binary) in there:
            if total <= limit:
                break
            if self._compiled.drop(key):
                total -= len(binary)
                dropped += 1
        self._count(dropped=dropped)

    def _count(self, seconds: tuple[float, float, float] = (0.0, 0.0, 0.0), **more: int) -> None:
        with lock:
            now = self._counts
            changed = {name: getattr(now, name) + count for name, count in more.items()}
            a, b = now.seconds, seconds
            self._counts = replace(now, **changed, seconds=(a[0] + b[0], a[1] + b[1], a[2] + b[2]))


kernels: Final = KernelCache()
"""Those of the process."""
