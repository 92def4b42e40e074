"""The namespace inside a traced function: the names and meanings of the array API standard, over traced arrays.

Where the standard leaves something open, NumPy's answer is taken.  NumPy's own functions work on traced arrays as well,
by their names: ``np.sin(x)`` is `sin` here.

Not in the standard: ``cbrt``, ``cumprod``, ``cumsum``, ``dot``, ``erf``, ``erfc``, ``exp2``, ``outer``, ``ravel``,
``scatter_add``, ``swapaxes``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from lifetimes.compiler.apply import operate
from lifetimes.compiler.functions import creation, elementwise, indexing, linear, reductions, shapes
from lifetimes.compiler.functions.creation import *  # noqa: F403  (each has an __all__: this is one namespace in six files)
from lifetimes.compiler.functions.elementwise import *  # noqa: F403
from lifetimes.compiler.functions.indexing import *  # noqa: F403
from lifetimes.compiler.functions.linear import *  # noqa: F403
from lifetimes.compiler.functions.reductions import *  # noqa: F403
from lifetimes.compiler.functions.shapes import *  # noqa: F403
from lifetimes.errors import TraceError

__all__ = [
    "bool", "e", "finfo", "float32", "float64", "iinfo", "inf", "int8", "int16", "int32", "int64", "nan",
    "newaxis", "numpy_function", "operate", "pi", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip
__all__ += creation.__all__
__all__ += elementwise.__all__
__all__ += indexing.__all__
__all__ += linear.__all__
__all__ += reductions.__all__
__all__ += shapes.__all__

e: Final = np.e
pi: Final = np.pi
inf: Final = np.inf
nan: Final = np.nan
newaxis: Final = None
bool: Final = np.bool_
int8, int16, int32, int64 = np.int8, np.int16, np.int32, np.int64
uint8, uint16, uint32, uint64 = np.uint8, np.uint16, np.uint32, np.uint64
float32, float64 = np.float32, np.float64
finfo: Final = np.finfo
iinfo: Final = np.iinfo

_NUMPY: Final = {
    "absolute": "abs",
    "amax": "max",
    "amin": "min",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "concatenate": "concat",
    "fabs": "abs",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "power": "pow",
    "right_shift": "bitwise_right_shift",
    "rint": "round",
    "transpose": "_transpose",
    "true_divide": "divide",
}
"""Functions whose name in NumPy is another one."""


def numpy_function(name: str) -> Callable[..., Any]:
    """What stands for NumPy's function of that name.  Errors: `TraceError` where there is none."""
    own = _NUMPY.get(name, name)
    function: Any = globals().get(own)
    if not callable(function) or (own not in __all__ and function is not _transpose):
        raise TraceError(
            f"np.{name} cannot be traced: there is no such function in the namespace of compiled functions"
        )
    return function  # type: ignore[no-any-return]


def _transpose(x: Any, axes: Any = None) -> Any:
    return x.T if axes is None else permute_dims(x, axes)  # noqa: F405
