"""What the array compiler is measured with: a few programs, the way each library writes them, on the same content.

``prepare(program, peer, host)`` gives a function of no arguments that computes the program once, and waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

import lifetimes
from bench.peers import require

__all__ = ["PEERS", "PROGRAMS", "content", "ours", "prepare"]

PEERS: Final = ("numpy", "numexpr", "numba", "jax", "drjit")
HALF: Final = 0.7071067811865476


def axy(xp: Any, x: Any, y: Any) -> Any:
    return 2.5 * x + y * xp.sin(x)


def black_scholes(xp: Any, s: Any, k: Any, t: Any, r: Any, v: Any) -> Any:
    spread = v * xp.sqrt(t)
    d1 = (xp.log(s / k) + (r + 0.5 * v * v) * t) / spread
    d2 = d1 - spread
    return s * (0.5 * xp.erfc(-d1 * HALF)) - k * xp.exp(-r * t) * (0.5 * xp.erfc(-d2 * HALF))


def distance(xp: Any, a: Any, b: Any) -> Any:
    return xp.sum((a - b) ** 2)


def softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def columns(xp: Any, x: Any) -> Any:
    return xp.sum(x, axis=0)


def rows(xp: Any, x: Any) -> Any:
    return xp.sum(x, axis=1)


def broadcast(xp: Any, x: Any, row: Any) -> Any:
    return x * row + 1.0


def running(xp: Any, x: Any) -> Any:
    return xp.cumsum(x, axis=1)


PROGRAMS: Final[dict[str, tuple[Callable[..., Any], str, str]]] = {
    "a*x + y*sin(x)": (axy, "vv", "2.5*a0 + a1*sin(a0)"),
    "Black-Scholes": (black_scholes, "vvvvv", ""),
    "sum((a-b)**2)": (distance, "vv", "sum((a0-a1)**2)"),
    "softmax of rows": (softmax, "m", ""),
    "sums of columns": (columns, "m", "sum(a0, axis=0)"),
    "sums of rows": (rows, "m", "sum(a0, axis=1)"),
    "x*row + 1": (broadcast, "mr", "a0*a1 + 1"),
    "running sums of rows": (running, "m", ""),
}
"""For each: the function, its arguments (v: a vector, m: a square matrix, r: a row of it), and numexpr's spelling."""


def content(program: str, dtype: str, count: int) -> list[Any]:
    """The arguments on the host: positive, near 1, so that no library meets its slow paths."""
    random = np.random.default_rng(count)
    side = int(count**0.5)
    shapes = {"v": (count,), "m": (side, side), "r": (side,)}
    return [random.uniform(0.5, 1.5, shapes[kind]).astype(dtype) for kind in PROGRAMS[program][1]]


def ours(program: str, device: lifetimes.Device, host: list[Any]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Compute it, and give the last result as a NumPy array."""
    from lifetimes.compiler import functions

    function = PROGRAMS[program][0]
    compiled = lifetimes.jit(lambda *args: function(functions, *args))
    given = [device.asarray(each) for each in host]
    last: list[Any] = [None]
    synchronize = device.stream.synchronize

    def compute() -> None:
        last[0] = compiled(*given)
        synchronize()

    return compute, lambda: last[0].numpy()


def prepare(program: str, peer: str, host: list[Any]) -> Callable[[], Any] | None:
    """The peer's version, which returns its result; None where it has none."""
    return _PREPARE[peer](program, host)


class _WithErfc:
    """A namespace and the one function that it lacks."""

    def __init__(self, namespace: Any, erfc: Callable[[Any], Any]) -> None:
        self._namespace = namespace
        self.erfc = erfc

    def __getattr__(self, name: str) -> Any:
        return getattr(self._namespace, name)


def _numpy(program: str, host: list[Any]) -> Callable[[], Any] | None:
    function = PROGRAMS[program][0]
    if function is not black_scholes:
        return lambda: function(np, *host)
    namespace = _WithErfc(np, require("scipy.special").erfc)
    return lambda: function(namespace, *host)


def _numexpr(program: str, host: list[Any]) -> Callable[[], Any] | None:
    spelled = PROGRAMS[program][2]
    if not spelled:
        return None
    numexpr = require("numexpr")
    names = {f"a{at}": each for at, each in enumerate(host)}
    # A constant of Python's would make everything float64.
    for constant in ("2.5",):
        if constant in spelled and host[0].dtype == np.float32:
            spelled = spelled.replace(constant, "c")
            names["c"] = np.float32(constant)
    return lambda: numexpr.evaluate(spelled, local_dict=names)


def _numba(program: str, host: list[Any]) -> Callable[[], Any] | None:
    numba = require("numba")
    import math

    one = host[0].dtype.type
    njit: Callable[[Callable[..., Any]], Callable[..., Any]] = numba.njit(fastmath=True)

    @njit
    def numba_axy(x: Any, y: Any) -> Any:
        a = one(2.5)
        out = np.empty_like(x)
        for at in range(len(x)):
            out[at] = a * x[at] + y[at] * math.sin(x[at])
        return out

    @njit
    def numba_black_scholes(s: Any, k: Any, t: Any, r: Any, v: Any) -> Any:
        half, root = one(0.5), one(HALF)
        out = np.empty_like(s)
        for at in range(len(s)):
            spread = v[at] * math.sqrt(t[at])
            d1 = (math.log(s[at] / k[at]) + (r[at] + half * v[at] * v[at]) * t[at]) / spread
            d2 = d1 - spread
            near, far = half * math.erfc(-d1 * root), half * math.erfc(-d2 * root)
            out[at] = s[at] * near - k[at] * math.exp(-r[at] * t[at]) * far
        return out

    @njit
    def numba_distance(a: Any, b: Any) -> Any:
        total = one(0.0)
        for at in range(len(a)):
            total += (a[at] - b[at]) ** 2
        return total

    loops = {axy: numba_axy, black_scholes: numba_black_scholes, distance: numba_distance}
    loop = loops.get(PROGRAMS[program][0])
    return None if loop is None else lambda: loop(*host)


def _jax(program: str, host: list[Any]) -> Callable[[], Any] | None:
    jax = require("jax")
    jax.config.update("jax_enable_x64", True)
    namespace = jax.numpy
    namespace.erfc = jax.scipy.special.erfc  # where the programs look for it
    function = PROGRAMS[program][0]
    compiled = jax.jit(lambda *args: function(namespace, *args))
    given = [namespace.asarray(each) for each in host]
    return lambda: compiled(*given).block_until_ready()


def _drjit(program: str, host: list[Any]) -> Callable[[], Any] | None:
    drjit = require("drjit")
    import drjit.llvm as backend

    function = PROGRAMS[program][0]
    if function not in (axy, black_scholes, distance):
        return None
    namespace = _WithErfc(drjit, lambda x: 1 - drjit.erf(x))
    kind = backend.Float64 if host[0].dtype == np.float64 else backend.Float
    given = [kind(each) for each in host]

    def compute() -> Any:
        result = function(namespace, *given)
        drjit.eval(result)
        drjit.sync_thread()
        return result

    return compute


_PREPARE: Final = {"numpy": _numpy, "numexpr": _numexpr, "numba": _numba, "jax": _jax, "drjit": _drjit}
