"""From a Python function to a graph: it is called once, with tracers for arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lifetimes.compiler import functions
from lifetimes.compiler.ir import Function
from lifetimes.compiler.tracer import Trace, Tracer
from lifetimes.compiler.tree import Tree, flatten
from lifetimes.errors import TraceError

__all__ = ["Traced", "trace"]


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A graph and how arguments and results are packed.

    The parameters of ``function`` are the leaves of ``(args, kwargs)``, in order, and after them the ``captured`` arrays, which
    the Python function used without having been given them: device arrays, NumPy arrays, or tracers of a trace around
    this one.  They are the objects themselves, so what is read is what they hold when the graph is run.
    ``device`` is that of the arrays, None where they have none.
    """

    function: Function
    inputs: Tree
    output: Tree
    captured: tuple[Any, ...]
    device: Any


def trace(function: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Traced:
    """Call ``function`` with tracers in place of every array and number in ``args`` and ``kwargs``.

    Those may be nested in tuples, lists and dicts, and so may the results.  Specs stand for arrays.

    Errors: `TraceError` for arguments and results that are no arrays and for whatever the function does that cannot be
    traced; what the function raises itself.
    Locks: none is held.

    >>> from lifetimes.compiler.spec import spec
    >>> traced = trace(lambda x, y: {"r": x * y + 1}, (spec(3), 2.0))
    >>> [str(node.op) for node in traced.function.nodes()], traced.output.keys
    (['param', 'param', 'broadcast', 'multiply', 'const', 'broadcast', 'add'], ('r',))
    """
    keywords = dict(kwargs or {})
    leaves, inputs = flatten((tuple(args), keywords))
    running = Trace(functions)
    names = [f"argument {path}" for path in _argument_paths(inputs)]
    tracers = [running.parameter(leaf, name) for leaf, name in zip(leaves, names, strict=True)]
    with running.running():
        positional, named = inputs.unflatten(tracers)
        results, output = flatten(function(*positional, **named))
        if output.kind is not None and not results:
            raise TraceError(
                f"the function returns {_returned(output)}: a traced function returns an array, or several"
            )
        outs = [_result(running, each, path) for each, path in zip(results, output.paths("result"), strict=True)]
    params = tuple([each.node for each in running.params])
    return Traced(
        Function(params, tuple([each.node for each in outs])), inputs, output, tuple(running.captured), running.device
    )


def _argument_paths(inputs: Tree) -> list[str]:
    positional, named = inputs.children
    paths = [path for at, child in enumerate(positional.children) for path in child.paths(str(at))]
    return paths + [path for key, child in zip(named.keys, named.children, strict=True) for path in child.paths(key)]


def _returned(output: Tree) -> str:
    return "None" if output.kind is type(None) else "an empty container"


def _result(running: Trace, value: Any, path: str) -> Tracer:
    try:
        return running.lift(value)
    except TraceError as error:
        raise TraceError(f"{path} is a {type(value).__name__}, which is no array and no number: {error}") from None
